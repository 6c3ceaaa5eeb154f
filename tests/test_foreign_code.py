"""Whatever an application returns, raises or passes ends no node, and errors say whose it is."""

from __future__ import annotations

import logging
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio
import trio.testing

from ringpop_py import (
    Actor,
    ApplicationError,
    BadOperation,
    Change,
    Config,
    ConfigError,
    Gained,
    Lost,
    RingpopError,
    open_ringpop,
)
from ringpop_py.base.address import Address
from ringpop_py.base.errors import HandlerFailed
from ringpop_py.base.logs import NAME
from ringpop_py.route.proxy.request import Request
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.table.evaluator import VALUE_BYTES_MAX
from ringpop_py.testing import MemoryNetwork
from tests.logged import events_in
from tests.state.keyspaces.memory_clusters import a_cluster, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.placement.definition import Mode
    from ringpop_py.state.shares.rescale_events import RescaleEvent, RescaleListener

    Faulty = Callable[[], object]
    Place = Callable[[Ringpop, Ringpop, Faulty], Awaitable[Exception | None]]

pytestmark = pytest.mark.virtual_time


class _Ends(BaseException):
    pass


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot even say what is wrong")


class _Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit(4)


class _Unpackable:
    pass


def _raises(error: BaseException) -> Faulty:
    def raising() -> object:
        raise error

    return raising


def _cyclic() -> object:
    found: list[object] = []
    found.append(found)
    return found


def _deep() -> object:
    found: list[object] = []
    for _ in range(100_000):
        found = [found]
    return found


def _recursing() -> object:
    return _recursing()


RETURNED: Final[dict[str, Faulty]] = {
    "an object": _Unpackable,
    "a class": lambda: _Unpackable,
    "a set": lambda: {1},
    "a cycle": _cyclic,
    "a deep list": _deep,
    "a huge number": lambda: 1 << 70,
    "a lone surrogate": lambda: "\ud800",
    "a key that is no text": lambda: {1: 2},
}
"""What no place can take for a value."""
RAISED: Final[dict[str, Faulty]] = {
    "an exception": _raises(ValueError("the text of it")),
    "one without a text": _raises(_Mute()),
    "one whose text exits": _raises(_Exits()),
    "a syntax error without a text": _raises(SyntaxError()),
    "one with a text that is not Unicode": _raises(ValueError("\ud800")),
    "one with a huge text": _raises(ValueError("x" * 10_000_000)),
    "a recursion without end": _recursing,
    "an exit": lambda: sys.exit(3),
    "a base exception": _raises(_Ends("the end")),
    "a group of them": _raises(BaseExceptionGroup("many", [_Ends(), ValueError()])),
    "an error of ours": _raises(ConfigError("not of this call")),
    "an error of ours with wrong types": _raises(ApplicationError(5, None)),  # type: ignore[arg-type]
    "an error of ours that is not Unicode": _raises(ApplicationError("\ud800", "\udfff")),
}


@asynccontextmanager
async def _two() -> AsyncIterator[tuple[Ringpop, Ringpop]]:
    network, store = MemoryNetwork(), MemoryStore()
    first, second = Address("10.0.0.1", 3000), Address("10.0.0.2", 3000)
    a = open_ringpop(Config(listen=first, store="memory:"), network=network, store=store)
    async with a as one:
        config = Config(listen=second, hosts=(first,), store="memory:")
        async with open_ringpop(config, network=network, store=store) as other:
            await one.wait_until(lambda node: len(node.members) == 2)
            yield one, other


async def _error_of(called: Awaitable[object]) -> Exception | None:
    try:
        await called
    except Exception as error:  # noqa: BLE001 - it is looked at by the test
        return error
    return None


def _key_of(node: Ringpop) -> str:
    return next(key for number in range(1_000) if node.lookup(key := f"k{number}") == node.name)


async def _handler(owner: Ringpop, caller: Ringpop, faulty: Faulty) -> Exception | None:
    owner.handler("/faulty")(lambda _call: faulty())  # type: ignore[type-var]
    return await _error_of(caller.proxy(_key_of(owner), Request("/faulty")))


async def _async_handler(owner: Ringpop, caller: Ringpop, faulty: Faulty) -> Exception | None:
    async def handle(_call: object) -> Any:  # noqa: ANN401 - whatever it is
        return faulty()

    owner.handler("/faulty")(handle)
    return await _error_of(caller.proxy(_key_of(owner), Request("/faulty")))


async def _handler_here(owner: Ringpop, _caller: Ringpop, faulty: Faulty) -> Exception | None:
    return await _handler(owner, owner, faulty)


async def _body(owner: Ringpop, caller: Ringpop, faulty: Faulty) -> Exception | None:
    owner.handler("/sound")(lambda call: call.body)
    return await _error_of(_asking(caller, _key_of(owner), faulty))


async def _asking(caller: Ringpop, key: str, faulty: Faulty) -> object:
    return await caller.proxy(key, Request("/sound", faulty()))  # type: ignore[arg-type]


async def _aggregation(owner: Ringpop, caller: Ringpop, faulty: Faulty) -> Exception | None:
    for node in (owner, caller):
        node.aggregation("faulty")(lambda _value, _argument: faulty())  # type: ignore[type-var]
    keyspace = await caller.open_keyspace("k", partitions=4)
    return await _error_of(keyspace.update("a", "faulty", 1))


async def _value(owner: Ringpop, caller: Ringpop, faulty: Faulty) -> Exception | None:
    del owner
    keyspace = await caller.open_keyspace("k", partitions=4)

    async def put() -> None:
        await keyspace.put("a", faulty())  # type: ignore[arg-type]

    return await _error_of(put())


async def _values(owner: Ringpop, caller: Ringpop, faulty: Faulty) -> Exception | None:
    del owner
    keyspace = await caller.open_keyspace("k", partitions=4)

    async def put() -> None:
        value: Any = faulty()
        outcomes = await keyspace.update_many([Change(f"k{n}", "put", value) for n in range(9)])
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    return await _error_of(put())


class _Actor(Actor[Any, Any]):
    faulty: Faulty

    async def receive(self, message: object) -> object:
        if message == "state":
            self.state = type(self).faulty()
            return None
        return type(self).faulty()


async def _actor(owner: Ringpop, caller: Ringpop, faulty: Faulty) -> Exception | None:
    kind = type("Acting", (_Actor,), {"faulty": staticmethod(faulty)})
    await (await owner.open_keyspace("k", partitions=4)).get("a")
    (await owner.open_keyspace("k")).actor(kind)
    actors = (await caller.open_keyspace("k")).actor(kind)
    return await _error_of(actors.ask("a", "reply")) or await _error_of(actors.ask("a", "state"))


async def _message(owner: Ringpop, caller: Ringpop, faulty: Faulty) -> Exception | None:
    kind = type("Acting", (_Actor,), {"faulty": staticmethod(lambda: None)})
    (await owner.open_keyspace("k", partitions=4)).actor(kind)
    actors = (await caller.open_keyspace("k")).actor(kind)

    async def ask() -> None:
        await actors.ask("a", faulty())

    return await _error_of(ask())


async def _observer(owner: Ringpop, _caller: Ringpop, faulty: Faulty) -> Exception | None:
    called: list[object] = []

    def observe(effect: object) -> None:
        called.append(effect)
        faulty()

    owner.observe(observe)
    owner.set_labels((("a", "b"),))
    await owner.wait_until(lambda _: bool(called))
    return None


PLACES: Final[dict[str, Place]] = {
    "a handler": _handler,
    "a handler that awaits": _async_handler,
    "a handler here": _handler_here,
    "an aggregation": _aggregation,
    "an actor": _actor,
    "an observer": _observer,
}
PASSED: Final[dict[str, Place]] = {
    "a body": _body,
    "a value": _value,
    "several values": _values,
    "a message": _message,
}


async def _nothing_ended(one: Ringpop, other: Ringpop) -> None:
    for node in (one, other):
        node.handler("/after")(lambda call: call.body)
    for node in (one, other):
        reply = await other.proxy(_key_of(node), Request("/after", b"still here"))
        assert reply.body == b"still here"
    keyspace = await one.open_keyspace("after", partitions=2)
    await keyspace.put("x", 1)
    assert await keyspace.get("x") == 1
    assert [node.application.counts.in_flight for node in (one, other)] == [0, 0]


@pytest.fixture(autouse=True)
def _silent(caplog: pytest.LogCaptureFixture) -> None:
    """What pytest captures is formatted at once, and by PySpark if that was loaded before.

    Both let through what an exception raises that is asked for its text; other handlers do not.
    """
    caplog.set_level(logging.CRITICAL, NAME)


@pytest.mark.parametrize("what", [*RETURNED, *RAISED])
@pytest.mark.parametrize("where", PLACES)
async def test_a_wrong_result_or_an_error_of_an_application_fails_that_call_alone(
    where: str, what: str
) -> None:
    async with _two() as (one, other):
        error = await PLACES[where](one, other, (RETURNED | RAISED)[what])

        if where != "an observer":
            assert isinstance(error, ApplicationError | BadOperation), error
            assert not error.passes
            assert len(str(error)) < 100_000
        if where.startswith("a handler") and what in {"an exception", "an exit", "a set"}:
            assert isinstance(error, HandlerFailed)
            assert f"at {one.name})" in str(error)
        if what == "an exception" and where != "an observer":
            assert "the text of it" in str(error)
        await _nothing_ended(one, other)


@pytest.mark.parametrize("what", RETURNED)
@pytest.mark.parametrize("where", PASSED)
async def test_a_wrong_argument_of_an_application_is_refused_with_an_error_of_ours(
    where: str, what: str
) -> None:
    async with _two() as (one, other):
        error = await PASSED[where](one, other, RETURNED[what])

        assert isinstance(error, RingpopError), error
        assert error.took_effect == "no"
        assert not error.passes
        await _nothing_ended(one, other)


@pytest.mark.parametrize("what", [*RETURNED, *RAISED, "too much for one key"])
async def test_a_merge_rule_that_fails_stops_no_merge_and_the_log_names_it_and_its_keyspace(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, NAME)
    faulty = (RETURNED | RAISED).get(what, lambda: "x" * VALUE_BYTES_MAX)
    store = MemoryStore()
    async with a_cluster({"a": store, "b": store}) as cluster:
        nodes = await cluster.start("a", "b")
        for node in nodes:
            node.keyspaces.merge_rules.register("ours", lambda _older, _newer: faulty())  # type: ignore[arg-type, return-value]
        here, there = [
            await node.open_keyspace("state", mode="memory", partitions=1, merge="ours")
            for node in nodes
        ]
        cluster.cut("a", "b")
        await serving(here, "a")
        await serving(there, "b")
        await here.put("k", "older")
        await trio.sleep(1)
        await there.put("k", "newer")
        await here.put("only here", 1)
        await there.put("only there", 2)

        await cluster.heal()
        await _at_one(here, there)

        for keyspace in (here, there):
            await _holds(keyspace, {"k": "newer", "only here": 1, "only there": 2})
        await _nothing_ended(*nodes)
    told = events_in(caplog, "merge-failed")
    assert told
    for event in told:
        assert event.fields["rule"] == "ours"
        assert event.fields["keyspace"] == "state"
        assert str(event).startswith("keyspace state: its merge rule 'ours' failed, ")
        assert len(str(event)) < 100_000


@pytest.mark.parametrize("mode", ["durable", "memory"])
@pytest.mark.parametrize("what", RAISED)
async def test_a_loop_over_rescale_events_that_fails_or_never_begins_stops_no_other_one(
    what: str, mode: Mode
) -> None:
    store = MemoryStore()
    async with a_cluster({"a": store, "b": store}) as cluster, trio.open_nursery() as nursery:
        (node,) = await cluster.start("a")
        keyspace = await node.open_keyspace("state", mode=mode, partitions=4)
        await keyspace.put("k", 1)
        await serving(keyspace, "a")
        failing, unread, sound = (keyspace.rescale_events() for _ in range(3))
        seen: list[RescaleEvent] = []
        nursery.start_soon(_read, sound, seen)

        with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever it is
            await _fail_in_loop(failing, RAISED[what])
        (other,) = await cluster.start("b")
        await serving(keyspace, "a", "b")
        await _nothing_ended(node, other)
        await cluster.shut_down("b")
        await serving(keyspace, "a")
        await trio.testing.wait_all_tasks_blocked()

        assert [type(event) for event in seen] == [*[Gained] * 4, *[Lost] * 2, *[Gained] * 2]
        with trio.fail_after(60):
            assert [await anext(unread) for _ in seen] == seen
            assert [await anext(failing) for _ in seen[1:]] == seen[1:]
        assert await keyspace.get("k") == 1
        nursery.cancel_scope.cancel()


async def _read(events: RescaleListener, seen: list[RescaleEvent]) -> None:
    while True:
        seen.append(await anext(events))


async def _fail_in_loop(events: RescaleListener, faulty: Faulty) -> None:
    async for _ in events:
        faulty()


async def _at_one(*keyspaces: Keyspace) -> None:
    """Return when all of *keyspaces* know of one owner of each partition, and none moves."""
    tables = [keyspace.table for keyspace in keyspaces]
    with trio.fail_after(60):
        while len({table.digest for table in tables}) > 1 or any(t.moving for t in tables):
            await trio.sleep(0.05)


async def _holds(keyspace: Keyspace, values: dict[str, object]) -> None:
    """Return when *keyspace* has *values*: sides agree on an owner before their rows are merged."""
    with trio.fail_after(60):
        while await keyspace.get_many(list(values)) != values:
            await trio.sleep(0.05)


async def test_a_reply_that_is_too_large_is_refused_at_the_own_key_as_well() -> None:
    async with _two() as (one, other):
        one.handler("/huge")(lambda _call: bytes(1 << 28))
        for caller in (one, other):
            error = await _error_of(caller.proxy(_key_of(one), Request("/huge")))
            assert isinstance(error, HandlerFailed)
            assert "it returned 268435456 bytes, more than" in str(error)


@pytest.mark.parametrize("error", [ValueError("too late"), SystemExit(3), _Ends()])
async def test_a_task_of_a_handler_that_fails_as_its_call_is_cancelled_ends_no_node(
    error: BaseException,
) -> None:
    cleaned_up: list[BaseException] = []

    async def fail_at_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cleaned_up.append(error)
            raise error

    async def handle(_call: object) -> bytes:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_at_end)
            nursery.start_soon(trio.sleep_forever)
        raise AssertionError

    async with _two() as (one, other):
        one.handler("/slow")(handle)
        for number, caller in enumerate((other, one), start=1):
            asked = caller.proxy(_key_of(one), Request("/slow"), deadline_s=1.0, max_retries=0)
            with trio.move_on_after(2):  # a deadline ends no handler at the own key
                assert isinstance(await _error_of(asked), RingpopError)
            with trio.fail_after(10):
                while len(cleaned_up) < number or one.application.counts.in_flight:
                    await trio.sleep(0.1)
        await _nothing_ended(one, other)


async def test_an_observer_that_would_have_to_be_awaited_is_refused() -> None:
    async def observe(_effect: object) -> None: ...

    async with _two() as (one, _):
        with pytest.raises(ConfigError, match="an observer is a plain function"):
            one.observe(observe)  # type: ignore[arg-type]
