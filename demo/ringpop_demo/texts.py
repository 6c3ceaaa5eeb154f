"""Output that the parts of the demonstration share."""

from __future__ import annotations

from typing import Final

Totals = dict[str, tuple[int, int, int]]
"""Flights, minutes delayed and miles by key."""
DIFFERENCES_SHOWN: Final = 10


def title(text: str) -> None:
    """Print the title of a part."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def show_equality(held: Totals, expected: Totals, twice: int = 0) -> bool:
    """Return whether the nodes hold what is expected, for all keys; print the differences.

    Args:
        twice: the number of keys that two nodes hold.
    """
    keys = sorted(held.keys() | expected.keys())
    different = [key for key in keys if held.get(key) != expected.get(key)]
    flights, minutes, miles = (sum(row[i] for row in held.values()) for i in range(3))
    print(f"keys compared {len(keys):,}, different {len(different):,}, at two nodes {twice:,}")
    print(f"flights {flights:,}, minutes delayed {minutes:,}, miles {miles:,}")
    for key in different[:DIFFERENCES_SHOWN]:
        print(f"  {key}: nodes {held.get(key)}, Spark {expected.get(key)}")
    equal = not different and not twice
    print("EQUAL" if equal else "DIFFERENT", flush=True)
    return equal
