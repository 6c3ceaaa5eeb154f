"""Uses messages for the first time in many threads: ``python -m tests.base.values.first_use``.

A process of its own, because a mistake here ends it by a signal.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_py.base.values.declared import Declared, convert, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS: Final = 100


def _messages() -> tuple[type[Declared], type[Declared]]:
    """Return two new classes, of which the second has fields of the first."""

    # Many fields, so that it takes long to find their types.
    class Inner(Declared, frozen=True):
        a: dict[str, list[int | None]]
        b: dict[str, list[int | None]]
        c: dict[str, list[int | None]]
        d: dict[str, list[int | None]]
        e: dict[str, list[int | None]]
        f: dict[str, list[int | None]]

    class Outer(Declared, frozen=True):
        inner: Inner
        others: tuple[Inner, ...]

    Outer.__annotations__["inner"] = Inner
    Outer.__annotations__["others"] = tuple[Inner, ...]
    return Inner, Outer


def main() -> None:
    """Use them."""
    sys.setswitchinterval(1e-6)
    row = [{"x": [1, None]}] * 6
    for _ in range(ROUNDS):
        inner, outer = _messages()
        uses: list[Callable[[], object]] = [
            partial(decode, outer, encode([row, [row]])),
            partial(convert, outer, [row, [row]]),
            partial(decode, inner, encode(row)),
            partial(convert, inner, row),
        ]
        barrier = threading.Barrier(len(uses))
        threads = [threading.Thread(target=_use, args=(barrier, use)) for use in uses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _use(barrier: threading.Barrier, use: Callable[[], object]) -> None:
    barrier.wait()
    use()


if __name__ == "__main__":
    main()
