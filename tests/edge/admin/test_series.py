"""``/admin/series``: the last ten minutes of a node, fed by its driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py.base.errors import BodyError
from ringpop_py.edge.admin import series
from ringpop_py.edge.admin.accounts import checked
from ringpop_py.edge.admin.endpoints import READS
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop


class Clock:
    """The wall clock of `series`, which runs as the virtual time does."""

    def __init__(self) -> None:
        self.began_at = trio.current_time()

    def time(self) -> float:
        return 1_000_001 + trio.current_time() - self.began_at


def asked(node: Ringpop, value: object = None) -> dict[str, Any]:
    return checked("/admin/series", READS["/admin/series"](node, value))


def rows(answer: dict[str, Any]) -> list[dict[str, float | None]]:
    return [dict(zip(answer["names"], column, strict=True)) for column in answer["columns"]]


@pytest.mark.virtual_time
async def test_what_happened_is_in_the_column_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(series, "time", clock)
    monkeypatch.setattr("ringpop_py.node.reporter.time", clock)
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("k", partitions=4)
        await all_online(keyspace, "a", "b")
        here = key_at(keyspace, "a")
        await trio.sleep(5 - clock.time() % 5 + 0.5)
        began_at = asked(a)["ended_at"]

        for _ in range(3):
            await keyspace.put(here, 1)
        await trio.sleep(5)
        await keyspace.get(here)
        await trio.sleep(5)

        answer = asked(a, {"after": began_at})
        assert (answer["source"], answer["step_s"]) == ("a", 5)
        assert answer["ended_at"] == began_at + 10
        first, second = rows(answer)
        assert (first["writes"], first["reads"]) == (3, 0)
        assert (second["writes"], second["reads"]) == (0, 1)
        here_now = ("alive", "not_alive", "partitions_unserved", "partitions_moving")
        assert [second[name] for name in here_now] == [2, 0, 0, 0]
        assert len(asked(a)["columns"]) > 2
        assert asked(a, {"after": answer["ended_at"]})["columns"] == []

        # The driver feeds it, though nobody asks.
        await trio.sleep(20)
        assert b.reporter.series.ended_at >= clock.time() - 7

        cluster.hang("b")
        await a.wait_until(lambda node: len(node.ring) == 1)
        await trio.sleep(6)
        assert rows(asked(a))[-1]["not_alive"] == 1
        cluster.resume("b")


@pytest.mark.parametrize("wrong", [{"after": "x"}, {"after": -1}, {"after": 1e300}, [1]])
async def test_what_is_asked_is_checked(wrong: object) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        with pytest.raises(BodyError):
            READS["/admin/series"](node, wrong)


async def test_an_answer_that_is_not_valid_is_refused() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        sound = asked(node)
        for wrong in ({"step_s": 0}, {"ended_at": -1}, {"columns": [["x"]]}, {"names": None}):
            with pytest.raises(BodyError):
                checked("/admin/series", sound | wrong)
