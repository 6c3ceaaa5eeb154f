"""Reminders of actors on clusters in one process, in virtual time."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio

from ringpop_py import ApplicationError, Reminder
from ringpop_py.base.errors import BadOperation, ConfigError
from ringpop_py.state.actors.actors import Actor, Actors
from ringpop_py.state.actors.reminders import WAKING_MAX
from tests.state.actors.test_actors import actor_at
from tests.state.keyspaces.clusters import a_cluster, all_online
from tests.state.keyspaces.kinds import a_keyspace

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace

pytestmark = pytest.mark.virtual_time


@pytest.fixture(autouse=True)
def _wall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000 + trio.current_time())


def wrong_s(off_s: float) -> float:
    return time.time() + off_s


class Cart(Actor[Any, Any]):
    """Does what a message says with reminders; its state lists when each one came."""

    state: list[Any] = []  # noqa: RUF012 - each actor has a copy

    async def receive(self, message: dict[str, Any]) -> object:
        if "cancel" in message:
            return self.cancel_reminder(message["cancel"])
        if "remind" in message:
            self.remind(message.pop("remind"), message=message.pop("say", None), **message)
        return self.state

    async def on_reminder(self, reminder: Reminder) -> None:
        self.state.append([reminder.name, round(trio.current_time(), 3), reminder.message])


async def carts_at(node: Ringpop) -> tuple[Actors[Any, Any], Keyspace]:
    keyspace = await node.open_keyspace("carts", partitions=8)
    return keyspace.actor(Cart), keyspace


async def saved(carts: Actors[Any, Any], key: str) -> list[Any]:
    return cast("list[Any]", await carts.state_of(key))


@pytest.mark.parametrize("kind", ["durable", "local", "local with a store"])
async def test_a_reminder_comes_once_and_is_over(kind: str) -> None:
    async with a_keyspace(kind) as keyspace:
        carts = keyspace.actor(Cart)
        began = trio.current_time()
        await carts.ask("ada", {"remind": "abandon", "in_s": 30, "say": {"n": 1}})
        await trio.sleep(29.9)
        assert await saved(carts, "ada") == []
        assert await keyspace.ttl("Cart/ada") is None
        assert [key async for key, _ in keyspace.scan()] == []
        await trio.sleep(1.2)
        ((name, at, message),) = await carts.ask("ada", {})
        assert (name, message) == ("abandon", {"n": 1})
        assert 30 <= at - began <= 31.1
        await trio.sleep(100)
        assert len(await carts.ask("ada", {})) == 1
        assert await carts.ask("ada", {"cancel": "abandon"}) is False
        assert [key async for key, _ in keyspace.scan()] == []


async def test_reminders_that_repeat_come_on_their_grid_and_once_after_an_outage() -> None:
    async with a_keyspace("durable") as keyspace:
        carts = keyspace.actor(Cart)
        began = trio.current_time()
        await carts.ask("ada", {"remind": "tick", "every_s": 10})
        await trio.sleep(35)
        came = [at - began for _, at, _ in await carts.ask("ada", {})]
        assert [round(at, -1) for at in came] == [10, 20, 30]
        assert await carts.ask("ada", {"cancel": "tick"}) is True
        await trio.sleep(100)
        assert len(await carts.ask("ada", {})) == 3


async def test_a_reminder_of_the_same_name_replaces_and_one_of_the_past_comes_soon() -> None:
    async with a_keyspace("durable") as keyspace:
        carts = keyspace.actor(Cart)
        await carts.ask("ada", {"remind": "x", "in_s": 5, "say": "first"})
        await carts.ask("ada", {"remind": "x", "in_s": 20, "say": "second"})
        await carts.ask("ada", {"remind": "y", "at": 1_700_000_000.5})
        await carts.ask("ada", {"remind": "z", "in_s": 0})
        await trio.sleep(30)
        found = await carts.ask("ada", {})
        said = [(name, message) for name, _, message in found]
        assert said == [("y", None), ("z", None), ("x", "second")]


async def test_a_move_takes_the_reminder_along() -> None:
    async with a_cluster() as cluster:
        carts, keyspace = await carts_at(await cluster.start("a"))
        await carts_at(await cluster.start("b"))
        await all_online(keyspace, "a", "b")
        keys = [actor_at(carts, name) for name in "ab"]
        for key in keys:
            await carts.ask(key, {"remind": "x", "in_s": 60})
        async with cluster.for_a_while("c") as c:
            await carts_at(c)
            await all_online(keyspace, *"abc")
        await cluster.stop("b")
        await all_online(keyspace, "a")
        await trio.sleep(62)
        assert [len(await saved(carts, key)) for key in keys] == [1, 1]


async def test_an_instant_at_which_nothing_ran_is_made_up_for_once() -> None:
    async with a_cluster() as cluster:
        carts, _ = await carts_at(await cluster.start("a"))
        await carts.ask("ada", {"remind": "once", "in_s": 10})
        await carts.ask("ada", {"remind": "tick", "every_s": 10})
        await cluster.stop("a")
        await trio.sleep(1_000)
        carts, keyspace = await carts_at(await cluster.start("a"))
        await all_online(keyspace, "a")
        await trio.sleep(2)
        found = [name for name, _, _ in await saved(carts, "ada")]
        assert sorted(found) == ["once", "tick"]


class Slow(Actor[str, int]):
    """Notes each turn that begins with a reminder, in *begun* for all; the first takes long."""

    state = 0
    begun: list[str] = []  # noqa: RUF012 - shared on purpose

    async def receive(self, message: str) -> int:
        if message:
            self.remind(message, in_s=10)
        return int(self.state)

    async def on_reminder(self, reminder: Reminder) -> None:
        Slow.begun.append(reminder.name)
        if len(Slow.begun) == 1:
            await trio.sleep(30)
        self.state += 1


async def test_an_owner_that_is_gone_between_turn_and_entry_leaves_it_to_the_next() -> None:
    Slow.begun.clear()
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("slow", partitions=8)
        here = keyspace.actor(Slow)
        (await b.open_keyspace("slow")).actor(Slow)
        await all_online(keyspace, "a", "b")
        key = actor_at(here, "b")
        await here.ask(key, "x")
        while not Slow.begun:
            await trio.sleep(0.01)
        cluster.isolate(
            "b"
        )  # the turn goes on there, and its entry comes too late, or just in time
        await trio.sleep(60)
        assert await here.ask(key, "") == 1
        assert len(Slow.begun) > 1
        await trio.sleep(60)
        assert await here.state_of(key) == 1


class Rude(Actor[str, int]):
    """Fails until it has been told so often."""

    state = 0
    fails = 0

    async def receive(self, message: str) -> int:
        if message:
            self.remind("a fails", in_s=1)
            self.remind("b", in_s=1)
        if message == "fail":
            raise ApplicationError("boom", "after it has armed something")
        return int(self.state)

    async def on_reminder(self, reminder: Reminder) -> None:
        self.state += 1
        self.cancel_reminder("b again")
        if reminder.name == "b":
            self.remind("b again", in_s=5)
        elif reminder.name == "a fails":
            Rude.fails += 1
            raise ApplicationError("boom", "as always")


async def test_a_turn_that_fails_arms_nothing_and_keeps_others_waiting_for_nothing() -> None:
    Rude.fails = 0
    async with a_keyspace("durable") as keyspace:
        rude = keyspace.actor(Rude)
        with pytest.raises(ApplicationError, match="armed"):
            await rude.ask("k", "fail")
        await trio.sleep(5)
        assert (await rude.ask("k", ""), Rude.fails) == (0, 0)
        await rude.ask("k", "go")
        await trio.sleep(3)
        assert (await rude.ask("k", ""), Rude.fails >= 1) == (1, True)
        await trio.sleep(200)
        assert await rude.ask("k", "") == 2
        assert 6 <= Rude.fails <= 16  # ever more rarely
        stage = keyspace.stage
        assert stage.reminders == {"done": 2, "failed": Rude.fails}
        assert stage.reminders_overdue_s() > 150


async def test_what_cannot_be_is_refused_with_a_reason() -> None:
    async with a_keyspace("memory") as keyspace:
        with pytest.raises(ConfigError, match="open keyspace 'counts' with mode='durable'"):
            keyspace.actor(Cart)
    async with a_keyspace("durable") as keyspace:
        carts = keyspace.actor(Cart)
        for message, why in [
            ({"remind": "x"}, "Give in_s, at or every_s"),
            ({"remind": "x", "in_s": -1}, "in_s is 0 or more seconds"),
            ({"remind": "x", "in_s": 1, "at": 5}, "exclude each other"),
            ({"remind": "x", "every_s": 0.5}, "1 or more seconds"),
            ({"remind": "x", "at": "noon"}, "at is seconds since 1970"),
            ({"remind": "", "in_s": 1}, "1 to 256 characters"),
            ({"remind": "x" * 257, "in_s": 1}, "1 to 256 characters"),
            ({"remind": 5, "in_s": 1}, "is text"),
        ]:
            with pytest.raises(ApplicationError, match=why):
                await carts.ask("ada", message)
        for number in range(64):
            await carts.ask("ada", {"remind": f"r{number}", "in_s": 900})
        await carts.ask("ada", {"remind": "r0", "in_s": 800})
        with pytest.raises(ApplicationError, match="at most 64"):
            await carts.ask("ada", {"remind": "one more", "in_s": 900})


class Plain(Actor[str, None]):
    """Has no method for reminders."""

    async def receive(self, message: str) -> None:
        self.remind(message, in_s=1)


async def test_only_turns_of_a_class_with_on_reminder_arm() -> None:
    async with a_keyspace("durable") as keyspace:
        plain = keyspace.actor(Plain)
        with pytest.raises(ApplicationError, match="Plain has no on_reminder: define it"):
            await plain.ask("k", "x")
        with pytest.raises(BadOperation, match="only in a turn"):
            Cart().remind("x", in_s=1)


async def test_one_clock_that_jumps_brings_nothing_forward() -> None:
    async with a_cluster() as cluster:
        nodes = [await cluster.start(name) for name in "abc"]
        carts, keyspace = await carts_at(nodes[0])
        for node in nodes[1:]:
            await carts_at(node)
        await all_online(keyspace, *"abc")
        keys = [actor_at(carts, name) for name in "abc"]
        began = trio.current_time()
        for key in keys:
            await carts.ask(key, {"remind": "x", "in_s": 100})
        await trio.sleep(10)
        nodes[0].reporter.clocks.wall_s = partial(wrong_s, 3_600)
        await trio.sleep(89.8 - 10)
        assert [await saved(carts, key) for key in keys] == [[], [], []]
        await trio.sleep(15)
        for key in keys:
            ((_, at, _),) = await saved(carts, key)
            assert 100 <= at - began <= 102


async def test_many_that_are_due_together_leave_room_for_messages() -> None:
    async with a_keyspace("durable", partitions=4) as keyspace:
        carts = keyspace.actor(Cart, actors_max=2_000)
        many = [f"k{number}" for number in range(1_500)]
        at = time.time() + 30

        async def arm(keys: list[str]) -> None:
            for key in keys:
                await carts.ask(key, {"remind": "x", "at": at})

        async with trio.open_nursery() as nursery:
            for first in range(50):
                nursery.start_soon(arm, many[first::50])
        await trio.sleep(30 - (trio.current_time() % 1))
        working = 0
        while keyspace.stage.reminders["done"] < len(many):
            await carts.ask("other", {}, timeout_s=1)
            working = max(working, keyspace.stage.mailboxes.working_count)
            await trio.sleep(0.001)
        assert working <= WAKING_MAX + 1
        assert all([len(await saved(carts, key)) == 1 for key in many])
