"""`ringpop_py.state.jobs.store`: when the names of jobs are free again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import BadOperation, StateDamaged, StoreUnavailable
from ringpop_py.base.values.checksum import unwrap_message, wrap_message
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.jobs.messages import (
    REFUSED_KEPT_MAX,
    AttemptManifest,
    Decision,
    Refusals,
    RowRefusal,
    StagedFile,
)
from ringpop_py.state.jobs.record import DAY_US
from ringpop_py.state.jobs.store import SCHEMAS_MAX, JobStore, _Refused
from ringpop_py.state.placement.keys import Placing
from ringpop_py.state.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

OLD_DAY, NEW_DAY = 20_000, 20_029
NOW_US = (NEW_DAY + 40) * DAY_US
KEYS = KeyspaceKeys("c", "k", 1)


def a_job_store(store: MemoryStore | None = None) -> JobStore:
    return JobStore(store or MemoryStore(), KEYS, Placing(8), lambda: NOW_US)


def aborted(day: int) -> Decision:
    return Decision(None, f"who gave up on day {day}", day * DAY_US)


def committed(day: int) -> Decision:
    return Decision((), f"who committed on day {day}", day * DAY_US)


@pytest.mark.parametrize(
    ("job", "successor"), [("j ж", "j ж~1"), ("j~1", "j~2"), ("j~1", "j~1~1"), ("j~x", "j~x~1")]
)
@pytest.mark.parametrize("decide", [committed, aborted])
def test_that_a_job_was_aborted_is_remembered_as_long_as_its_successor_is(
    job: str, successor: str, decide: Callable[[int], Decision]
) -> None:
    jobs = a_job_store()
    jobs.decide(job, aborted(OLD_DAY))
    jobs.decide(successor, decide(NEW_DAY))

    jobs.retire(OLD_DAY)
    while_it_is = jobs.decision(job)
    jobs.retire(NEW_DAY)
    jobs.retire(NOW_US // DAY_US)  # where it is listed by now
    afterwards = jobs.decision(job)

    assert (while_it_is, afterwards) == (aborted(OLD_DAY), None)


def test_that_a_job_was_aborted_is_remembered_while_its_successor_is_staged() -> None:
    jobs = a_job_store()
    jobs.decide("j", aborted(OLD_DAY))
    manifest = KEYS.job("j~1").manifest("t0")
    jobs.store.put_if_absent(manifest, wrap_message(AttemptManifest((), 0), manifest))

    jobs.retire(OLD_DAY)

    assert jobs.decision("j") == aborted(OLD_DAY)


def test_a_job_that_was_aborted_is_not_kept_by_others_with_names_like_its_own() -> None:
    jobs = a_job_store()
    jobs.decide("j", aborted(OLD_DAY))
    for name in ("j~2", "j~", "j1", "i~1"):
        jobs.decide(name, committed(NEW_DAY))

    jobs.retire(OLD_DAY)

    assert jobs.decision("j") is None


class Raced(MemoryStore):
    """Before the first decision is put, *other* is called."""

    other: Callable[[], object] | None = None

    def put_if_absent(self, key: str, value: bytes) -> bool:
        if "/decided/" in key and self.other is not None:
            other, self.other = self.other, None
            other()
        return super().put_if_absent(key, value)


@pytest.mark.parametrize("other", [Decision(("t1",), "other"), Decision(None, "other")])
def test_of_two_drivers_that_find_all_they_need_one_decides_and_its_attempts_count(
    other: Decision,
) -> None:
    store = Raced()
    jobs = a_job_store(store)
    for attempt in ("t0", "t1"):
        key = KEYS.job("j").manifest(attempt)
        store.put_if_absent(key, wrap_message(AttemptManifest((), 0), key))
    store.other = lambda: jobs.commit_or_abort("j", other)

    found = jobs.commit_or_abort("j", Decision(("t0",), "slow"))

    assert found == jobs.decision("j")
    assert (found.token, found.attempts) == (other.token, other.attempts)
    with pytest.raises(BadOperation, match="was not committed"):
        jobs.plan("j", "slow")
    if found.committed:
        assert jobs.plan("j", "other").decision == found


class Overtaken(MemoryStore):
    """While a slow node lists *prefix*, the others do what is to be done."""

    def __init__(self, prefix: str, others: Callable[[], object]) -> None:
        super().__init__()
        self.others: Callable[[], object] | None = others
        self.prefix = prefix

    def list(self, prefix: str) -> list[str]:
        found = super().list(prefix)
        if prefix == self.prefix and self.others is not None:
            others, self.others = self.others, None
            others()
        return found


def test_a_node_that_forgets_a_job_slowly_leaves_alone_the_next_job_of_that_name() -> None:
    def others() -> None:
        jobs.retire(OLD_DAY)
        jobs.decide("j", committed(NEW_DAY))

    jobs = a_job_store(Overtaken(KEYS.job("j").done, others))
    jobs.decide("j", committed(OLD_DAY))

    jobs.retire(OLD_DAY)

    assert jobs.decision("j") == committed(NEW_DAY)


def test_a_node_that_forgets_an_undecided_job_leaves_alone_a_decision_made_meanwhile() -> None:
    def others() -> None:
        jobs.decide("j", committed(NEW_DAY))

    jobs = a_job_store(Overtaken(KEYS.job("j").done, others))
    jobs.store.put_if_absent(KEYS.job("j").of_day(OLD_DAY), b"")  # and then its driver died

    jobs.retire(OLD_DAY)

    assert jobs.decision("j") == committed(NEW_DAY)


class Slow(MemoryStore):
    """A store with threads, in which a value cannot be read."""

    in_memory = False
    bad = ""

    def get(self, key: str) -> bytes | None:
        if key == self.bad:
            raise StoreUnavailable("it cannot be read")
        return super().get(key)


def test_manifests_are_read_several_at_a_time_and_none_is_left_out() -> None:
    store = Slow()
    jobs = a_job_store(store)
    attempts = tuple(f"t{number}" for number in range(50))
    for number, attempt in enumerate(attempts):
        file = StagedFile(0, 0, 1, 1, ((number % 4, 1),))
        manifest = AttemptManifest((file,), 0)
        key = KEYS.job("j").manifest(attempt)
        store.put_if_absent(key, wrap_message(manifest, key))
    jobs.decide("j", Decision(attempts, "driver"))

    plan = jobs.plan("j", "driver")

    assert [file.key for file in plan.files] == [KEYS.job("j").file(t, 0, 0) for t in attempts]
    store.bad = KEYS.job("j").manifest("t7")
    with pytest.raises(StoreUnavailable, match="it cannot be read"):
        a_job_store(store).plan("j", "driver")
    store.bad = ""
    store.delete([KEYS.job("j").manifest("t7")])
    with pytest.raises(StateDamaged, match="what attempt 't7' of job 'j' has staged is gone"):
        a_job_store(store).plan("j", "driver")


def test_schemas_are_kept_once_and_in_the_order_in_which_they_came() -> None:
    store = MemoryStore()
    members = [JobStore(store, KEYS, Placing(4)) for _ in range(2)]

    for number, schema in enumerate(["b", "a", "a", "b", "c"]):
        members[number % 2].keep_schema(schema)

    assert [jobs.schemas() for jobs in members] == [["b", "a", "c"]] * 2


def test_of_two_schemas_with_one_number_both_are_kept() -> None:
    class Slow(MemoryStore):
        def put_if_absent(self, key: str, value: bytes) -> bool:
            for other in others:  # another member was quicker
                super().put_if_absent(KEYS.schema(0), other)
            return super().put_if_absent(key, value)

    others, store = list[bytes](), Slow()
    quicker = MemoryStore()
    JobStore(quicker, KEYS, Placing(4)).keep_schema("first")
    others += filter(None, [quicker.get(KEYS.schema(0))])
    jobs = JobStore(store, KEYS, Placing(4))

    jobs.keep_schema("second")

    assert jobs.schemas() == ["first", "second"]


def test_so_many_schemas_are_kept_and_no_more() -> None:
    jobs = JobStore(MemoryStore(), KEYS, Placing(4))

    for number in range(SCHEMAS_MAX + 1):
        jobs.keep_schema(str(number))

    assert len(jobs.schemas()) == SCHEMAS_MAX


def refused(*keys: str) -> Refusals:
    return Refusals(len(keys), tuple(RowRefusal(key, "RecordRefused", "why") for key in keys))


def test_rows_that_are_refused_again_count_once_and_others_of_a_later_owner_count_too() -> None:
    jobs = a_job_store()

    for found in (refused("a", "b"), refused("a", "b"), refused("a"), refused("a", "b")):
        jobs.put_refusals("j", 3, 7, found)
    jobs.put_refusals("j", 3, 8, refused("a", "b"))

    assert jobs.refusals("j").count == 2 + 1 + 2
    assert len(jobs.store.list(KEYS.job("j").refused)) == 3


def test_of_many_refused_rows_some_are_kept_and_all_are_counted() -> None:
    jobs = a_job_store()

    jobs.put_refusals("j", 3, 7, refused(*map(str, range(REFUSED_KEPT_MAX + 5))))

    (key,) = jobs.store.list(KEYS.job("j").refused)
    value = jobs.store.get(key)
    assert value is not None
    kept = unwrap_message(_Refused, value, key, "part of a job").refusals
    assert (kept.count, len(kept.some)) == (REFUSED_KEPT_MAX + 5, REFUSED_KEPT_MAX)
    assert jobs.refusals("j").count == REFUSED_KEPT_MAX + 5
