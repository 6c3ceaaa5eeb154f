"""Names in certificates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.security.identity import Identity, Role, identity_in, parse_identity

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1)


@given(st.builds(Identity, TEXTS | st.just(""), st.sampled_from(Role), TEXTS))
def test_what_is_written_is_read(identity: Identity) -> None:
    assert parse_identity(str(identity)) == identity
    assert str(identity).isascii()
    certificate = {"subjectAltName": (("DNS", "x"), ("URI", "http://x"), ("URI", str(identity)))}
    assert identity_in(certificate) == identity


@pytest.mark.parametrize(
    "text",
    [
        "ringpop://",
        "ringpop://c",
        "ringpop://c/member",
        "ringpop://c/member/",
        "ringpop://c/owner/x",
        "ringpop://c/member/x/y",
    ],
)
def test_anything_else_names_nobody(text: str) -> None:
    assert parse_identity(text) is None
    assert identity_in({"subjectAltName": (("URI", text),)}) is None


def test_who_shows_nothing_is_nobody() -> None:
    assert identity_in(None) is None
    assert identity_in({}) is None


def test_each_role_may_do_what_those_before_it_may() -> None:
    assert Role.CLIENT < Role.ADMIN < Role.MEMBER
