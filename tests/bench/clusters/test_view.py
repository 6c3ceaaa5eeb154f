"""What nodes believe of each other, as a fold over what they tell."""

from __future__ import annotations

from tests.bench.clusters.product import GONE, Seen
from tests.bench.clusters.view import View


def test_an_observer_that_never_reported_believes_nothing() -> None:
    view = View()
    view.change("a", "b", Seen.ALIVE)

    assert view.agreed(["a"], ["a", "b"], {Seen.ALIVE})
    assert not view.agreed(["a", "b"], ["a", "b"], {Seen.ALIVE})


def test_one_that_starts_again_believes_nothing_yet() -> None:
    view = View()
    view.change("a", "b", Seen.ALIVE)
    view.change("b", "a", Seen.ALIVE)

    view.forget("a")

    assert view.count(["a", "b"], ["a", "b"], {Seen.ALIVE}) == 1


def test_pairs_that_believe_the_other_one_gone_are_counted() -> None:
    view = View()
    view.change("a", "b", Seen.DEAD)
    view.change("b", "a", Seen.LEFT)
    view.change("c", "a", Seen.SUSPECT)

    assert view.count(["a", "b", "c"], ["a", "b", "c"], GONE) == 2


def test_a_view_remembers_former_beliefs_since_an_entry() -> None:
    view = View()
    view.change("a", "b", Seen.DEAD)
    since = len(view.history)
    view.change("a", "c", Seen.DEAD)
    view.change("a", "c", Seen.ALIVE)

    assert view.ever(Seen.DEAD, since=since) == {"c"}


def test_suspicions_and_repetitions_are_no_turns() -> None:
    view = View()
    for seen in (Seen.SUSPECT, Seen.DEAD, Seen.LEFT, Seen.ALIVE, Seen.SUSPECT, Seen.ALIVE):
        view.change("a", "b", seen)
    view.change("c", "b", Seen.ALIVE)

    assert view.turns("b") == {"a": 2}
