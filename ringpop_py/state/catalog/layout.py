"""The keys of keyspaces, partitions, journals, checkpoints, jobs and shuffles in a store.

Numbers have leading zeros, so that the order of the keys is the order of the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from ringpop_py.state.journal.records import Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

CLAIMS: Final = "claims"
CHECKPOINTS: Final = "ck"  # before the claims in the order of keys
JOURNAL_MARKS: Final = "mark"


def name_part(name: str) -> str:
    """Return *name* as one part of a key; characters that stores refuse are percent-encoded."""
    part = quote(name, safe="-_=").replace("~", "%7E")  # which `quote` leaves as it is
    return part.replace(".", "%2E") if set(part) == {"."} else part  # "." and ".." are no parts


def name_of_part(part: str) -> str:
    """Return the name that *part* of a key encodes."""
    return unquote(part)


def store_id_key(cluster: str) -> str:
    """Return the key of the store's own id, which never changes."""
    return f"{name_part(cluster)}/store-id"


def probe_key(cluster: str, token: str) -> str:
    """Return a key that is put to see whether that is possible, and then deleted."""
    return f"{name_part(cluster)}/probes/{token}"


def shuffles_prefix(cluster: str) -> str:
    """Return the prefix of frames of shuffles."""
    return f"{name_part(cluster)}/shuffles/"


def dataflow_prefix(cluster: str, name: str) -> str:
    """Return the prefix of the epochs and objects of a dataflow."""
    return f"{name_part(cluster)}/dataflows/{name_part(name)}/"


def catalog_prefix(cluster: str, name: str | None = None) -> str:
    """Return the prefix of all keyspaces, or of *name*. It has few keys, as it is listed often."""
    prefix = f"{name_part(cluster)}/catalog/"
    return prefix if name is None else f"{prefix}{name_part(name)}/"


class KeyspaceKeys:
    """The keys of one generation of a keyspace. A prefix ends with a slash.

    Attributes:
        definition: the key of the keyspace's definition.
        dropped: a key that exists once the keyspace was dropped.
        fenced: a key that exists once no node can acknowledge anything for the keyspace any more.
        completed: a key that exists once all of a restored keyspace is in the store.
        void: a key that exists once its data are being deleted: this generation will never count.
        root: the prefix of all other keys of this generation.
        assignments: the prefix of recorded assignments.
        manifests: the prefix of complete checkpoints of the whole keyspace.
        begun: the prefix of checkpoints of the whole that were begun.
        staged_jobs: the prefix of everything that is staged for jobs.
        journals: the prefix of all journals.
        all_reached: the prefix of how far journals have come (`partition.reached`).
        schemas: the prefix of the types of columns that jobs have written.
    """

    def __init__(self, cluster: str, name: str, generation: int) -> None:
        self.cluster = cluster
        self.name = name
        self.generation = generation
        listed = f"{catalog_prefix(cluster, name)}{generation:06}"
        self.definition = f"{listed}/definition"
        self.dropped = f"{listed}/dropped"
        self.fenced = f"{listed}/fenced"
        self.completed = f"{listed}/completed"
        self.void = f"{listed}/void"
        self.root = f"{name_part(cluster)}{_root(name, generation)}"
        self.assignments = f"{self.root}assignments/"
        self.manifests = f"{self.root}checkpoints/manifests/"
        self.begun = f"{self.root}checkpoints/begun/"
        self.staged_jobs = f"{self.root}jobs/staged/"
        self.journals = f"{self.root}j/"
        self.all_reached = f"{self.root}reached/"
        self.schemas = f"{self.root}schemas/"

    def revised(self, revision: int) -> str:
        """Return the key of that *revision* of the definition."""
        return f"{self.definition}{f'-{revision:06}' if revision else ''}"

    @property
    def all_partitions(self) -> str:
        """The prefix of what all partitions have besides journals."""
        return f"{self.root}p/"

    def is_claim(self, key: str) -> bool:
        """Return whether *key*, which begins with `all_partitions`, is that of a claim."""
        return key.removeprefix(self.all_partitions).split("/")[1:2] == [CLAIMS]

    def journal(self, name: str) -> JournalKeys:
        """Return the keys of one journal."""
        return JournalKeys(f"{self.journals}{name}/")

    def journal_in(self, key: str) -> str:
        """Return the name of the journal to which *key*, which begins with `journals`, belongs."""
        return key.removeprefix(self.journals).partition("/")[0]

    def reached(self, journal: str, number: int) -> str:
        """Return the key of the *number*-th note of how far *journal* has come."""
        return f"{self.all_reached}{journal}/{number:010}"

    def journal_reached_in(self, key: str) -> str:
        """Return the journal that *key*, which begins with `all_reached`, is about."""
        return key.removeprefix(self.all_reached).partition("/")[0]

    def schema(self, number: int) -> str:
        """Return the key of the *number*-th schema."""
        return f"{self.schemas}{number:010}"

    def assignment(self, version: int) -> str:
        """Return the key of one recorded assignment."""
        return f"{self.assignments}{version:010}"

    def manifest(self, number: int) -> str:
        """Return the key that makes the checkpoint *number* of the whole complete."""
        return f"{self.manifests}epoch-{number}"

    def begun_epoch(self, number: int) -> str:
        """Return the key whose putter makes the checkpoint *number* of the whole."""
        return f"{self.begun}epoch-{number}"

    def epoch_files(self, number: int) -> str:
        """Return the prefix of the files of the checkpoint *number* of the whole."""
        return f"{self.root}checkpoints/epoch-{number}/"

    def epoch_file(self, number: int, partition: int) -> str:
        """Return the key of one partition's file in that checkpoint."""
        return f"{self.epoch_files(number)}{partition:05}"

    def jobs_of_day(self, day: int) -> str:
        """Return the prefix of jobs decided on that *day*, counted from 1970; with a slash."""
        return f"{self.root}jobs/days/{day:06}/"

    def job(self, name: str) -> JobKeys:
        """Return the keys of one job that writes into the keyspace."""
        return JobKeys(f"{self.root}jobs/", name_part(name))

    def partition(self, number: int) -> PartitionKeys:
        """Return the keys of one of its partitions."""
        return PartitionKeys(f"{self.root}p/{number:05}/")


def _root(name: str, generation: int) -> str:
    """Return what follows the cluster in the keys of one generation of a keyspace."""
    return f"/keyspaces/{name_part(name)}/{generation:06}/"


class JobKeys:
    """The keys of one job. A prefix ends with a slash.

    Attributes:
        staged: the prefix of everything that its attempts have staged.
        decision: the key that says, once and for all, whether the job was committed or aborted.
        applied: a key that exists once all partitions have what was committed.
        done: the prefix of partitions that have applied a long job.
        begun: the prefix of partitions that have applied a part of a long job.
        refused: the prefix of rows that partitions refused.
    """

    def __init__(self, root: str, part: str) -> None:
        self.staged = f"{root}staged/{part}/"
        self.decision = f"{root}decided/{part}"
        self.applied = f"{root}applied/{part}"
        self.done = f"{root}done/{part}/"
        self.begun = f"{self.done}begun/"
        self.refused = f"{root}refused/{part}/"
        self._root = root
        self._part = part

    def manifest(self, attempt: str) -> str:
        """Return the key that says what the finished *attempt* has staged."""
        return f"{self.staged}{name_part(attempt)}/manifest"

    def file(self, attempt: str, number: int, staged_ms: int) -> str:
        """Return the key of one file of *attempt*."""
        return f"{self.staged}{name_part(attempt)}/{number:06}-{staged_ms:013}"

    def done_by(self, partition: int) -> str:
        """Return the key that exists once *partition* has applied the job."""
        return f"{self.done}{partition:05}"

    def begun_by(self, partition: int) -> str:
        """Return the key that exists once *partition* has applied a part of the job."""
        return f"{self.begun}{partition:05}"

    def refused_by(self, partition: int, sequence: int, version: int) -> str:
        """Return the key of the rows of one chunk that *partition* refused."""
        return f"{self.refused}{partition:05}-{sequence:010}-{version:02}"

    def of_day(self, day: int) -> str:
        """Return the key that is put before a decision that is made on that *day*."""
        return f"{self._root}days/{day:06}/{self._part}"


class JournalKeys:
    """The keys of one journal.

    Attributes:
        root: the prefix of all of them; ends with a slash. A list looks at slots first.
        marks: the prefix of the marks.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.marks = f"{root}{JOURNAL_MARKS}/"

    def slot(self, slot: int) -> str:
        """Return the key of the record in *slot*."""
        return f"{self.root}{slot:010}"

    def mark(self, slot: int) -> str:
        """Return the key of the mark at *slot*: all that stands below is covered."""
        return f"{self.marks}{slot:010}"

    def numbers(self, keys: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the slots and the marks among *keys*."""
        slots: list[int] = []
        marks: list[int] = []
        for key in keys:
            number = number_in(key)
            if number is not None:
                (marks if key.startswith(self.marks) else slots).append(number)
        return slots, marks


class PartitionKeys:
    """The keys of one partition.

    Attributes:
        root: the prefix of all of them; ends with a slash. A list looks at checkpoints first.
        claims: the prefix of all claims.
        checkpoints: the prefix of all checkpoints.
    """

    def __init__(self, root: str) -> None:
        self.claims = f"{root}{CLAIMS}/"
        self.checkpoints = f"{root}{CHECKPOINTS}/"
        self.root = root

    def claim(self, epoch: int) -> str:
        """Return the key of the claim of *epoch*."""
        return f"{self.claims}{epoch:010}"

    def checkpoint(self, slot: Slot) -> str:
        """Return the key of the state after *slot*."""
        return f"{self.checkpoints}{slot.epoch:010}/{slot.sequence:010}"

    def are_of(self, name: str, generation: int, partition: int) -> bool:
        """Return whether these are the keys of that partition, whatever its cluster's name."""
        return self.root.endswith(f"{_root(name, generation)}p/{partition:05}/")


def number_in(key: str) -> int | None:
    """Return the number at the end of *key*: of a slot, a claim, or a checkpoint of the whole.

    None if there is none.
    """
    digits = key.rsplit("/", 1)[-1].removeprefix("epoch-")
    return int(digits) if digits.isascii() and digits.isdigit() else None


def staged_in(prefix: str, key: str) -> tuple[str, int] | None:
    """Return the job of a staged object, and when it was staged, in milliseconds since 1970.

    The latter is 0 for a manifest. *key* begins with the *prefix* of all staged jobs; return None
    if it cannot be the key of such an object.
    """
    parts = key.removeprefix(prefix).split("/")
    if len(parts) != 3:  # noqa: PLR2004 - job, attempt, and file or manifest
        return None
    digits = parts[-1].rpartition("-")[2]
    staged_ms = int(digits) if digits.isascii() and digits.isdigit() else 0
    return name_of_part(parts[0]), staged_ms


def slot_in(key: str) -> Slot | None:
    """Return the slot at the end of *key*, of a checkpoint; None if there is none."""
    parts = key.rsplit("/", 2)[1:]
    if len(parts) != len(Slot._fields) or not all(
        part.isascii() and part.isdigit() for part in parts
    ):
        return None
    return Slot(int(parts[0]), int(parts[1]))
