"""Text that people read, in terminals and logs."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return *text* with control characters and line breaks written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
