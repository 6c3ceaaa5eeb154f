"""Text that people read, in terminals and logs."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "(hidden)"
"""What stands in the place of a secret."""
_NAMES: Final = r"passw(?:or)?d|secret|token|credential|(?:access|api|private|account)[_-]?key"
_SECRET_NAME: Final = re.compile(_NAMES, re.IGNORECASE)
_SECRETS: Final = (
    (re.compile(r"(?<=://)[^/\s@]+(?=@)"), HIDDEN),  # the user of a URL, and the password
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END|\Z)", re.DOTALL), HIDDEN),
    (re.compile(r"(?<=ringpop-key-1:)[\w=-]+"), HIDDEN),
    (re.compile(r"\b(Bearer|Basic) +[\w.+/=~-]+", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (
        re.compile(rf"""((?:{_NAMES})[\w-]*['"]?\s*[=:]\s*['"]?)[^\s'",;&]+""", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
)


def printable(text: str) -> str:
    """Return *text* with control characters and line breaks written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def redacted(text: str) -> str:
    """Return *text* without what looks like a secret: passwords in URLs, keys, tokens."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def redacted_value(value: object) -> object:
    """Return the plain *value* without what looks like a secret, also by the name of its field."""
    match value:
        case str():
            return redacted(value)
        case dict():
            return {
                name: HIDDEN
                if isinstance(item, str | bytes) and item and _SECRET_NAME.search(str(name))
                else redacted_value(item)
                for name, item in value.items()
            }
        case list() | tuple():
            return [redacted_value(item) for item in value]
        case _:
            return value
