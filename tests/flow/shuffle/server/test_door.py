"""Which connections a process keeps, when there are more than it can have."""

from __future__ import annotations

import pytest

from ringpop_py.flow.shuffle.server import server
from ringpop_py.flow.shuffle.server.server import Door


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Door[str]:
    """A door with as many connections as others than members may have."""
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(server, "RESERVED", 1)
    found: Door[str] = Door()
    assert [found.admit(one, of_member=False) for one in "abc"] == [None] * 3
    return found


def test_the_connection_that_was_idle_for_longest_ends(full: Door[str]) -> None:
    full.note_calls("a", 1)
    full.note_calls("a", -1)

    assert [full.admit(one, of_member=False) for one in "de"] == ["b", "c"]
    assert len(full) == 3


def test_a_connection_with_a_call_at_work_stays(full: Door[str]) -> None:
    for one in "abc":
        full.note_calls(one, 1)

    assert full.admit("d", of_member=False) == "d"  # itself

    full.note_calls("b", -1)
    assert full.admit("e", of_member=False) == "b"


def test_a_reserve_is_for_members(full: Door[str]) -> None:
    assert full.admit("m", of_member=True) is None
    assert full.admit("n", of_member=True) == "a"
    assert full.admit("d", of_member=False) == "b"


def test_a_connection_that_has_ended_takes_no_room(full: Door[str]) -> None:
    full.forget("b")
    full.forget("b")
    full.note_calls("b", -1)  # of a call that ends later

    assert full.admit("d", of_member=False) is None
    assert len(full) == 3
