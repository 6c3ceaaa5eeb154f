"""Keyed stages, and tumbling windows as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ringpop_py.base.errors import BadOperation, ConfigError
from ringpop_py.base.faults import text_of
from ringpop_py.base.values.operations import SCALARS
from ringpop_py.base.values.packed import INTEGER_MAX
from ringpop_py.flow.streams.source import BadRecord
from ringpop_py.state.table.aggregations import check_value

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value
    from ringpop_py.flow.exchange.state import StageState
    from ringpop_py.flow.streams.source import Record
    from ringpop_py.flow.streams.times import TimeOf


class Row(NamedTuple):
    """A record on its way to a stage.

    Attributes:
        time: the time of its event, in the application's unit; None if records have no times.
    """

    key: str
    value: Any
    time: int | None


def check_plain(value: object) -> None:
    """Check that *value* can be kept and comes back equal. Raises BadOperation."""
    if type(value) not in SCALARS:
        check_value(value)
    elif type(value) is int and not -INTEGER_MAX <= value <= INTEGER_MAX:
        raise BadOperation("a number has at most 64 bits")


def check_text(key: object) -> None:
    """Check that *key* is text that others can read. Raises BadOperation."""
    if type(key) is not str or (not key.isascii() and not _is_unicode(key)):
        raise BadOperation(f"a key is text, not {key!r:.100}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Context:
    """The information and acts of a stage besides the state of a key; one for all calls.

    Attributes:
        key: the key of the state.
        watermark: records that come later have later times, unless they are late; None before the
            first one.
        late_count: how many records have come too late; a stage counts them with `late`.
    """

    def __init__(self) -> None:
        self.key = ""
        self.watermark: int | None = None
        self.late_count = 0
        self._late_told = 0
        self._last_late = ""
        self._emitted: list[tuple[str, Value]] = []
        self._wake: int | None = None

    def emit(self, key: str, value: Value) -> None:
        """Send *value* on, to the sink. It arrives once the epoch is complete, and once only.

        Raises:
            BadOperation: *value* is not plain (text, a number, bytes, true or false, None, or
                lists and maps of these, whose keys are text), or *key* is not text.
        """
        check_text(key)
        check_plain(value)
        self._emitted.append((key, value))

    def wake_at(self, time: int) -> None:
        """Have `wake` called with this key once the watermark is at *time*.

        It replaces an earlier time for this key.
        """
        self._wake = time

    def late(self, row: Row) -> None:
        """Count *row* as one that comes too late."""
        self.late_count += 1
        at = f"at {row.time}, and the watermark is {self.watermark}"
        self._last_late = f"of key {self.key!r:.200} {at}"


Process = Callable[[Any, Sequence[Row], Context], Any]


class Stage(Protocol):
    """Processes the records of a key, in the worker that has the key. It runs in a thread."""

    def process(self, state: Any, rows: Sequence[Row], context: Context) -> Any:  # noqa: ANN401 - its own
        """Return the state of ``context.key`` after *rows*.

        Args:
            state: the last return value for the key; None at first. Returning None forgets the key.
        """

    def wake(self, state: Any, context: Context) -> Any:  # noqa: ANN401 - its own
        """Return the state of ``context.key``, which has asked for this with `Context.wake_at`."""


class _Plain:
    """A function as a stage."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def wake(self, state: Any, context: Context) -> Any:  # noqa: ANN401 - its own
        """Change nothing."""
        del context
        return state


def checked_stage(stage: Stage | Process) -> Stage:
    """Return *stage*, or a stage that calls it if it is a function. Raises ConfigError."""
    if hasattr(stage, "process") and hasattr(stage, "wake"):
        return stage
    if callable(stage):
        return _Plain(stage)
    raise ConfigError(
        "a stage is a function of the state, rows and the context, or has process and wake, not "
        f"{stage!r:.100}"
    )


class StageRunner:
    """A stage with its state. It is used by one thread at a time.

    Attributes:
        context: passed to the stage.
        rows_count: how many rows were processed.
    """

    def __init__(self, stage: Stage, state: StageState, watermark: int | None) -> None:
        self.state = state
        self.context = Context()
        self.context.watermark = watermark
        self.rows_count = 0
        self._stage = stage

    def process(self, rows: Sequence[Row]) -> None:
        """Have the stage process *rows*, by key; raise its errors."""
        by_key: dict[str, list[Row]] = {}
        for row in rows:
            by_key.setdefault(row.key, []).append(row)
        state, context, process = self.state, self.context, self._stage.process
        for key, mine in by_key.items():
            context.key, context._wake = key, state.wakes.get(key)  # noqa: SLF001 - of this module
            value = process(state.values.get(key), mine, context)
            self._set(key, value)
        self.rows_count += len(rows)

    def advance(self, time: int) -> None:
        """Wake the stage for all keys that are due at the watermark *time*."""
        state, context = self.state, self.context
        context.watermark = time
        for key in state.due(time):
            context.key, context._wake = key, None  # noqa: SLF001
            self._set(key, self._stage.wake(state.values.get(key), context))

    def _set(self, key: str, value: object) -> None:
        try:
            check_plain(value)
        except BadOperation as error:
            raise BadOperation(f"the state of key {key!r:.200}: {error}") from None
        wake = self.context._wake  # noqa: SLF001
        if wake is not None and type(wake) is not int:
            raise BadOperation(f"key {key!r:.200} is woken at a whole number, not {wake!r:.100}")
        self.state.set(key, value, wake)

    def take_emitted(self) -> list[tuple[str, Value]]:
        """Return the results since the last call."""
        context = self.context
        emitted, context._emitted = context._emitted, []  # noqa: SLF001
        return emitted

    def take_late(self) -> tuple[int, str]:
        """Return how many records came too late since the last call, and one of them."""
        context = self.context
        count = context.late_count - context._late_told  # noqa: SLF001
        context._late_told = context.late_count  # noqa: SLF001
        return count, context._last_late  # noqa: SLF001


class Tumbling:
    """A stage of windows that follow each other: each record is in one, by its time.

    A window ends when the watermark is at its end. Then ``{"start": ..., "end": ..., "value":
    ...}`` is sent on under its key, and the window forgotten. A record whose window has ended is
    late: it is counted, and goes nowhere else.

    Args:
        size: the length of a window, in the unit of times; windows begin at multiples of it.
        add: returns the value of a window after one more record; the first value is None.

    Raises:
        ConfigError: *size* or *add* cannot be used.
    """

    def __init__(self, size: int, add: Callable[[Any, Any], Any]) -> None:
        if not isinstance(size, int) or size < 1:
            raise ConfigError(f"the size of a window is a whole number above 0, not {size!r}")
        if not callable(add):
            raise ConfigError(f"add is a function of two values, not {add!r:.100}")
        self._size = size
        self._add = add

    def process(self, state: Any, rows: Sequence[Row], context: Context) -> Value:  # noqa: ANN401 - its own
        """See `Stage`."""
        windows: dict[int, Value] = dict(state or ())
        size, mark = self._size, context.watermark
        for row in rows:
            if row.time is None:
                raise ConfigError(
                    "windows need the times of records: start_dataflow(..., time=...)"
                )
            start = row.time // size * size
            if mark is not None and start + size <= mark:
                context.late(row)
            else:
                windows[start] = self._add(windows.get(start), row.value)
        return self._rest(windows, context)

    def wake(self, state: Any, context: Context) -> Value:  # noqa: ANN401 - its own
        """See `Stage`."""
        windows: dict[int, Value] = dict(state or ())
        mark = context.watermark
        assert mark is not None
        for start in sorted(start for start in windows if start + self._size <= mark):
            end = start + self._size
            context.emit(context.key, {"start": start, "end": end, "value": windows.pop(start)})
        return self._rest(windows, context)

    def _rest(self, windows: dict[int, Value], context: Context) -> Value:
        if not windows:
            return None
        context.wake_at(min(windows) + self._size)
        return [[start, value] for start, value in windows.items()]


ROW_BYTES_MAX: Final = 4 << 20
"""The most bytes of a record; a larger one cannot be sent, as a message has at most 8 MiB."""
KEY_CHARACTERS_MAX: Final = 4_096


def row_of(record: Record | BadRecord, time_of: TimeOf | None) -> tuple[Row | None, str]:
    """Return the row of *record*, or the reason why it has none."""
    why = _why_not(record)
    if why or isinstance(record, BadRecord):
        return None, why
    if time_of is None:
        return Row(record.key, record.value, None), ""
    try:
        time = time_of(record.value)
    except Exception as error:  # noqa: BLE001 - of the application's own function
        return None, f"its time cannot be found: {type(error).__name__}: {text_of(error)}"
    if type(time) is not int or not -(1 << 63) <= time < 1 << 63:
        return None, f"its time is {time!r:.100}, not a whole number of 64 bits"
    return Row(record.key, record.value, time), ""


def _why_not(record: Record | BadRecord) -> str:
    """Return why *record* cannot be used, as far as it shows; empty if it can."""
    if isinstance(record, BadRecord):
        return record.why
    if len(record.key) > KEY_CHARACTERS_MAX:
        return f"its key has {len(record.key)} characters, of at most {KEY_CHARACTERS_MAX}"
    if record.size > ROW_BYTES_MAX:
        return f"it has {record.size} bytes, of at most {ROW_BYTES_MAX}"
    try:
        check_text(record.key)
        check_plain(record.value)
    except BadOperation as error:
        return str(error)
    return ""
