"""Values larger than a store takes, in pieces: for those who use the store, a value like any other.

The pieces are put first, each with a checksum, under names that no other attempt uses. Then a short
head is put under the value's own key, and this put decides, as that of a small value does. So a
value is there as a whole or not at all, and of several puts one wins.

The pieces of ``a/b/c`` lie at ``a/%pieces/b/c/<attempt>/<number>``, which no list shows. A process
that ends between two pieces, or while it deletes, leaves pieces without a head. Now and then each
process looks for them, and deletes those that it has met an hour before. No put takes that long,
unless its process was stopped; so each put that has won looks whether its pieces are still there.
"""

from __future__ import annotations

import os.path
import secrets
import time
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ringpop_py.base.errors import StateDamaged, StoreUnavailable
from ringpop_py.base.values.checksum import (
    CHECKSUM_BYTES,
    HEAD,
    unwrap,
    unwrap_message,
    wrap,
    wrap_message,
)
from ringpop_py.base.values.declared import Declared, Natural, Text
from ringpop_py.state.stores.store import KEY_CHARACTERS_MAX, checked_key

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator, Sequence

    from ringpop_py.state.stores.store import Store

T = TypeVar("T")

MAGIC: Final = b"\xc1PIECES\n"
"""The beginning of a head. A value that happens to begin like this is put as a piece."""
PIECES: Final = "%pieces"
"""The second part of the keys of pieces. A name is never encoded like this (`layout.name_part`)."""
ATTEMPT_BYTES: Final = 8
DIGITS: Final = 6
CUT_KEY_CHARACTERS_MAX: Final = (
    KEY_CHARACTERS_MAX - len(f"/{PIECES}//") - 2 * ATTEMPT_BYTES - DIGITS
)
"""The key of a piece is longer. Values of longer keys are put as they are."""
AT_ONCE: Final = 4
"""The most pieces of one value that are put, or read, at a time."""
SWEEP_S: Final = 3_600.0
"""The seconds between two looks at pieces without a head. What both have met is deleted."""


class Attempt(NamedTuple):
    """One put of a value in pieces."""

    key: str
    token: str

    def piece(self, number: int) -> str:
        """Return the key of that piece."""
        return f"{_place_of(self.key)}/{self.token}/{number:0{DIGITS}}"

    def bound_to(self, number: int) -> str:
        """Return what the checksum of that piece is bound to, instead of its key."""
        return f"{self.key}/{self.token}/{number}"


class PieceTable(Declared, frozen=True):
    """The contents of a head: where the pieces are, and how many bytes they have together."""

    token: Text
    count: Natural
    size_bytes: Natural


def in_pieces(store: Store) -> Store:
    """Return *store* as one that takes values of any size."""
    return store if store.value_bytes_max is None else PiecedStore(store, store.value_bytes_max)


class PiecedStore:
    """See the module. A `get` raises `StateDamaged` if a piece is gone or was changed.

    Args:
        value_bytes_max: larger values are cut.
        clock: the seconds since any moment.
    """

    value_bytes_max = None

    def __init__(
        self, inner: Store, value_bytes_max: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.quick = inner.quick
        self.in_memory = inner.in_memory
        self.inner = inner
        self._limit = value_bytes_max
        self._piece_bytes = value_bytes_max - len(HEAD) - CHECKSUM_BYTES
        self._clock = clock
        self._lock = Lock()
        # By the first part of keys: when to look next, and whose pieces were met by the last look.
        self._looks: dict[str, tuple[float, frozenset[Attempt]]] = {}

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See `Store`."""
        is_small = len(value) <= self._limit and not value.startswith(MAGIC)
        if is_small or len(key) > CUT_KEY_CHARACTERS_MAX:
            return self.inner.put_if_absent(key, value)
        checked_key(key)
        self._sweep(_cluster_of(key))
        if self.inner.get(key) is not None:
            return False
        attempt = Attempt(key, secrets.token_hex(ATTEMPT_BYTES))
        count = -(-len(value) // self._piece_bytes)
        has_lost = True
        try:
            self._put_pieces(attempt, value, count)
            table = PieceTable(attempt.token, count, len(value))
            head = MAGIC + wrap_message(table, key)
            has_lost = False  # while that is open, the pieces have to stay
            won = self.inner.put_if_absent(key, head)
            has_lost = not won
            if won:
                self._confirm(attempt, head, count)
        except StoreUnavailable as error:
            has_lost = error.took_effect == "no"
            raise
        finally:
            if has_lost:
                with suppress(StoreUnavailable):  # otherwise a sweep deletes them
                    self.inner.delete([*map(attempt.piece, range(count))])
        return won

    def _put_pieces(self, attempt: Attempt, value: bytes, count: int) -> None:
        size = self._piece_bytes

        def put(number: int) -> None:
            piece = value[number * size : (number + 1) * size]
            key = attempt.piece(number)
            self.inner.put_if_absent(key, wrap(piece, attempt.bound_to(number)))

        try:
            self._each(put, count)
        except StoreUnavailable as error:
            error.took_effect = "no"  # there is no head
            raise

    def _confirm(self, attempt: Attempt, head: bytes, count: int) -> None:
        """Take the put of *head* back if its pieces were swept before."""
        there = self.inner.list(f"{_place_of(attempt.key)}/{attempt.token}/")
        if len(there) == count or self.inner.get(attempt.key) != head:  # or it was deleted since
            return
        self.inner.delete([attempt.key])
        error = StoreUnavailable(f"{attempt.key}: its pieces were deleted before it was there")
        error.took_effect = "no"
        raise error

    def get(self, key: str) -> bytes | None:
        """See `Store`."""
        value = self.inner.get(key)
        return value if value is None or not value.startswith(MAGIC) else self._whole(key, value)

    def _whole(self, key: str, found: bytes) -> bytes | None:
        head = _table_in(found, key)
        attempt = Attempt(key, head.token)

        def get(number: int) -> bytes | None:
            piece = self.inner.get(attempt.piece(number))
            return None if piece is None else unwrap(piece, attempt.bound_to(number))

        pieces = self._each(get, head.count)
        there = [piece for piece in pieces if piece is not None]
        if len(there) == head.count:
            return b"".join(there)
        if self.inner.get(key) != found:  # it was deleted meanwhile
            return self.get(key)
        gone = attempt.piece(pieces.index(None))
        raise StateDamaged(f"{key} cannot be read: {gone} is gone; restore the object")

    def list(self, prefix: str) -> list[str]:
        """See `Store`."""
        found = self.inner.list(prefix)
        if prefix.count("/") > 1:
            return found
        return [key for key in found if not _is_piece(key)]

    def delete(self, keys: Sequence[str]) -> None:
        """See `Store`."""
        pieces: builtins.list[str] = []
        wanted = set(keys)
        for cluster, folder in _folders(keys):
            self._sweep(cluster)
            for attempt, its in self._attempts(folder).items():
                if attempt.key in wanted and self._is_there(attempt):
                    pieces += its
        self.inner.delete(keys)
        if pieces:
            self.inner.delete(pieces)

    def close(self) -> None:
        """See `Store`."""
        self.inner.close()

    # Pieces.

    def _attempts(self, prefix: str) -> dict[Attempt, builtins.list[str]]:
        """Return the keys of all pieces under *prefix*."""
        found: dict[Attempt, builtins.list[str]] = {}
        for key in filter(_is_piece, self.inner.list(prefix)):
            place, token, _ = key.rsplit("/", 2)
            found.setdefault(Attempt(place.replace(f"/{PIECES}", "", 1), token), []).append(key)
        return found

    def _is_there(self, attempt: Attempt) -> bool:
        """Return whether the value of *attempt* is there, or may be."""
        value = self.inner.get(attempt.key)
        if value is None or not value.startswith(MAGIC):
            return False
        try:
            return _table_in(value, attempt.key).token == attempt.token
        except StateDamaged:  # it may be restored
            return True

    def _sweep(self, cluster: str) -> None:
        """Delete the pieces of attempts that have failed long ago, if it is time to look."""
        now = self._clock()
        with self._lock:
            look_at, before = self._looks.get(cluster, (now, frozenset()))
            if now < look_at:
                return
            self._looks[cluster] = now + SWEEP_S, before
        with suppress(StoreUnavailable):  # there is a next time
            attempts = self._attempts(f"{cluster}/{PIECES}/")
            for attempt in sorted(before & attempts.keys()):
                if not self._is_there(attempt):
                    self.inner.delete(attempts[attempt])
            self._looks[cluster] = now + SWEEP_S, frozenset(attempts)

    def _each(self, one: Callable[[int], T], count: int) -> builtins.list[T]:
        """Return the results of *one* for the numbers below *count*; raise the first error."""
        results: dict[int, T] = {}
        errors: builtins.list[BaseException] = []
        numbers = iter(range(count))

        def work() -> None:
            for number in numbers:  # each goes to one thread
                if errors:
                    return
                try:
                    results[number] = one(number)
                except BaseException as error:  # noqa: BLE001 - raised again below
                    errors.append(error)

        others = 0 if self.in_memory else min(count, AT_ONCE) - 1
        # Threads that do not keep a process from ending, unlike those of a pool.
        threads = [Thread(target=work, daemon=True) for _ in range(others)]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return [results[number] for number in range(count)]


def _table_in(head: bytes, key: str) -> PieceTable:
    return unwrap_message(PieceTable, head[len(MAGIC) :], key, "table of pieces")


def _is_piece(key: str) -> bool:
    return key.split("/", 2)[1:2] == [PIECES]


def _cluster_of(key: str) -> str:
    return key.partition("/")[0]


def _place_of(key: str) -> str:
    """Return the folder of the pieces of *key*."""
    cluster, slash, rest = key.partition("/")
    return f"{cluster}/{PIECES}{slash}{rest}"


def _folders(keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the clusters of *keys*, and prefixes under which the pieces of all of them lie."""
    clusters: dict[str, list[str]] = {}
    for key in keys:
        if len(checked_key(key)) <= CUT_KEY_CHARACTERS_MAX:
            clusters.setdefault(_cluster_of(key), []).append(_place_of(key))
    for cluster, places in clusters.items():
        yield cluster, f"{os.path.commonpath(places)}/"
