"""Leaders in a cluster, in virtual time: who holds a name, and when another one does."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py import ConfigError, LeadershipLost
from ringpop_py.state.leaders.leaders import Leaders
from ringpop_py.state.stores.memory import StoreFault
from tests.state.keyspaces.clusters import a_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.node.ringpop import Ringpop

pytestmark = pytest.mark.virtual_time
NAME = "mailer"


class Terms:
    """What one candidate after the other has found."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []
        self._changed = trio.Event()

    def note(self, holder: str, term: int) -> None:
        self.found.append((holder, term))
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for(self, *holders: str) -> list[tuple[str, int]]:
        with trio.fail_after(60):
            while len(self.found) < len(holders):
                await self._changed.wait()
        assert [holder for holder, _ in self.found] == list(holders)
        return self.found


@asynccontextmanager
async def candidates(terms: Terms, *nodes: Ringpop, ttl_s: float = 10) -> AsyncIterator[None]:
    """Each of *nodes* wants the name, and holds it as long as it can, once."""

    async def hold(node: Ringpop) -> None:
        try:
            async with node.leader(NAME, ttl_s=ttl_s) as lead:
                terms.note(node.name, lead.term)
                await trio.sleep_forever()
        except LeadershipLost:
            terms.note(f"{node.name} lost", 0)

    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(hold, node)
        yield
        nursery.cancel_scope.cancel()


async def test_one_after_the_other_holds_a_name_and_terms_grow() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        terms = []
        for node in (a, b, a):
            async with node.leader(NAME) as lead:
                lead.check()
                terms.append(lead.term)

        assert terms == [1, 2, 3]
        with pytest.raises(LeadershipLost, match="released"):
            lead.check()


async def test_a_second_candidate_of_the_same_node_waits() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        async with node.leader(NAME), candidates(terms := Terms(), node):
            await trio.sleep(60)
            assert terms.found == []


async def test_a_holder_that_is_gone_is_replaced_before_its_time_is_over() -> None:
    async with a_cluster() as cluster:
        a, b, c = [await cluster.start(name) for name in "abc"]
        terms = Terms()
        async with candidates(terms, a, ttl_s=60):
            await terms.wait_for("a")
            async with candidates(terms, b, ttl_s=60):
                await trio.sleep(5)
                cluster.isolate("a")
                began = trio.current_time()
                await terms.wait_for("a", "b")

                assert trio.current_time() - began < 5
                assert terms.found == [("a", 1), ("b", 2)]
                assert c.status_of("a") is not None


async def test_a_holder_whose_beats_do_not_arrive_stops_within_its_time() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        terms = Terms()
        async with candidates(terms, node):
            await terms.wait_for("a")
            cluster.store.inject(StoreFault.FAILS, count=10_000)
            began = trio.current_time()
            await terms.wait_for("a", "a lost")

            assert trio.current_time() - began <= 10


async def test_a_name_that_an_operator_takes_away_is_lost() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        terms = Terms()
        async with candidates(terms, a):
            await terms.wait_for("a")

            taken = await Leaders(b).take_away(NAME, 5)
            await terms.wait_for("a", "a lost")

            assert (taken.holder, taken.term) == ("a", 1)
            (shown,) = await Leaders(b).all()
            assert (shown.name, shown.holder, shown.term) == (NAME, "", 1)
            with pytest.raises(ConfigError, match="nobody holds"):
                await Leaders(b).take_away(NAME, 5)


async def test_the_error_of_a_block_is_its_own_and_releases_the_name() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        with pytest.raises(KeyError):
            async with node.leader(NAME):
                raise KeyError("mine")

        with trio.fail_after(1):
            async with node.leader(NAME, above=40) as lead:
                assert lead.term == 41


async def test_without_a_store_it_is_refused_and_nobody_waits() -> None:
    async with a_cluster() as cluster:
        await cluster.start("a")
        node = await cluster.start("b", has_store=False)
        with pytest.raises(ConfigError, match="no store"):
            async with node.leader(NAME):
                pass
        with pytest.raises(ConfigError, match="no store"):
            await Leaders(node).all()


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"ttl_s": 0.1}, {"above": -1}], ids=["name", "ttl", "above"]
)
async def test_wrong_arguments_are_refused(wrong: dict[str, object]) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        with pytest.raises(ConfigError):
            node.leader(**{"name": NAME, **wrong})  # type: ignore[arg-type]
