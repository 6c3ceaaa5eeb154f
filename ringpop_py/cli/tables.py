"""Tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """*rows* under *heads*, columns as wide as their contents; numbers stand to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [
        max(len(head), *(len(row[i]) for row in texts)) if texts else len(head)
        for i, head in enumerate(heads)
    ]
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        for i in range(len(heads))
    ]
    lines = [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in [list(heads), *texts]
    ]
    return "\n".join(lines)
