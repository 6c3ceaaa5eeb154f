"""Actors asked from outside: by clients of all kinds, of a node on loopback."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import (
    Actor,
    ActorBusy,
    ApplicationError,
    AsyncClient,
    AsyncKeyspaceClient,
    BadOperation,
    ConfigError,
    OperationIdReused,
    PartitionUnavailable,
)
from ringpop_py.base.errors import BadRequest
from ringpop_py.base.values.declared import encode
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.actors import host
from ringpop_py.state.actors.mail import Mail
from ringpop_py.state.messages import ROUTED, TELL
from tests.client.loops import FACES, Step, by
from tests.client.test_keyspace_client import nodes
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ringpop_py.node.ringpop import Ringpop


class Account(Actor[int, int]):
    """Takes what is paid in, or (below zero) out; what is no number is a bug."""

    state = 0

    async def receive(self, message: int) -> int:
        if self.state + message < 0:
            raise ApplicationError("overdrawn", f"there are only {self.state}")
        self.state += message
        return int(self.state)


class Sleeper(Actor[None, None]):
    """Answers when all are woken."""

    woken = trio.Event()

    async def receive(self, message: None) -> None:
        del message
        await Sleeper.woken.wait()


@pytest.fixture(autouse=True)
def _asleep() -> None:
    Sleeper.woken = trio.Event()


@asynccontextmanager
async def a_bank() -> AsyncIterator[Sequence[Ringpop]]:
    async with nodes("a", "b", "c") as found:
        for node in found:
            keyspace = await node.open_keyspace("k", partitions=8)
            keyspace.actor(Account)
            keyspace.actor(Sleeper)
        yield found


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("face", FACES)
async def test_an_actor_answers_a_client_as_it_answers_a_member(face: str, *, direct: bool) -> None:
    steps: list[Step] = [
        ("ask", ("ada", 100), {"operation_id": "payday"}),
        ("ask", ("ada", 100), {"operation_id": "payday"}),
        ("ask", ("ada", 1), {"operation_id": "payday"}),
        ("ask", ("ada", -500), {}),
        ("ask", ("ada", object()), {}),
        ("ask", ("ada", 5), {"timeout_s": 20}),
        ("state_of", ("ada",), {}),
        ("state_of", ("nobody",), {}),
        ("ask", (7, 5), {}),
    ]
    async with a_bank() as (_, b, _c):
        found = await by(face, b.address, steps, direct=direct, actor="Account")

    reused, overdrawn, unfit = (found[place] for place in (2, 3, 4))
    assert [found[place] for place in (0, 1, 5, 6, 7)] == [100, 100, 105, 105, None]
    assert type(reused) is OperationIdReused
    assert repr(overdrawn) == repr(ApplicationError("overdrawn", "there are only 100"))
    assert type(unfit) is BadOperation
    assert type(found[8]) is ConfigError
    assert str(found[8]) == "the key of an actor is text, not int: 7"


@pytest.mark.parametrize("face", FACES)
async def test_what_is_told_arrives_without_an_answer(face: str) -> None:
    tells: list[Step] = [("tell", (f"key {number}", number), {}) for number in range(20)]
    async with a_bank() as (a, b, _):
        assert await by(face, b.address, tells, actor="Account") == [None] * 20
        states: list[Step] = [("state_of", (f"key {number}",), {}) for number in range(1, 20)]
        with trio.fail_after(20):
            while await by("trio", a.address, states, actor="Account") != [*range(1, 20)]:
                await trio.sleep(0.01)


async def test_what_fails_after_it_was_told_is_in_the_log_of_the_daemon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_bank() as (_, b, _c):
        assert await by("trio", b.address, [("tell", ("ada", -1), {})], actor="Account") == [None]
        with trio.fail_after(20):
            while not events_in(caplog, "message-failed"):
                await trio.sleep(0.01)
    (event,) = events_in(caplog, "message-failed")
    assert event.fields["actor"] == "Account/ada"
    assert event.fields["text"] == "overdrawn: there are only 0"


async def test_a_daemon_with_too_many_messages_under_way_takes_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "TELLS_MAX", 2)
    async with nodes("a") as (a,):
        keyspace = await a.open_keyspace("k", partitions=8)
        keyspace.actor(Sleeper)
        async with (
            AsyncClient(a.address) as client,
            AsyncKeyspaceClient(client, "k") as outside,
        ):
            sleepers = outside.actors("Sleeper")
            for key in ("x", "y"):
                await sleepers.tell(key, None)
            with pytest.raises(ActorBusy):
                await sleepers.tell("z", None, timeout_s=0.2)
        Sleeper.woken.set()


async def test_a_class_that_nobody_has_registered_answers_nobody() -> None:
    async with nodes("a") as (a,):
        step = ("ask", ("ada", 1), {"timeout_s": 2.0})
        (found,) = await by("trio", a.address, [step], actor="Account")
    assert isinstance(found, PartitionUnavailable)


async def test_a_message_for_another_partition_than_that_of_the_actor_is_refused() -> None:
    endpoints = ("/keyspace/actor", ROUTED["/keyspace/actor"], TELL)
    async with a_bank() as (a, _b, _c), AsyncClient(a.address) as client:
        keyspace = await a.open_keyspace("k", partitions=8)
        key = next(k for k in map(str, range(99)) if keyspace.partition_of(f"Account/{k}") == 1)
        for endpoint, partition in product(endpoints, (8, 2**62, 0)):
            mail = Mail("k", keyspace.generation, partition, "Account", key, "s", 1, b"\x05")
            with pytest.raises(BadRequest):
                await client.call(Call(NODE_SERVICE, endpoint, b"", encode(mail), ttl_s=5.0))
        assert await keyspace.get(f"Account/{key}") is None


async def test_a_request_that_is_cancelled_leaves_nothing_behind() -> None:
    async with (
        a_bank() as (a, _b, _c),
        AsyncClient(a.address) as client,
        AsyncKeyspaceClient(client, "k") as keyspace,
    ):
        sleepers = keyspace.actors("Sleeper")
        async with trio.open_nursery() as nursery:
            for key in range(24):
                nursery.start_soon(sleepers.ask, f"{key}", None)
            stages = [(await n.open_keyspace("k", partitions=8)).stage for n in (a, _b, _c)]
            with trio.fail_after(20):
                while sum(stage.under_way for stage in stages) < 24:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        await keyspace.put("x", 1)
        assert await keyspace.get("x") == 1
        for line in _lines_of(client, keyspace):
            assert not any((line._pending, line._woken, line._outcomes, line._is_read))
        Sleeper.woken.set()


def _lines_of(client: AsyncClient, keyspace: AsyncKeyspaceClient) -> list[Any]:
    clients = [client, *keyspace.dispatcher._clients.values()]
    return [line for each in clients if (line := each._mine().line) is not None]
