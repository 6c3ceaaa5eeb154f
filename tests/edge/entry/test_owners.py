"""The ring of the daemon, while it is there and while it is not."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import BodyError
from ringpop_py.edge.entry import owners
from ringpop_py.edge.entry.owners import Follower
from tests.edge.entry.daemons import AWAY, LONG_S, ME, OTHER, Daemon, key_of, until
from tests.logged import events_in

AGAIN_S = 0.01


def followed(daemon: Daemon) -> Follower:
    follower = Follower(None, "all is lost")
    follower._client = daemon  # type: ignore[assignment]
    return follower


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "RETRY_S", AGAIN_S)


@pytest.mark.parametrize("error", [AWAY, BodyError("nonsense"), RuntimeError("a bug")], ids=repr)
def test_ring_and_mark_are_in_force_while_the_daemon_answers_and_no_longer(
    error: Exception,
) -> None:
    daemon = Daemon()
    follower = followed(daemon)
    assert follower.wait(LONG_S) is None  # it is told at once that there is none
    daemon.tell("first")
    until(lambda: follower.ring)
    ring = follower.wait(0)
    assert ring is not None
    assert [ring.is_here(key_of(name)) for name in (ME, OTHER)] == [True, False]
    assert follower.knows_mark("first")

    daemon.fail(error)
    until(lambda: follower.ring is None)
    assert follower.wait(0) is None
    if not isinstance(error, RuntimeError):
        assert not follower.knows_mark("first")

    daemon.tell("second")
    until(lambda: follower.ring)
    assert not follower.knows_mark("first")
    assert follower.knows_mark("second")


def test_the_log_says_when_keys_have_no_owner_and_when_they_have_one_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    daemon = Daemon()
    daemon.tell("first")
    follower = followed(daemon)
    assert follower.wait(LONG_S) is not None
    for _ in range(2):
        asked_before = daemon.calls_count
        daemon.fail()
        until(lambda: daemon.calls_count > asked_before + 3)  # noqa: B023
        daemon.tell("second")
        until(lambda: follower.ring)

    until(lambda: len(events_in(caplog)) >= 4)
    events = events_in(caplog)
    assert [event.name for event in events] == ["ring-not-followed", "ring-followed"] * 2
    assert "no key has an owner for now, and all is lost" in str(events[0])
    assert "keys have owners again" in str(events[1])


def test_a_mark_that_is_not_known_is_asked_for() -> None:
    """A daemon that was restarted just now has another mark, and its follower may not know it."""
    daemon = Daemon()
    daemon.tell("mark")
    follower = followed(daemon)

    assert follower.ring is None
    assert follower.knows_mark("mark")
    assert not follower.knows_mark("another")


def test_a_new_mark_of_the_same_ring_is_followed() -> None:
    daemon = Daemon()
    daemon.tell("first")
    follower = followed(daemon)
    ring = follower.wait(LONG_S)
    assert ring is not None

    daemon.tell("second")

    until(lambda: follower.ring is not ring)
    assert follower.ring is not None
    assert follower.ring.mark == "second"
