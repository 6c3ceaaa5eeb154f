"""Who is taken for gone: nobody whose label has merely not come yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ringpop_py.flow.shuffle.client.members import LABEL
from ringpop_py.flow.shuffle.protocol.changes import created
from ringpop_py.flow.shuffle.protocol.record import MemberId
from ringpop_py.flow.shuffle.server.view import UNKNOWN_S, WITHOUT_S, Watch

if TYPE_CHECKING:
    from trio.testing import MockClock

    from ringpop_py.client.sync.client import Client

A, B = MemberId("a", 5), MemberId("b", 5)
RECORD = created(None, 1, b"", 4, [A, B])


class Node:
    """Answers as a node does that sees *rows*: status and label by name."""

    def __init__(self, **rows: tuple[str, str]) -> None:
        self.rows = rows

    def admin(self, _endpoint: str, *, timeout_s: float) -> Any:  # noqa: ANN401, ARG002 - plain
        return {
            "members": [
                {
                    "name": name,
                    "address": "127.0.0.1:1",
                    "status": status,
                    "labels": {LABEL: label} if label else {},
                }
                for name, (status, label) in self.rows.items()
            ]
        }


async def gone(watch: Watch) -> frozenset[MemberId]:
    await watch.look()
    return watch.view_of(RECORD, A, is_member=True).gone


async def test_a_live_member_without_a_label_is_gone_only_after_a_while(
    mock_clock: MockClock,
) -> None:
    watch = Watch(cast("Client", Node(a=("alive", "7/5"), b=("alive", ""))))
    assert await gone(watch) == frozenset()

    mock_clock.jump(WITHOUT_S - 0.1)
    assert await gone(watch) == frozenset()
    mock_clock.jump(0.2)
    assert await gone(watch) == {B}


async def test_a_label_that_comes_back_begins_the_wait_anew(mock_clock: MockClock) -> None:
    node = Node(b=("alive", ""))
    watch = Watch(cast("Client", node))
    await gone(watch)
    mock_clock.jump(WITHOUT_S - 0.1)
    node.rows["b"] = ("suspect", "7/5")
    assert await gone(watch) == frozenset()

    node.rows["b"] = ("alive", "")
    assert await gone(watch) == frozenset()
    mock_clock.jump(WITHOUT_S - 0.1)
    assert await gone(watch) == frozenset()


async def test_a_faulty_member_and_a_later_life_are_gone_immediately() -> None:
    faulty = Watch(cast("Client", Node(b=("faulty", "7/5"))))
    restarted = Watch(cast("Client", Node(b=("alive", "8/6"))))
    rejoined = Watch(cast("Client", Node(b=("alive", "8/4"))))

    assert await gone(faulty) == {B}
    assert await gone(restarted) == {B}
    assert await gone(rejoined) == frozenset()  # a later life of that process, in this shuffle


async def test_a_member_that_the_node_does_not_know_is_gone_after_long(
    mock_clock: MockClock,
) -> None:
    watch = Watch(cast("Client", Node()))
    assert await gone(watch) == frozenset()

    mock_clock.jump(UNKNOWN_S + 1)
    assert await gone(watch) == {B}
