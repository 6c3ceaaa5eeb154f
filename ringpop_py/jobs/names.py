"""Names of jobs that come in place of another, which was aborted: ``NAME~1``, ``NAME~2`` and so on.

Rows that have to be written under some name go under the first of them that was not aborted. So
that a name was aborted is to be known for as long as anything is known of the one behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SUCCESSORS_MAX: Final = 100


def standing_names(job: str) -> Iterator[str]:
    """*job*, then its successors in their order."""
    yield job
    for number in range(1, SUCCESSORS_MAX):
        yield f"{job}~{number}"


def names_behind(job: str) -> list[str]:
    """What is next after *job*: as the name that was wanted, and, if it is one, as a successor."""
    base, _, digits = job.rpartition("~")
    found = [f"{job}~1"]
    if base and digits.isascii() and digits.isdigit():
        found.append(f"{base}~{int(digits) + 1}")
    return found
