"""Actors at their owner, in every kind of keyspace: the state they begin with, and ids again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import pytest

from ringpop_py import ApplicationError
from ringpop_py.base.errors import ConfigError, OperationIdReused, OperationTooOld
from ringpop_py.state.actors.actors import Actor
from ringpop_py.state.actors.mailboxes import REPLIES_MAX
from tests.state.keyspaces.kinds import KINDS, a_keyspace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.state.keyspaces.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time


@pytest.fixture(params=KINDS)
async def keyspace(request: pytest.FixtureRequest) -> AsyncIterator[Keyspace]:
    async with a_keyspace(request.param) as found:
        yield found


class Tallies(TypedDict):
    n: int
    seen: list[str]
    of: dict[str, list[int]]


class Tally(Actor[str, Tallies]):
    """Changes a map, a list, and a list in a map, each in its place."""

    state: Tallies = {"n": 0, "seen": [], "of": {"x": []}}  # noqa: RUF012 - what is tested

    async def receive(self, message: str) -> Tallies:
        self.state["n"] += 1
        self.state["seen"].append(message)
        self.state["of"]["x"].append(1)
        if message == "fail":
            raise ApplicationError("failed", "after the state was changed")
        return self.state


ONCE: Tallies = {"n": 1, "seen": ["hello"], "of": {"x": [1]}}


async def test_an_actor_sees_nothing_of_what_others_made_of_a_default(keyspace: Keyspace) -> None:
    tallies = keyspace.actor(Tally)
    await tallies.ask("first", "hello")
    await tallies.ask("first", "again")

    assert await tallies.ask("second", "hello") == ONCE
    assert await tallies.state_of("second") == ONCE
    assert Tally.state == {"n": 0, "seen": [], "of": {"x": []}}


async def test_a_first_message_that_fails_leaves_no_trace(keyspace: Keyspace) -> None:
    tallies = keyspace.actor(Tally)
    for _ in range(2):
        with pytest.raises(ApplicationError, match="after the state was changed"):
            await tallies.ask("k", "fail")

    assert await tallies.ask("k", "hello") == ONCE
    assert await tallies.ask("other", "hello") == ONCE


class Stack(Actor[int, list[int]]):
    """A list by itself; *bottom* is the same object for all that are made."""

    def __init__(self, bottom: list[int]) -> None:
        self.state = bottom

    async def receive(self, message: int) -> list[int]:
        if message:
            self.state.append(message)
        return list(self.state)


async def test_a_default_of_the_constructor_is_copied_as_well(keyspace: Keyspace) -> None:
    bottom = [0]
    stacks = keyspace.actor(partial(Stack, bottom), name="Stack")
    assert await stacks.ask("k", 0) == [0]

    assert await stacks.ask("k", 1) == [0, 1]
    assert await stacks.ask("k", 2) == [0, 1, 2]
    assert await stacks.ask("other", 3) == [0, 3]
    assert bottom == [0]


@pytest.mark.parametrize(
    ("default", "why"),
    [
        ({"seen": {1}}, "a set cannot be stored"),
        ({1: "one"}, "the keys of a map are text"),
        ([1 << 70], "cannot be stored: OverflowError"),
    ],
)
async def test_a_default_that_cannot_be_stored_is_refused_when_the_class_is_registered(
    default: Any,  # noqa: ANN401 - what no type would let through
    why: str,
) -> None:
    class Wrong(Actor[int, int]):
        state = default

        async def receive(self, message: int) -> int:
            return message

    async with a_keyspace("local") as keyspace:
        with pytest.raises(ConfigError, match=f"class of actors 'Wrong'.*{why}"):
            keyspace.actor(Wrong)
        with pytest.raises(ConfigError, match=why):
            keyspace.actor(partial(Stack, default), name="Wrong")
        Wrong.state = 0
        keyspace.actor(Wrong)  # a refused registration leaves nothing behind


class Meter(Actor[int, int]):
    state = 0

    async def receive(self, message: int) -> int:
        self.state += message
        return int(self.state)


async def test_an_id_used_again_for_another_message_is_an_error(keyspace: Keyspace) -> None:
    meters = keyspace.actor(Meter)
    assert await meters.ask("k", 5, operation_id="order 7") == 5

    with pytest.raises(OperationIdReused, match=r"'order 7'.* another message to actor 'Meter/k'"):
        await meters.ask("k", 6, operation_id="order 7")

    assert await meters.ask("k", 5, operation_id="order 7") == 5
    assert await meters.state_of("k") == 5


async def test_an_id_used_again_for_another_actor_of_the_partition_is_an_error(
    keyspace: Keyspace,
) -> None:
    meters = keyspace.actor(Meter)
    await meters.ask("k", 5, operation_id="order 7")

    with pytest.raises(OperationIdReused, match="'order 7'"):
        await meters.ask("other", 5, operation_id="order 7")

    assert await meters.state_of("other") is None
    assert await meters.ask("other", 5) == 5


async def test_an_id_whose_reply_was_forgotten_is_compared_all_the_same(keyspace: Keyspace) -> None:
    meters = keyspace.actor(Meter)
    await meters.ask("k", 5, operation_id="order 7")
    for _ in range(REPLIES_MAX):
        await meters.ask("k", 1)

    with pytest.raises(OperationIdReused):
        await meters.ask("k", 6, operation_id="order 7")
    with pytest.raises(OperationTooOld):
        await meters.ask("k", 5, operation_id="order 7")

    assert await meters.state_of("k") == 5 + REPLIES_MAX
