"""A store whose verbs are timed, and whose failures are counted."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from ringpop_py.base.errors import StoreUnavailable
from ringpop_py.base.metering import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.state.stores.store import Store

T = TypeVar("T")
PUT, GET, LIST, DELETE = "put", "get", "list", "delete"
VERBS: Final = (PUT, GET, LIST, DELETE)


class MeteredStore:
    """The store *inner*, with its verbs timed.

    A quick `get`, of which each linearizable read makes one, is not timed: looking at the clock
    would take as long as the `get` itself.

    Attributes:
        seconds: how long each verb took, whether it failed or not.
        failed: how often each verb has failed.
        trouble: why the last put failed; empty if it did not.
        trouble_kind: the code of that error.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.quick = inner.quick
        self.in_memory = inner.in_memory
        self.value_bytes_max = inner.value_bytes_max
        self.seconds = {verb: Histogram() for verb in VERBS}
        self.failed: Counter[str] = Counter()
        self.trouble = self.trouble_kind = ""
        self._lock = Lock()  # verbs run in several threads
        self.get = inner.get if inner.quick else self._get

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See `Store`."""
        try:
            put = self._timed(PUT, lambda: self.inner.put_if_absent(key, value))
        except StoreUnavailable as error:
            self.trouble, self.trouble_kind = str(error), error.code
            raise
        self.trouble = self.trouble_kind = ""
        return put

    def _get(self, key: str) -> bytes | None:
        return self._timed(GET, lambda: self.inner.get(key))

    def list(self, prefix: str) -> list[str]:
        """See `Store`."""
        return self._timed(LIST, lambda: self.inner.list(prefix))

    def delete(self, keys: Sequence[str]) -> None:
        """See `Store`."""
        self._timed(DELETE, lambda: self.inner.delete(keys))

    def close(self) -> None:
        """See `Store`."""
        self.inner.close()

    def _timed(self, verb: str, act: Callable[[], T]) -> T:
        began_at = perf_counter()
        failed = False
        try:
            return act()
        except StoreUnavailable:
            failed = True
            raise
        finally:
            took_s = perf_counter() - began_at
            with self._lock:
                self.seconds[verb].observe(took_s)
                self.failed[verb] += failed
