"""From records of a source to rows of a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import BadOperation
from ringpop_py.base.faults import text_of
from ringpop_py.flow.dataflow.stage import Row, check_plain, check_text
from ringpop_py.flow.streams.source import BadRecord

if TYPE_CHECKING:
    from ringpop_py.flow.streams.source import Record
    from ringpop_py.flow.streams.times import TimeOf

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
