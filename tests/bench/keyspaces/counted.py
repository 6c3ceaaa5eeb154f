"""A store that counts what is asked of another one, and can answer late."""

from __future__ import annotations

import time
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.state.stores.store import Store

T = TypeVar("T")

PUT: Final = "put"
GET: Final = "get"
LIST: Final = "list"
DELETE: Final = "delete"
VERBS: Final = (PUT, GET, LIST, DELETE)

LIST_PRICE: Final = "list price of S3 Standard"
PUT_USD: Final = 0.005 / 1_000
"""What a PUT or a LIST costs: the list price of S3 Standard."""
GET_USD: Final = 0.0004 / 1_000
"""What a GET costs: the list price of S3 Standard."""
LISTED_KEYS_MAX: Final = 1_000
"""The most keys in the answer to one LIST of S3; a longer list takes several requests."""


class StoreCall(NamedTuple):
    """One call of a store that was answered.

    Attributes:
        by: the node that called.
        verb: one of `VERBS`.
        key: the key, the prefix that was listed, or the first key that was deleted.
        value: what was put.
        bytes_count: of the value that was put or found, or of the keys that were listed or
            deleted.
        keys_count: how many keys were put, found, listed or deleted.
    """

    by: str
    verb: str
    key: str
    value: bytes
    bytes_count: int
    keys_count: int
    began_at: float
    ended_at: float

    @property
    def seconds(self) -> float:
        """How long the caller waited."""
        return self.ended_at - self.began_at

    @property
    def usd(self) -> float:
        """What a bucket charges for it. Deleting is free."""
        match self.verb:
            case "put":
                return PUT_USD
            case "list":
                return PUT_USD * max(1, -(-self.keys_count // LISTED_KEYS_MAX))
            case "get":
                return GET_USD
            case _:
                return 0.0


class CountedStore:
    """*inner*, of which it remembers all calls.

    Args:
        by: the name of the node that has this store.
        latency_s: how long each call takes longer than it does anyway. It passes in the thread that
            calls, so that such a store is not `quick`.
        calls: where calls are added, in the order in which they ended; several nodes may share it.
    """

    def __init__(
        self,
        inner: Store,
        *,
        by: str = "a",
        latency_s: float = 0.0,
        calls: list[StoreCall] | None = None,
    ) -> None:
        self.quick = inner.quick and not latency_s
        self.in_memory = inner.in_memory and not latency_s
        self.value_bytes_max = inner.value_bytes_max
        self.calls = [] if calls is None else calls  # threads append, which is one step
        self._inner = inner
        self._by = by
        self._latency_s = latency_s

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See `Store`."""
        return self._timed(
            lambda: self._inner.put_if_absent(key, value),
            lambda _: (PUT, key, value, len(value), 1),
        )

    def get(self, key: str) -> bytes | None:
        """See `Store`."""
        return self._timed(
            lambda: self._inner.get(key),
            lambda value: (GET, key, b"", len(value or b""), int(value is not None)),
        )

    def list(self, prefix: str) -> builtins.list[str]:
        """See `Store`."""
        return self._timed(
            lambda: self._inner.list(prefix),
            lambda keys: (LIST, prefix, b"", sum(map(len, keys)), len(keys)),
        )

    def delete(self, keys: Sequence[str]) -> None:
        """See `Store`. Without keys this asks for nothing, as in all stores."""
        if keys:
            self._timed(
                lambda: self._inner.delete(keys),
                lambda _: (DELETE, keys[0], b"", sum(map(len, keys)), len(keys)),
            )

    def close(self) -> None:
        """See `Store`."""
        self._inner.close()

    def _timed(
        self, call: Callable[[], T], what: Callable[[T], tuple[str, str, bytes, int, int]]
    ) -> T:
        began_at = perf_counter()
        if self._latency_s:
            time.sleep(self._latency_s)
        result = call()
        self.calls.append(StoreCall(self._by, *what(result), began_at, perf_counter()))
        return result


def counts_of(calls: Iterable[StoreCall]) -> dict[str, int]:
    """Return how many of *calls* there are of each of `VERBS`."""
    counter = Counter(call.verb for call in calls)
    return {verb: counter[verb] for verb in VERBS}
