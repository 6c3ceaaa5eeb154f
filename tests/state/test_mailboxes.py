"""The state that an actor begins with is its own, in every kind of keyspace."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import pytest

from ringpop_py import ApplicationError
from ringpop_py.errors import ConfigError
from ringpop_py.state.actors import Actor
from ringpop_py.state.local import open_local_keyspaces
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.clusters import a_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.state.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def a_keyspace(kind: str) -> AsyncIterator[Keyspace]:
    if kind.startswith("local"):
        store = MemoryStore() if kind == "local with a store" else None
        async with open_local_keyspaces(store) as local:
            yield await local.open_keyspace("tallies", partitions=1)
    else:
        async with a_cluster() as cluster:
            node = await cluster.start("a")
            mode: Any = kind
            yield await node.open_keyspace("tallies", partitions=1, mode=mode)


@pytest.fixture(params=["durable", "memory", "local", "local with a store"])
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
