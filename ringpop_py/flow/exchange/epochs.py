"""Epochs: the points from which a dataflow goes on, as records in a store, each put once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.values.declared import Declared, Natural, Text, replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Worker(Declared, frozen=True, order=True):
    """One life of a worker: a worker that was restarted has another one, and remembers nothing.

    Attributes:
        name: the name of its node.
    """

    name: Text
    life: Text

    def __str__(self) -> str:
        return f"{self.name}/{self.life}"


class StatePart(Declared, frozen=True):
    """The state of neighbouring key groups.

    Attributes:
        first, end: the key groups: from *first*, and before *end*.
        objects: its objects in the store: the whole state first, then the changes, in order.
    """

    first: Natural
    end: Natural
    objects: tuple[Text, ...]


class Output(Declared, frozen=True):
    """The results that one worker's stage has sent on in one epoch.

    Attributes:
        number: the worker's number, among those of the run.
        place: the object in the store.
    """

    epoch: Natural
    number: Natural
    place: Text


class EpochRecord(Declared, frozen=True):
    """The end of an epoch: a consistent cut through all workers, and the workers that go on.

    The records of a dataflow have the numbers 0, 1, 2 and so on, and a number is put once. So two
    leaders, or workers of a former run, cannot both go on: the one that puts the next record does.

    Attributes:
        epoch: its number.
        run: the epoch with which the workers have begun from a record, with new channels. It is
            *epoch* itself where workers have changed, or have to begin again.
        workers: the workers that go on, in the order of their names.
        state: its parts, by the workers that wrote them. Each key group is in at most one.
        offsets: how far each split was read.
        times: the watermark of each split that has one: otherwise a split without new records
            would hold up the workers that begin from here.
        watermark: the time of records that the workers had reached; None without one.
        outputs: the results of this epoch, or of the one from which the run begins again.
        cut: the epoch whose end this is: *epoch* itself, or an earlier one from which the workers
            begin again.
        why: the reason for this record.
        at_ms: when it was put, by its writer's clock, in milliseconds since 1970.
    """

    epoch: Natural
    run: Natural
    workers: tuple[Worker, ...]
    key_groups: Natural
    state: tuple[StatePart, ...] = ()
    offsets: dict[Text, Natural] = {}  # noqa: RUF012 - msgspec copies an empty default
    watermark: int | None = None
    outputs: tuple[Output, ...] = ()
    cut: Natural = 0
    why: Text = ""
    at_ms: Natural = 0
    times: dict[Text, int] = {}  # noqa: RUF012

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the workers."""
        return tuple(worker.name for worker in self.workers)

    @property
    def objects(self) -> frozenset[str]:
        """All objects in the store that this record needs."""
        state = (name for part in self.state for name in part.objects)
        return frozenset((*state, *(output.place for output in self.outputs)))


class Aligned(Declared, frozen=True):
    """A worker's part of an epoch, once all its barriers have come.

    Attributes:
        part: the objects with the state of its key groups: all of it, if *whole*, or what follows
            on the objects of the former epoch.
        whole: see *part*.
        offsets, times: those of its splits when it sent its barriers; see `EpochRecord`.
        output: the results that its stage has sent on; None if it has sent none.
    """

    part: StatePart
    whole: bool
    offsets: dict[Text, Natural]
    watermark: int | None = None
    output: Output | None = None
    times: dict[Text, int] = {}  # noqa: RUF012


def first_record(workers: Iterable[Worker], key_groups: int, at_ms: int) -> EpochRecord:
    """Return the record with which a dataflow begins."""
    return EpochRecord(0, 0, tuple(sorted(workers)), key_groups, why="begun", at_ms=at_ms)


def completed(
    record: EpochRecord,
    aligned: Mapping[str, Aligned],
    workers: Iterable[Worker],
    at_ms: int,
) -> EpochRecord:
    """Return the record of the epoch after *record*, which all workers have aligned.

    Args:
        aligned: the parts, by the name of the worker.
        workers: the workers that go on. If they have changed, a new run begins.
    """
    former = {(part.first, part.end): part.objects for part in record.state}
    state = [
        each.part
        if each.whole
        else replace(
            each.part, objects=former.get((each.part.first, each.part.end), ()) + each.part.objects
        )
        for each in aligned.values()
    ]
    marks = [each.watermark for each in aligned.values()]
    known = [mark for mark in marks if mark is not None]
    epoch, going_on = record.epoch + 1, tuple(sorted(workers))
    return replace(
        record,
        epoch=epoch,
        run=record.run if going_on == record.workers else epoch,
        workers=going_on,
        state=tuple(sorted((p for p in state if p.first < p.end), key=lambda part: part.first)),
        offsets=_merged(record.offsets, *(each.offsets for each in aligned.values())),
        times=_merged(record.times, *(each.times for each in aligned.values())),
        watermark=min(known) if len(known) == len(marks) else record.watermark,
        outputs=tuple(each.output for each in aligned.values() if each.output is not None),
        cut=epoch,
        why="complete" if going_on == record.workers else "complete, and the workers change",
        at_ms=at_ms,
    )


def restored(record: EpochRecord, workers: Iterable[Worker], why: str, at_ms: int) -> EpochRecord:
    """Return the record with which *workers* begin again from *record*; later work is lost."""
    epoch = record.epoch + 1
    return replace(
        record, epoch=epoch, run=epoch, workers=tuple(sorted(workers)), why=why, at_ms=at_ms
    )


def _merged(*parts: Mapping[str, int]) -> dict[str, int]:
    return {split: number for part in parts for split, number in part.items()}
