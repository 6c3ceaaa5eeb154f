"""Names of jobs that replace an aborted one: ``NAME~1``, ``NAME~2`` and so on.

Rows are written under the first of these names that was not aborted. So an aborted name has to be
remembered for as long as the name after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SUCCESSORS_MAX: Final = 100


def standing_names(job: str) -> Iterator[str]:
    """Yield *job*, then its successors in order."""
    yield job
    for number in range(1, SUCCESSORS_MAX):
        yield f"{job}~{number}"


def names_behind(job: str) -> list[str]:
    """Return the names after *job*: as a first name, and as a successor if it looks like one."""
    base, _, digits = job.rpartition("~")
    found = [f"{job}~1"]
    if base and digits.isascii() and digits.isdigit():
        found.append(f"{base}~{int(digits) + 1}")
    return found
