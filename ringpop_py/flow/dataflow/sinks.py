"""The sinks of a dataflow's results, and how results arrive once."""

from __future__ import annotations

import os
import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ringpop_py.base.errors import ConfigError, RecordRefused, SinkFailed
from ringpop_py.base.values.operations import Change, Outcome, Span, Write
from ringpop_py.base.values.packed import encode_value
from ringpop_py.state.catalog.layout import name_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.keyspaces.keyspace import Keyspace

ROWS_MAX: Final = 1 << 24
"""The most results of one worker in one epoch that a `KeyspaceSink` accepts."""
GROUP_ROWS: Final = 1_000
GROUP_BYTES: Final = 1 << 20


class Sent(NamedTuple):
    """The results that one worker's stage has sent on in one epoch.

    It is delivered again after a failure, with the same *id* and the same rows. So results arrive
    once if the sink drops repetitions, and otherwise at least once.

    Attributes:
        epoch: rises for each *number*.
        number: the worker's number among those of its run.
        rows: key and value of each result.
    """

    flow: str
    epoch: int
    number: int
    rows: Sequence[tuple[str, Any]]

    @property
    def id(self) -> str:
        """The name under which the sink may remember it, valid as the name of a file."""
        return f"{name_part(self.flow)}-{self.epoch:012d}-{self.number:04d}"


Sink = Callable[[Sent], Awaitable[None] | None]
"""Delivers a `Sent`. A plain function runs in a thread. If it raises, it is called again."""


class FileSink:
    """Files of JSON, one line a result; each file appears as a whole and once.

    Bytes are written in base64.

    Args:
        folder: is made if it does not exist. All workers have to see the same one.

    Raises:
        ConfigError: *folder* is not a folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder} is not a folder: {error.strerror or error}") from None

    def __call__(self, sent: Sent) -> None:
        """Write the file ``DATAFLOW-EPOCH-NUMBER.jsonl``, durably. Raises SinkFailed."""
        path = self._folder / f"{sent.id}.jsonl"
        lines = (
            encode_value("json", {"key": key, "value": _in_json(value)}) for key, value in sent.rows
        )
        # A name of its own: another worker may deliver the same results at the same time.
        unready = self._folder / f".{sent.id}-{secrets.token_hex(8)}.tmp"
        try:
            if path.exists():
                return
            with unready.open("wb") as file:
                file.writelines(line + b"\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
            unready.replace(path)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            unready.unlink(missing_ok=True)
            raise SinkFailed(f"{path}: {error.strerror or error}") from None


def _in_json(value: Any) -> Any:  # noqa: ANN401 - a value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, list):
        return [_in_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _in_json(item) for name, item in value.items()}
    return value


class KeyspaceSink:
    """A durable keyspace: each result changes its key once, also if it is delivered again.

    Args:
        operation: what a result does to its key: an operation of `Keyspace.update`.
        refused: is called with the key and value of each result that the keyspace never accepts,
            and why, and the dataflow goes on without it. If it is None, later results wait.

    One dataflow writes into a keyspace with an operation through one such sink only.

    Raises:
        ConfigError: the keyspace is in memory mode.
    """

    def __init__(
        self,
        keyspace: Keyspace,
        operation: str = "put",
        *,
        refused: Callable[[str, Any, str], object] | None = None,
    ) -> None:
        self._refused = refused
        if keyspace.definition.mode != "durable":
            raise ConfigError(f"keyspace {keyspace.name!r} is in memory mode: results need a store")
        self._keyspace = keyspace
        self._operation = operation

    async def __call__(self, sent: Sent) -> None:
        """Write the results. Raises SinkFailed if some are refused, or cannot be written now."""
        if len(sent.rows) > ROWS_MAX:
            raise SinkFailed(f"an epoch has {len(sent.rows)} results, of at most {ROWS_MAX}")
        # Results are a source whose positions rise with the epoch. The partition recognises by its
        # mark the results that were delivered before; see `Span`.
        first = sent.epoch * ROWS_MAX + 1
        for rows in _groups(sent.rows):
            await self._write(f"{sent.flow}/{sent.number}/{self._operation}", rows, first)
            first += len(rows)

    async def _write(self, source: str, rows: Sequence[tuple[str, Value]], first: int) -> None:
        keyspace = self._keyspace
        changes: dict[int, list[tuple[int, Change]]] = {}
        for position, (key, value) in enumerate(rows, first):
            change = Change(key, self._operation, value)
            changes.setdefault(keyspace.partition_of(key), []).append((position, change))
        writes = {}
        for number, mine in changes.items():
            positions = tuple(position for position, _ in mine)
            span = Span(source, 0, positions[-1], positions)
            writes[number] = [Write("", 0, tuple(change for _, change in mine), span=span)]
        for number, (outcome,) in (await keyspace.write(writes)).items():
            if isinstance(outcome, RecordRefused) and self._refused is not None:
                await self._write_each(number, source, changes[number], self._refused)
            elif not isinstance(outcome, Outcome):
                raise SinkFailed(f"partition {number} of {keyspace.name}: {outcome}")

    async def _write_each(
        self,
        number: int,
        source: str,
        changes: Sequence[tuple[int, Change]],
        refused: Callable[[str, Any, str], object],
    ) -> None:
        """Write *changes* to a partition one by one, without those that it refuses."""
        for position, change in changes:
            span = Span(source, 0, position, (position,))
            writes = {number: [Write("", 0, (change,), span=span)]}
            (outcome,) = (await self._keyspace.write(writes))[number]
            if isinstance(outcome, RecordRefused):
                refused(change.key, change.argument, str(outcome))
            elif not isinstance(outcome, Outcome):
                raise SinkFailed(f"partition {number} of {self._keyspace.name}: {outcome}")


def _groups(rows: Sequence[tuple[str, Value]]) -> Iterator[Sequence[tuple[str, Value]]]:
    """Yield *rows* in groups that fit into messages."""
    start = size = 0
    for at, row in enumerate(rows):
        size += len(encode_value("msgpack", row))
        if at - start + 1 >= GROUP_ROWS or size >= GROUP_BYTES:
            yield rows[start : at + 1]
            start, size = at + 1, 0
    if start < len(rows):
        yield rows[start:]


async def deliver(sink: Sink, sent: Sent, limiter: trio.CapacityLimiter) -> None:
    """Call *sink*, in a thread as it may block; raises what it raises."""

    def call() -> list[Awaitable[None] | None]:
        return [sink(sent)]  # trio refuses a coroutine by itself: it takes it for a mistake

    (waiting,) = await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)
    if waiting is not None:
        await waiting
