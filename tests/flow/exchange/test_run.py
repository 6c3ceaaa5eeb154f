"""A worker's run: when it says that it is idle, and splits that go on under another name."""

from __future__ import annotations

from ringpop_py.base.values.operations import MARK_CLOSED
from ringpop_py.flow.exchange.elements import Data, Element, Watermark
from ringpop_py.flow.exchange.epochs import EpochRecord, Worker
from ringpop_py.flow.exchange.run import Send, WorkerRun

IDLE = 10.0


def a_run(offsets: dict[str, int] | None = None, *names: str) -> WorkerRun[str]:
    workers = tuple(Worker(name, "life") for name in names or ("a",))
    record = EpochRecord(
        0, 0, workers, 8, offsets=offsets or {}, times=dict.fromkeys(offsets or {}, 5)
    )
    return WorkerRun(record, "a", key_of=str, lateness=0, idle_after=IDLE)


def elements(sends: list[Send]) -> list[Element[list[str]]]:
    return [send.element for send in sends]


def test_a_worker_says_that_it_is_idle_each_time_it_becomes_so() -> None:
    run = a_run()
    run.find(["s"], 0.0)
    run.quiet("s", 0.0)
    assert run.look(IDLE - 1) == []
    assert elements(run.look(IDLE)) == [Watermark(None)]
    assert run.look(IDLE + 1) == []  # it has said so
    assert elements(run.read("s", ["k"], 1, 7, IDLE + 2)) == [Data(["k"]), Watermark(7)]
    run.quiet("s", IDLE + 3)
    assert run.look(IDLE + 4) == []
    assert elements(run.look(2 * IDLE + 3)) == [Watermark(None)]


def test_a_split_goes_on_under_another_name_with_its_position_and_time() -> None:
    run = a_run({"old": 9, "file:x@1": 4, "file:x@2": 3})
    assert run.take_over("new", ["none", "old"], 0.0)
    assert run.known_like("file:x") == ["file:x@1", "file:x@2"]
    assert elements(run.find(["new", "file:x@1"], 0.0)) == [Watermark(5)]
    assert run.take_over("file:x@3", ["file:x@1"], 0.0)  # which is read here now
    assert not run.take_over("other", ["old"], 0.0)  # it goes on as "new"
    run.find(["new", "file:x@3"], 0.0)
    assert run.splits == {"new": 9, "file:x@3": 4}
    run.end_epoch(1, last=False)
    closed = {"old": MARK_CLOSED, "file:x@1": MARK_CLOSED}
    assert run.offsets == {"new": 9, "file:x@3": 4, "file:x@2": 3, **closed}


def test_a_worker_that_still_has_the_old_file_open_does_not_read_it_again() -> None:
    before = a_run({"file:x@1": 4})
    before.take_over("file:x@3", ["file:x@1"], 0.0)
    before.find(["file:x@3"], 0.0)
    before.end_epoch(1, last=False)

    after = a_run(before.offsets)
    after.find(["file:x@1", "file:x@3"], 0.0)

    assert after.splits == {"file:x@3": 4}
    assert after.known_like("file:x") == ["file:x@3"]


def test_a_file_and_its_copies_are_of_one_worker() -> None:
    run = a_run(None, "a", "b")
    for number in range(50):
        run.find([f"file:{number}@{copy}" for copy in range(9)], 0.0)
        assert len(run.splits) in (0, 9)


def test_all_workers_wait_for_a_split_that_has_no_name_yet() -> None:
    run = a_run(None, "a", "b")
    mine, others = (
        next(s for s in map(str, range(99)) if (run.router.worker_of(s) == w)) for w in "ab"
    )
    run.find([mine], 0.0, awaits=True)
    assert elements(run.read(mine, [], 1, 7, 1.0)) == []
    assert run.find([mine], 2.0, awaits=True) == []
    assert run.look(IDLE - 1) == []
    # The other worker has seen its name by now, or waits as well.
    assert set(elements(run.find([mine, others], IDLE - 1))) == {Watermark(7)}


def test_a_split_with_a_name_at_last_is_waited_for_without_a_gap() -> None:
    run = a_run()
    run.find(["first"], 0.0, awaits=True)
    run.read("first", [], 1, 70, 1.0)
    assert run.find(["first", "second"], 2.0) == []
    assert elements(run.read("second", [], 1, 7, 3.0)) == [Watermark(7)]


def test_a_split_without_a_name_is_idle_after_a_while_as_others_are() -> None:
    run = a_run()
    run.find(["s"], 0.0, awaits=True)
    run.read("s", [], 1, 7, 1.0)
    run.find(["s"], IDLE - 1, awaits=True)  # which does not begin the time anew
    assert elements(run.look(IDLE)) == [Watermark(7)]


def test_a_worker_that_was_idle_says_that_it_waits_for_a_split_without_a_name() -> None:
    run = a_run({"s": 1})
    run.find(["s"], 0.0)
    run.quiet("s", 0.0)
    assert elements(run.look(IDLE)) == [Watermark(None)]
    assert elements(run.find(["s"], IDLE + 1, awaits=True)) == [Watermark(5)]
    assert run.find(["s"], IDLE + 2, awaits=True) == []
