"""From bytes to records: the common part of sources of lines and messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from ringpop_py.base.errors import BodyError, ConfigError
from ringpop_py.base.values.packed import decode_value
from ringpop_py.flow.streams.source import BadRecord, Record

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value

KeyRule = str | Callable[["Value"], str]
Form = Literal["json", "text"]
TEXT_SHOWN: Final = 200


class Parser:
    """Makes records.

    Args:
        key: the field of a value that is its key; or a function that returns the key of a value; or
            None, if each record comes with its key.
        form: what the bytes are: ``json``, or ``text``, whose value is the text itself.

    Raises:
        ConfigError: if *key* and *form* do not fit together, or one is not valid.
    """

    def __init__(self, key: KeyRule | None, form: Form) -> None:
        if form not in ("json", "text"):
            raise ConfigError(f"lines are json or text, not {form!r}")
        if isinstance(key, str) and form == "text":
            raise ConfigError("a line of text has no fields: key is a function of the line")
        if key is not None and not isinstance(key, str) and not callable(key):
            raise ConfigError(f"key is the name of a field, or a function, not {key!r}")
        self._key = key
        self._is_json = form == "json"

    def record(self, position: int, data: bytes, key: bytes | None = None) -> Record | BadRecord:
        """Return the record in *data*, or why *data* has none; *key* is the key beside it."""
        try:
            value = decode_value("json", data) if self._is_json else data.decode().rstrip("\r\n")
            text = self._key_of(value, key)
        except (BodyError, UnicodeDecodeError, ValueError) as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - of the caller's own function
            why = f"the key cannot be found: {type(error).__name__}: {error}"
        else:
            return Record(position, text, value, len(data))
        return BadRecord(position, why, data[:TEXT_SHOWN].decode(errors="replace").rstrip())

    def _key_of(self, value: Value, own: bytes | None) -> str:
        if self._key is None:
            if own is None:
                raise ValueError("it has no key")
            key: object = own.decode()
        elif not isinstance(self._key, str):
            key = self._key(value)
        elif isinstance(value, dict) and self._key in value:
            key = value[self._key]
        else:
            raise ValueError(f"it has no field {self._key!r}")
        if isinstance(key, int) and not isinstance(key, bool):
            key = str(key)
        if not isinstance(key, str) or not key:
            raise ValueError(f"its key is {key!r:.100}, and no text or whole number")
        return key
