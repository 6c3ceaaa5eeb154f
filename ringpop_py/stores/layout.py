"""Where things stand in a store: keyspaces, partitions, slots, checkpoints and jobs.

Numbers have leading zeros, so that the order of keys is the order of what they name.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from ringpop_py.slotlog.slots import Slot

SLOTS: Final = "s"
CHECKPOINTS: Final = "ck"
MARK: Final = ".trimmed"
"""The end of a mark's key, which is beside those of the slots that were deleted."""


def name_part(name: str) -> str:
    """*name* as one part of a key: what stores do not take is percent-encoded."""
    part = quote(name, safe="-_=").replace("~", "%7E")
    return part.replace(".", "%2E") if set(part) == {"."} else part


def name_of_part(part: str) -> str:
    """The name that stands as *part* in a key."""
    return unquote(part)


def store_id_key(cluster: str) -> str:
    """Names the store, once for all."""
    return f"{name_part(cluster)}/store-id"


def catalog_prefix(cluster: str, name: str | None = None) -> str:
    """What keyspaces there are, or which generations of *name*. Few keys: it is listed often."""
    prefix = f"{name_part(cluster)}/catalog/"
    return prefix if name is None else f"{prefix}{name_part(name)}/"


class KeyspaceKeys(NamedTuple):
    """The keys of one generation of a keyspace."""

    cluster: str
    name: str
    generation: int

    @property
    def definition(self) -> str:
        """Says what the keyspace is."""
        return f"{catalog_prefix(self.cluster, self.name)}{self.generation:06}/definition"

    @property
    def dropped(self) -> str:
        """Is there once the keyspace was dropped."""
        return f"{catalog_prefix(self.cluster, self.name)}{self.generation:06}/dropped"

    @property
    def fenced(self) -> str:
        """Is there once nobody can acknowledge anything for it any more."""
        return f"{catalog_prefix(self.cluster, self.name)}{self.generation:06}/fenced"

    @property
    def completed(self) -> str:
        """Is there once all of it is there, if it was restored."""
        return f"{catalog_prefix(self.cluster, self.name)}{self.generation:06}/completed"

    @property
    def void(self) -> str:
        """Is there once its data are being deleted: it will never count."""
        return f"{catalog_prefix(self.cluster, self.name)}{self.generation:06}/void"

    @property
    def root(self) -> str:
        """Begins all other keys of this generation; ends with a slash."""
        name = name_part(self.name)
        return f"{name_part(self.cluster)}/keyspaces/{name}/{self.generation:06}/"

    @property
    def assignments(self) -> str:
        """Recorded assignments; ends with a slash."""
        return f"{self.root}assignments/"

    def assignment(self, version: int) -> str:
        """One recorded assignment."""
        return f"{self.assignments}{version:010}"

    @property
    def manifests(self) -> str:
        """Checkpoints of the keyspace as a whole that are complete; ends with a slash."""
        return f"{self.root}checkpoints/manifests/"

    def manifest(self, number: int) -> str:
        """Makes the checkpoint *number* of the whole complete."""
        return f"{self.manifests}epoch-{number}"

    @property
    def begun(self) -> str:
        """Checkpoints of the whole that somebody has begun; ends with a slash."""
        return f"{self.root}checkpoints/begun/"

    def begun_epoch(self, number: int) -> str:
        """Whoever puts this makes the checkpoint *number* of the whole."""
        return f"{self.begun}epoch-{number}"

    def epoch_files(self, number: int) -> str:
        """The files of the checkpoint *number* of the whole; ends with a slash."""
        return f"{self.root}checkpoints/epoch-{number}/"

    def epoch_file(self, number: int, partition: int) -> str:
        """One partition's file in it."""
        return f"{self.epoch_files(number)}{partition:05}"

    @property
    def staged_jobs(self) -> str:
        """What is staged for jobs, all of them; ends with a slash."""
        return f"{self.root}jobs/staged/"

    def jobs_of_day(self, day: int) -> str:
        """The jobs that were decided on that *day*, counted from 1970; ends with a slash."""
        return f"{self.root}jobs/days/{day:06}/"

    def job(self, name: str) -> JobKeys:
        """The keys of one job that writes into it."""
        return self.job_of_part(name_part(name))

    def job_of_part(self, part: str) -> JobKeys:
        """Of a job whose name stands as *part* in another key."""
        return JobKeys(f"{self.root}jobs/", part)

    def partition(self, number: int) -> PartitionKeys:
        """The keys of one of its partitions."""
        return PartitionKeys(f"{self.root}p/{number:05}/")


class JobKeys(NamedTuple):
    """The keys of one job; *root* ends with a slash, *part* is its name as a part of a key."""

    root: str
    part: str

    @property
    def staged(self) -> str:
        """All that its attempts have staged; ends with a slash."""
        return f"{self.root}staged/{self.part}/"

    def manifest(self, attempt: str) -> str:
        """Says what the finished *attempt* has staged."""
        return f"{self.staged}{name_part(attempt)}/manifest"

    def file(self, attempt: str, number: int, staged_ms: int) -> str:
        """One file of *attempt*."""
        return f"{self.staged}{name_part(attempt)}/{number:06}-{staged_ms:013}"

    @property
    def decision(self) -> str:
        """Says whether the job was committed or aborted, once for all."""
        return f"{self.root}decided/{self.part}"

    @property
    def applied(self) -> str:
        """Is there once all partitions have what was committed."""
        return f"{self.root}applied/{self.part}"

    @property
    def done(self) -> str:
        """How far partitions are with it, where that takes long; ends with a slash."""
        return f"{self.root}done/{self.part}/"

    def done_by(self, partition: int) -> str:
        """Is there if *partition* has it."""
        return f"{self.done}{partition:05}"

    @property
    def begun(self) -> str:
        """The partitions that have a part of it, where that takes long; ends with a slash."""
        return f"{self.done}begun/"

    def begun_by(self, partition: int) -> str:
        """Is there if *partition* has a part of it."""
        return f"{self.begun}{partition:05}"

    @property
    def refused(self) -> str:
        """Rows that partitions refused; ends with a slash."""
        return f"{self.root}refused/{self.part}/"

    def refused_by(self, partition: int, sequence: int, version: int) -> str:
        """Of one chunk the rows that *partition* refused."""
        return f"{self.refused}{partition:05}-{sequence:010}-{version:02}"

    def of_day(self, day: int) -> str:
        """Is there before the decision, if it was made on that *day*."""
        return f"{self.root}days/{day:06}/{self.part}"


class PartitionKeys(NamedTuple):
    """The keys of one partition; *root* ends with a slash."""

    root: str

    def slot(self, slot: Slot) -> str:
        """The record in *slot*."""
        return f"{self.root}{SLOTS}/{slot.epoch:010}/{slot.sequence:010}"

    def mark(self, slot: Slot) -> str:
        """Is there before slots up to *slot* are deleted: a checkpoint has all of them."""
        return self.slot(slot) + MARK

    def checkpoint(self, slot: Slot) -> str:
        """The state after *slot*."""
        return f"{self.root}{CHECKPOINTS}/{slot.epoch:010}/{slot.sequence:010}"

    def are_of(self, name: str, generation: int, partition: int) -> bool:
        """Whether they are of that partition of that keyspace, whatever its cluster's name."""
        any_cluster = KeyspaceKeys("", name, generation).partition(partition)
        return self.root.endswith(any_cluster.root)

    @property
    def slots(self) -> str:
        """All slots, and marks."""
        return f"{self.root}{SLOTS}/"

    @property
    def checkpoints(self) -> str:
        """All checkpoints."""
        return f"{self.root}{CHECKPOINTS}/"


def epoch_in(key: str) -> int | None:
    """The number of the checkpoint of a whole that *key* ends with; None if it is no such key."""
    digits = key.rsplit("/", 1)[-1].removeprefix("epoch-")
    return int(digits) if digits.isascii() and digits.isdigit() else None


class StagedKey(NamedTuple):
    """What the key of something staged says.

    Attributes:
        job: its name.
        staged_ms: when, in milliseconds since 1970; None of a manifest.
    """

    job: str
    staged_ms: int | None


def staged_in(prefix: str, key: str) -> StagedKey | None:
    """What *key* says, which begins with the *prefix* of all staged jobs; None if it is none."""
    parts = key.removeprefix(prefix).split("/")
    if len(parts) != _STAGED_PARTS:
        return None
    digits = parts[-1].rpartition("-")[2]
    staged_ms = int(digits) if digits.isascii() and digits.isdigit() else None
    return StagedKey(name_of_part(parts[0]), staged_ms)


_STAGED_PARTS: Final = 3
"""Job, attempt, and file or manifest."""


def slot_in(key: str) -> Slot | None:
    """The slot that *key*, of a slot or a checkpoint, ends with; None if it is no such key."""
    parts = key.rsplit("/", 2)[1:]
    if len(parts) != len(Slot._fields) or not all(
        part.isascii() and part.isdigit() for part in parts
    ):
        return None
    return Slot(int(parts[0]), int(parts[1]))
