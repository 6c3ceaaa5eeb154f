"""A store as the first version has written it, which every later version has to read.

`first_version.md` says how `first_version.tar.gz` was made. `CONTENTS` and `RESTORED` are what a
reader finds. Every write of `WRITES` has taken effect, under its id.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.stores.folder import FolderStore
from ringpop_py.stores.memory import MemoryStore
from ringpop_py.values.operations import Change, OperationId, Value

if TYPE_CHECKING:
    from ringpop_py.stores.store import Store

ARCHIVE: Final = Path(__file__).parent / "first_version.tar.gz"
NAME: Final = "k"
"""Of the keyspace with `CONTENTS`. It has eight partitions, not all of them with keys."""
RESTORED_NAME: Final = "again"
"""Of a keyspace with `RESTORED`: the second generation, of a checkpoint of the whole."""
PARTITIONS: Final = 8
APPLIED_JOB: Final = "night"
DECIDED_JOB: Final = "dawn"
"""Its rows are staged, and it is committed, but nobody has applied it."""


class Written(NamedTuple):
    """A write of one key, under an id."""

    id: OperationId
    key: str
    operation: str
    argument: Value = None

    @property
    def change(self) -> Change:
        """What it does."""
        return Change(self.key, self.operation, self.argument)


BEFORE: Final = (
    Written(OperationId("once"), "counter", "add", 40),
    Written(OperationId("import/1", 0), "counter", "add", 1),
    Written(OperationId("import/1", 1), "list", "append", "one"),
    Written(OperationId("import/1", 3), "counter", "add", 1),
    Written(OperationId("import/2", 7), "list", "append", 2),
    Written(OperationId("gone"), "deleted", "put", "soon gone"),
)
BETWEEN: Final = (
    Written(OperationId("import/2", 8), "deleted", "delete"),
    Written(OperationId("import/2", 6), "high", "max", 9),
    Written(OperationId("ünï/côdé"), "key with / and é", "put", "text with é"),
)
AFTER: Final = (
    Written(OperationId("import/1", 4), "counter", "add", 8),
    Written(OperationId("another"), "bytes", "put", b"\x00\xff"),
    Written(OperationId("import/3", 4_000), "high", "max", 10),
)
WRITES: Final = BEFORE + BETWEEN + AFTER
PLAIN: Final[dict[str, Value]] = {
    "none": None,
    "true": True,
    "whole": -(1 << 63),
    "float": 0.5,
    "map": {"a": [1, {"b": None}], "": ""},
}
"""Put under ids of a node's own."""
APPLIED_ROWS: Final[dict[str, Value]] = {f"night-{n}": n for n in range(6)}
DECIDED_ROWS: Final[dict[str, Value]] = {f"dawn-{n}": n for n in range(6)}
"""Of the job that is not applied yet: not in `CONTENTS`."""
CONTENTS: Final[dict[str, Value]] = {
    **PLAIN,
    **APPLIED_ROWS,
    "counter": 50,
    "list": ["one", 2],
    "high": 10,
    "key with / and é": "text with é",
    "bytes": b"\x00\xff",
}
RESTORED: Final[dict[str, Value]] = {"from the checkpoint": 1, "afterwards": 3}


def first_version_store() -> MemoryStore:
    """All that is in it, through a `FolderStore`, in memory: for tests in virtual time."""
    store = MemoryStore()
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
        copy_store(FolderStore(folder), store)
    return store


def copy_store(source: Store, target: Store) -> None:
    """Put all that is in *source* into *target*, which is empty."""
    for key in source.list(""):
        value = source.get(key)
        assert value is not None
        target.put_if_absent(key, value)
