"""`ringpop_sim.world.state`: a node can be copied, compared and shown."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.member.swim.member import Status
from ringpop_sim.runs.run import Run
from ringpop_sim.scenarios import scenario
from ringpop_sim.units import s
from ringpop_sim.world.state import state_of
from tests.member.swim.nodes import advance_to
from tests.member.swim.test_node import A, B, lone

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.node import Node


class Twins:
    """A node and a copy of it, which are driven alike and must do the same."""

    def __init__(self, node: Node) -> None:
        self.node, self.copy = node, deepcopy(node)
        self.effect_count = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a node has
        of_node, of_copy = getattr(self.node, name), getattr(self.copy, name)
        assert of_node == of_copy or not isinstance(of_node, int | None)
        return self._both(name) if callable(of_node) else of_node

    def _both(self, name: str) -> Any:  # noqa: ANN401 - see above
        def call(*arguments: object) -> list[Effect]:
            effects: list[Effect] = getattr(self.node, name)(*arguments)
            assert getattr(self.copy, name)(*arguments) == effects
            self.effect_count += len(effects)
            return effects

        return call


@pytest.mark.parametrize("at_s", [11, 45])
@pytest.mark.parametrize("name", ["split", "flapping", "twins", "islands-of-ringpop"])
def test_a_copy_of_a_node_does_what_the_node_does(name: str, at_s: int) -> None:
    under_way = Run(scenario(name, 6), 1, ())
    under_way.advance(at_s * s)
    twins = []
    for process in under_way.world.running:
        twins.append(Twins(process.node))
        process.node = twins[-1]  # type: ignore[assignment]

    under_way.advance((at_s + 200) * s)

    assert under_way.broken == []
    assert sum(pair.effect_count for pair in twins) > 100
    for pair in twins:
        assert state_of(pair.copy) == state_of(pair.node)


def test_a_copy_of_a_node_does_not_follow_it() -> None:
    node = lone(A, B)
    node.start_gossip(0)
    before = state_of(node)
    copy = deepcopy(node)

    advance_to(node, 20 * s)

    assert state_of(copy) == before != state_of(node)


def test_the_order_of_what_is_to_be_told_counts_for_the_state() -> None:
    one, other = lone(A, B), lone(B, A)

    assert state_of(one) != state_of(other)


def test_a_node_says_who_it_is_and_whom_it_waits_for() -> None:
    node = lone(A, B)
    node.start_gossip(0)

    text = repr(node)

    assert f"<Node {node.local.name} at {node.local.address}, ready" in text
    assert f"members: 3 {Status.ALIVE.label}; 1 calls" in text
