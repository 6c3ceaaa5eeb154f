"""Actors on clusters in one process, in virtual time, on a store in memory."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import pytest
import trio

from ringpop_py import ApplicationError
from ringpop_py.base.errors import (
    BadOperation,
    ConfigError,
    KeyspaceError,
    OutcomeUnknown,
    PartitionUnavailable,
    StateDamaged,
)
from ringpop_py.state.actors.actors import Actor, Actors
from ringpop_py.state.actors.mailboxes import FINISH_US_MAX
from tests.state.keyspaces.clusters import Cluster, a_cluster, all_online

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace


pytestmark = pytest.mark.virtual_time


class Account(Actor[int, int]):
    """Takes what is paid in, or (below zero) out; zero only asks."""

    state = 0

    async def receive(self, message: int) -> int:
        if self.state + message < 0:
            self.state = -1
            raise ApplicationError("overdrawn", f"there are only {message}")
        self.state += message
        return int(self.state)


class Slow(Actor[float, list[float]]):
    """Takes as long as it is told; keeps when each message began and ended."""

    async def receive(self, message: float) -> list[float]:
        began_at = trio.current_time()
        await trio.sleep(message)
        self.state = [*(self.state or []), [began_at, trio.current_time()]]
        return list(self.state[-1])


async def accounts_at(node: Ringpop) -> Actors[int, int]:
    keyspace = await node.open_keyspace("bank", partitions=16)
    return keyspace.actor(Account)


async def two_nodes(cluster: Cluster) -> tuple[Actors[int, int], Actors[int, int], Keyspace]:
    a, b = await cluster.start("a"), await cluster.start("b")
    here, there = await accounts_at(a), await accounts_at(b)
    keyspace = await a.open_keyspace("bank")
    await all_online(keyspace, "a", "b")
    return here, there, keyspace


def actor_at(actors: Actors[Any, Any], owner: str) -> str:
    return next(key for n in range(1_000) if actors.owner_of(key := f"k{n}") == owner)


async def test_an_actor_is_one_and_the_same_from_any_node() -> None:
    async with a_cluster() as cluster:
        here, there, _ = await two_nodes(cluster)
        for key in (actor_at(here, "a"), actor_at(here, "b")):
            await here.ask(key, 5)

            assert await there.ask(key, 2) == 7
            assert await here.state_of(key) == 7


async def test_messages_are_handled_one_at_a_time_in_their_order() -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("slow", partitions=4)
        slow = keyspace.actor(Slow)
        spans: list[list[float]] = []

        async def ask() -> None:
            spans.append(await slow.ask("k", 1.0))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)

        assert all(before[1] <= after[0] for before, after in pairwise(spans))
        assert len(spans) == 3


async def test_actors_do_not_wait_for_each_other() -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("slow", partitions=4)
        slow = keyspace.actor(Slow)
        began_at = trio.current_time()

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(slow.ask, f"k{number}", 1.0)

        assert trio.current_time() - began_at < 2


async def test_nothing_is_lost_or_doubled_while_partitions_move_to_and_fro() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        here = await accounts_at(a)
        keyspace = await a.open_keyspace("bank")
        done = False
        asked: dict[str, int] = {f"k{n}": 0 for n in range(8)}

        async def load(key: str) -> None:
            while not done:
                assert await here.ask(key, 1) == asked[key] + 1
                asked[key] += 1
                await trio.sleep(0.02)

        async with trio.open_nursery() as nursery:
            for key in asked:
                nursery.start_soon(load, key)
            for name in ("b", "c", "d"):
                async with cluster.for_a_while(name) as node:
                    await accounts_at(node)
                    await all_online(keyspace, "a", name)
                    await trio.sleep(0.5)
                await all_online(keyspace, "a")
            done = True

        assert {key: await here.state_of(key) for key in asked} == asked
        assert min(asked.values()) > 20


async def test_an_actor_goes_on_elsewhere_when_its_node_is_cut_off() -> None:
    async with a_cluster() as cluster:
        here, there, _ = await two_nodes(cluster)
        key = actor_at(here, "b")
        await here.ask(key, 5)
        cluster.isolate("b")

        assert await here.ask(key, 2, timeout_s=60) == 7
        with pytest.raises(KeyspaceError):
            await there.ask(key, 0, timeout_s=1)  # it has the actor in memory, as it was
        assert await here.ask(key, 0) == 7


async def test_a_message_with_the_id_of_another_gets_its_reply_and_changes_nothing() -> None:
    async with a_cluster() as cluster:
        here, there, _ = await two_nodes(cluster)
        await here.ask("k", 5, operation_id="once")
        await here.ask("k", 10)

        assert await there.ask("k", 5, operation_id="once") == 5
        assert await here.state_of("k") == 15


async def test_an_error_of_an_actor_reaches_its_caller_and_leaves_the_state() -> None:
    async with a_cluster() as cluster:
        here, _, _ = await two_nodes(cluster)
        key = actor_at(here, "b")
        await here.ask(key, 5)

        with pytest.raises(ApplicationError, match="overdrawn: there are only -6"):
            await here.ask(key, -6)
        assert await here.ask(key, 0) == 5


class Faulty(Actor[str, object]):
    """Fails in as many ways as it is told of."""

    state: Any = 1

    async def receive(self, message: str) -> object:
        if message == "raise":
            self.state = 2
            raise KeyError(message)
        if message == "state":
            self.state = {1, 2}
        return {1, 2} if message == "reply" else self.state


async def test_a_bug_in_an_actor_is_told_by_its_name_and_leaves_the_state() -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("faults", partitions=4)
        faulty = keyspace.actor(Faulty)

        with pytest.raises(ApplicationError, match="KeyError: 'raise'"):
            await faulty.ask("k", "raise")
        assert await faulty.ask("k", "") == 1


@pytest.mark.parametrize("wrong", ["state", "reply"])
async def test_what_cannot_be_stored_is_refused_and_leaves_the_state(wrong: str) -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("faults", partitions=4)
        faulty = keyspace.actor(Faulty)

        text = f"the {wrong} of the actor Faulty/k is not a value: a set cannot be stored"
        with pytest.raises(BadOperation, match=text):
            await faulty.ask("k", wrong)
        assert await faulty.ask("k", "") == 1


class Given(Account):
    def __init__(self, start: int) -> None:
        self.state = start


class Plain(Actor[int, int]):
    def receive(self, message: int) -> int:  # type: ignore[override]
        return message


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (Given, r"it cannot be made without arguments: TypeError: .*; pass a functools\.partial"),
        (object, "is not derived from ringpop_py.Actor"),
        (5, "is a function, not int: 5"),
    ],
)
async def test_what_makes_no_actors_is_refused_when_it_is_registered(made: Any, text: str) -> None:  # noqa: ANN401
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("wrong", partitions=4)

        with pytest.raises(ConfigError, match=f"class of actors 'wrong'.*{text}"):
            keyspace.actor(made, name="wrong")


async def test_an_actor_whose_receive_is_no_coroutine_is_told_so() -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("wrong", partitions=4)

        with pytest.raises(ApplicationError, match="receive of Plain is not `async def`"):
            await keyspace.actor(Plain).ask("k", 1)


@pytest.mark.parametrize("key", [None, 5, b"5"])
async def test_the_key_of_an_actor_is_text(key: Any) -> None:  # noqa: ANN401
    async with a_cluster() as cluster:
        accounts = await accounts_at(await cluster.start("a"))

        with pytest.raises(ConfigError, match="the key of an actor is text, not"):
            await accounts.ask(key, 1)
        with pytest.raises(ConfigError, match="the key of an actor is text, not"):
            await accounts.state_of(key)


@pytest.mark.parametrize("message", [{1}, 1 << 70, "\ud800"])
async def test_a_message_that_is_no_value_is_refused_before_it_is_sent(message: Any) -> None:  # noqa: ANN401
    async with a_cluster() as cluster:
        faulty = (await (await cluster.start("a")).open_keyspace("faults", partitions=4)).actor(
            Faulty
        )

        with pytest.raises(BadOperation, match="cannot be stored"):
            await faulty.ask("k", message)


async def test_a_message_that_changes_nothing_costs_no_write() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        here = await accounts_at(a)
        await here.ask("k", 5)
        slots_before = len(cluster.store.list(""))

        await here.ask("k", 0)

        assert len(cluster.store.list("")) == slots_before


async def test_idle_actors_leave_memory_and_come_back_with_their_state() -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("bank", partitions=4)
        accounts = keyspace.actor(Account, actors_max=2)
        for key in ("one", "two", "one", "three"):
            await accounts.ask(key, 1)

        assert accounts.in_memory() == ["one", "three"]
        assert await accounts.ask("two", 1) == 2


async def test_two_classes_in_one_keyspace_do_not_clash() -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("bank", partitions=4)
        cents, euros = keyspace.actor(Account), keyspace.actor(Account, name="Euros")

        await cents.ask("k", 5)

        assert await euros.ask("k", 1) == 1
        with pytest.raises(ConfigError, match="'Account' is registered already"):
            keyspace.actor(Account)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 101, "\n"])
async def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("bank", partitions=4)

        with pytest.raises(ConfigError, match="no slash"):
            keyspace.actor(Account, name=name)


class Customer(Actor[int, int]):
    """Pays into an account of the same name, and reports to itself."""

    state = 0

    def __init__(self, accounts: Actors[int, int]) -> None:
        self.accounts = accounts

    async def receive(self, message: int) -> int:
        self.state += 1
        return await self.accounts.ask(self.key, message)


async def test_actors_ask_others() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        accounts = await accounts_at(a)
        keyspace = await a.open_keyspace("bank")
        customers = keyspace.actor(partial(Customer, accounts), name="Customer")

        assert await customers.ask("alice", 5) == 5
        assert await accounts.state_of("alice") == 5


async def test_what_is_told_arrives() -> None:
    async with a_cluster() as cluster:
        here, there, _ = await two_nodes(cluster)
        key = actor_at(here, "b")

        await here.tell(key, 5)
        await trio.sleep(1)

        assert await there.state_of(key) == 5


async def test_a_message_waits_for_a_node_that_has_not_registered_the_class_yet() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        here = await accounts_at(a)
        await all_online(await a.open_keyspace("bank"), "a", "b")
        key = actor_at(here, "b")
        with pytest.raises((PartitionUnavailable, OutcomeUnknown)):
            await here.ask(key, 1, timeout_s=1)

        await accounts_at(b)

        assert await here.ask(key, 1) == 1


async def test_a_record_that_is_none_is_not_taken_for_a_state() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        here = await accounts_at(a)
        await (await a.open_keyspace("bank")).put("Account/k", 5)

        with pytest.raises(StateDamaged, match="something other"):
            await here.ask("k", 1)


async def test_actors_live_in_memory_mode_too() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("carts", partitions=16, mode="memory")
        here = keyspace.actor(Account)
        for number in range(30):
            await here.ask(f"k{number}", number, operation_id=f"first {number}")

        b = await cluster.start("b")
        there = (await b.open_keyspace("carts", partitions=16, mode="memory")).actor(Account)
        await all_online(keyspace, "a", "b")
        first = [await there.ask(f"k{n}", n, operation_id=f"first {n}") for n in range(30)]
        second = [await there.ask(f"k{n}", 1) for n in range(30)]

        assert first == list(range(30))
        assert second == [n + 1 for n in range(30)]


async def test_a_partition_leaves_in_spite_of_an_actor_that_does_not_finish() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("slow", partitions=4)
        here = keyspace.actor(Slow)
        (await b.open_keyspace("slow")).actor(Slow)
        await all_online(keyspace, "a", "b")
        key = actor_at(here, "b")
        answers: list[list[float]] = []

        async def ask() -> None:
            answers.append(await here.ask(key, 20.0, timeout_s=60.0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(1)
            b.drain()
            with trio.fail_after(FINISH_US_MAX / 1e6 + 1):
                await all_online(keyspace, "a")

        assert len(answers) == 1
        assert await here.state_of(key) == answers


class Caller(Actor[list[str], str]):
    """Asks the next of the actors in a message, with the rest of it."""

    async def receive(self, message: list[str]) -> str:
        return await self.actors.ask(message[0], message[1:]) if message else "the last"


class Late(Actor[str, str]):
    """Asks the actor that a message names, a while after it has begun."""

    async def receive(self, message: str) -> str:
        await trio.sleep(1)
        return await self.actors.ask(message, "") if message else "the last"


async def test_two_messages_that_would_wait_for_each_other_are_told_so() -> None:
    """Neither of the two was begun for the sake of the other."""
    async with a_cluster() as cluster:
        nodes = [await cluster.start("m"), await cluster.start("n")]
        late, *_ = [
            (await node.open_keyspace("calls", partitions=16)).actor(Late) for node in nodes
        ]
        told: list[str] = []

        async def ask(key: str, other: str, after_s: float) -> None:
            await trio.sleep(after_s)
            try:
                told.append(await late.ask(key, other))
            except ApplicationError as error:
                told.append(str(error))

        began_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "a", "b", 0.0)
            nursery.start_soon(ask, "b", "a", 0.5)

        circle = "calls/Late/a asks calls/Late/b asks calls/Late/a"
        assert [text for text in told if text != "the last"] != []
        assert any(f"actors would wait for each other: {circle}" in text for text in told), told
        assert "the last" in told, "the other one goes on"
        assert trio.current_time() - began_at < 5


@pytest.mark.parametrize("chain", [["a"], ["b", "a"], ["b", "c", "b"]], ids=" ".join)
async def test_actors_that_would_wait_for_each_other_are_told_so(chain: list[str]) -> None:
    async with a_cluster() as cluster:
        nodes = [await cluster.start("m"), await cluster.start("n")]
        callers, *_ = [
            (await node.open_keyspace("calls", partitions=16)).actor(Caller) for node in nodes
        ]
        assert await callers.ask("a", ["b", "c"]) == "the last"
        began_at = trio.current_time()

        with pytest.raises(ApplicationError) as refused:
            await callers.ask("a", chain)

        circle = ["a", *chain][["a", *chain].index(chain[-1]) :]
        told = " asks ".join(f"calls/Caller/{key}" for key in circle)
        assert f"actors would wait for each other: {told}" in str(refused.value)
        assert trio.current_time() - began_at < 2
        assert await callers.ask("a", ["b", "c"]) == "the last"


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_a_scan_does_not_show_the_records_of_actors(
    mode: Literal["durable", "memory"],
) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("bank", partitions=4, mode=mode)
        accounts = keyspace.actor(Account)
        for n in range(20):
            await accounts.ask(f"k{n}", 1)
        await keyspace.put("Account of mine", {"version": 1})
        await keyspace.put("Z", 1)

        rows = [row async for row in keyspace.scan(limit=2)]

        assert rows == [("Account of mine", {"version": 1}), ("Z", 1)]
        assert await accounts.state_of("k1") == 1
