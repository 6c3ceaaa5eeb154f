"""The leader of a dataflow: when those that are left may begin again."""

from __future__ import annotations

import pytest

from ringpop_py.flow.exchange.epochs import EpochRecord, Worker
from ringpop_py.flow.exchange.leader import (
    PATIENCE_EPOCHS,
    PATIENCE_S,
    Leader,
    Put,
    Tell,
    WorkerReport,
)

WORKERS = tuple(Worker(name, "life") for name in "abcd")
RECORD = EpochRecord(7, 5, WORKERS, 256)


def act(leader: Leader, names: str, now: float) -> Put | Tell:
    """Return what *leader* decides while only the workers *names* answer."""
    present = [worker for worker in WORKERS if worker.name in names]
    said = {worker.name: WorkerReport(worker.life, RECORD.run) for worker in present}
    return leader.decide(RECORD, present, said, now, at_ms=0)


@pytest.mark.parametrize("names", ["ab", "ac", "abc", "bcd"])
def test_a_majority_or_the_half_with_the_first_worker_begins_again_at_once(names: str) -> None:
    step = act(Leader(every_s=0.5, key_groups=256), names, 100.0)

    assert isinstance(step, Put)
    assert "".join(step.record.names) == names


@pytest.mark.parametrize("names", ["cd", "bd", "a", "d"])
@pytest.mark.parametrize("every_s", [0.5, 4.0])
def test_those_that_are_fewer_wait_for_what_the_others_do(names: str, every_s: float) -> None:
    """Otherwise both halves of a cut would begin again, each from the same record."""
    leader = Leader(every_s=every_s, key_groups=256)
    patience_s = max(PATIENCE_S, PATIENCE_EPOCHS * every_s)

    assert act(leader, names, 100.0) == Tell()
    assert leader.waits
    assert act(leader, names, 100.0 + patience_s - 0.01) == Tell()
    step = act(leader, names, 100.0 + patience_s)

    assert isinstance(step, Put)
    assert "".join(step.record.names) == names


def test_those_that_are_fewer_forget_their_wait_once_the_others_are_back() -> None:
    leader = Leader(every_s=0.5, key_groups=256)
    act(leader, "cd", 100.0)

    act(leader, "abcd", 102.0)

    assert not leader.waits
    assert act(leader, "cd", 104.0) == Tell()  # it begins anew
