"""Names in certificates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.security.identity import (
    Identity,
    Role,
    identity_in,
    parse_identity,
    refusal_of,
)

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


@pytest.mark.parametrize("role", Role)
def test_any_role_may_call_and_only_a_member_may_answer(role: Role) -> None:
    identity = Identity("c", role, "x")

    assert refusal_of(identity, "c", by_server=True) is None
    answering = refusal_of(identity, "c", by_server=False)
    refused = None if role is Role.MEMBER else f"a {role.label} answers there, not a member"
    assert answering == refused


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("by_server", [True, False])
def test_nobody_of_another_cluster_is_accepted_on_either_side(
    role: Role,
    by_server: bool,  # noqa: FBT001
) -> None:
    other = "its certificate is of another cluster"
    assert refusal_of(Identity("d", role, "x"), "c", by_server=by_server) == other
    unnamed = refusal_of(Identity("", role, "x"), "c", by_server=True)
    assert unnamed == (other if role is Role.MEMBER else None)  # a member knows its cluster
    assert "names nobody" in str(refusal_of(None, "c", by_server=by_server))
