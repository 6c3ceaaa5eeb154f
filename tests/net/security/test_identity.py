"""Names in certificates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.net.security.identity import (
    ANYBODY,
    MEMBERS,
    PROGRAMS,
    RESTRICTABLE,
    SHUFFLERS,
    Identity,
    Role,
    identity_in,
    parse_identity,
    refusal_of,
)

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1)


@given(st.builds(Identity, TEXTS | st.just(""), st.sampled_from(Role), TEXTS, st.just(())))
def test_a_written_identity_is_read_back(identity: Identity) -> None:
    assert parse_identity(str(identity)) == identity
    assert str(identity).isascii()
    certificate = {"subjectAltName": (("DNS", "x"), ("URI", "http://x"), ("URI", str(identity)))}
    assert identity_in(certificate) == identity


@given(
    st.builds(
        Identity,
        TEXTS | st.just(""),
        st.sampled_from(sorted(RESTRICTABLE)),
        TEXTS,
        st.lists(TEXTS, min_size=1).map(tuple),
    )
)
def test_keyspaces_are_read_back_too_and_older_nodes_know_no_such_role(identity: Identity) -> None:
    assert parse_identity(str(identity)) == identity
    assert str(identity).isascii()
    # These take what stands there for a role, and refuse what they do not know.
    label = str(identity).removeprefix("ringpop://").split("/")[1]
    assert label not in {role.label for role in Role}


def test_a_keyspace_is_named_or_begins_so() -> None:
    some = Identity("c", Role.CLIENT, "x", ("orders", "carts/*"))
    assert [
        name for name in ("orders", "orders/1", "carts/", "carts/a", "carts") if some.has(name)
    ] == ["orders", "carts/", "carts/a"]
    assert Identity("c", Role.CLIENT, "x").has("anything")


@pytest.mark.parametrize(
    "text",
    [
        "ringpop://",
        "ringpop://c",
        "ringpop://c/member",
        "ringpop://c/member/",
        "ringpop://c/owner/x",
        "ringpop://c/member/x/y",
        "ringpop://c/client+keyspaces/x",
        "ringpop://c/client/x?keyspaces=a",
        "ringpop://c/client+keyspaces/x?keyspaces=",
        "ringpop://c/client+keyspaces/x?keyspaces=a,,b",
        "ringpop://c/client+keyspaces/x?keyspaces=a/b",
        "ringpop://c/client+keyspaces/?keyspaces=a",
        "ringpop://c/admin+keyspaces/x?keyspaces=a",
        "ringpop://c/member+keyspaces/x?keyspaces=a",
    ],
)
def test_anything_else_names_nobody(text: str) -> None:
    assert parse_identity(text) is None
    assert identity_in({"subjectAltName": (("URI", text),)}) is None


def test_a_caller_that_shows_no_certificate_has_no_identity() -> None:
    assert identity_in(None) is None
    assert identity_in({}) is None


def test_each_role_may_call_what_those_before_it_may() -> None:
    assert Role.SHUFFLES < Role.READER < Role.CLIENT < Role.ADMIN < Role.MEMBER


@pytest.mark.parametrize("role", Role)
def test_any_role_may_call_and_only_who_is_wanted_may_answer(role: Role) -> None:
    identity = Identity("c", role, "x")

    assert refusal_of(identity, "c", ANYBODY) is None
    for roles, wanted in (
        (MEMBERS, "member"),
        (SHUFFLERS, "shuffles or member"),
        (PROGRAMS, "reader or client or admin or member"),
    ):
        refused = None if role in roles else f"its role is {role.label}, not {wanted}"
        assert refusal_of(identity, "c", roles) == refused


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("roles", [ANYBODY, MEMBERS, SHUFFLERS])
def test_nobody_of_another_cluster_is_accepted_on_either_side(
    role: Role, roles: frozenset[Role]
) -> None:
    other = "its certificate is of another cluster"
    assert refusal_of(Identity("d", role, "x"), "c", roles) == other
    unnamed = refusal_of(Identity("", role, "x"), "c", ANYBODY)
    assert unnamed == (other if role in SHUFFLERS else None)  # these know their cluster
    assert "names nobody" in str(refusal_of(None, "c", roles))
