"""`state.catalog.journalstore.KnownRecords`: each record is read once, each absence anew."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ringpop_py.state.catalog import journalstore
from ringpop_py.state.catalog.journalstore import KnownRecords
from ringpop_py.state.journal.records import Entry, Group, Seal
from ringpop_py.state.table.bodies import Body

if TYPE_CHECKING:
    from ringpop_py.state.journal.records import Record

SEAL = Seal("b")


class Slot:
    """It counts how often it was read; the first reading lasts until `go_on`."""

    def __init__(self, record: Record | None) -> None:
        self.record = record
        self.reads_count = 0
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def read(self) -> tuple[Record, int] | None:
        self.reads_count += 1
        if self.reads_count == 1:
            self.begun.set()
            assert self.go_on.wait(10)
        return None if self.record is None else (self.record, 10)


@pytest.mark.parametrize(("record", "reads_count"), [(SEAL, 1), (None, 4)])
def test_readers_share_one_reading_of_a_record_and_each_reads_an_absence_itself(
    record: Record | None, reads_count: int
) -> None:
    known, slot = KnownRecords(), Slot(record)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(known.get, "k", slot.read)
        assert slot.begun.wait(10)
        others = [pool.submit(known.get, "k", slot.read) for _ in range(3)]
        slot.go_on.set()

        assert [each.result(10) for each in (first, *others)] == [record] * 4
    assert slot.reads_count == reads_count


def test_a_reader_reads_itself_after_a_reading_failed() -> None:
    known = KnownRecords()

    def failing() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        known.get("k", failing)

    assert known.get("k", lambda: (SEAL, 10)) == SEAL


def test_known_records_have_a_bound_and_the_first_ones_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = {f"k{number}": b"1" for number in range(100)}
    group = Group((Entry(0, 1, Body(changes, [], {}, {})),))
    known = KnownRecords()
    monkeypatch.setattr(journalstore, "KNOWN_BYTES_MAX", 50_000)

    def kept() -> list[int]:
        """Those that are not read again."""
        found = []
        for number in range(10):
            reads: list[int] = []

            def read(reads: list[int] = reads) -> tuple[Record, int]:
                reads.append(1)
                return group, 600

            known.get(str(number), read)
            if not reads:
                found.append(number)
        return found

    kept()

    assert kept() == [0, 1, 2]  # each takes about 16 kB of memory
    known.clear()
    assert kept() == []
