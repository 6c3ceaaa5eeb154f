"""A store in memory, for tests: linearizable, with faults on demand.

Its contents end with the process. Nodes of one process share a store by sharing the object.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from enum import Enum
from typing import TYPE_CHECKING

from ringpop_py.base.errors import StoreFull, StoreUnavailable
from ringpop_py.state.stores.store import checked_key, checked_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence


class StoreFault(Enum):
    """A fault of a call. FAILS and LOSES_REPLY look the same to the caller."""

    FAILS = "fails"
    """`StoreUnavailable`; nothing takes place."""
    LOSES_REPLY = "loses reply"
    """`StoreUnavailable`; the call takes place."""
    LATE = "late"
    """`StoreUnavailable`; a put takes place later, at `MemoryStore.land_late`."""
    FULL = "full"
    """A put is refused with `StoreFull`. Other verbs do not have this fault."""


class MemoryStore:
    """See `Store`.

    Args:
        bytes_max: how much there is room for.
        value_bytes_max: larger values are refused.

    Attributes:
        calls: how often each verb was called, whatever the outcome.
    """

    quick = True
    in_memory = True

    def __init__(self, *, bytes_max: int | None = None, value_bytes_max: int | None = None) -> None:
        self.value_bytes_max = value_bytes_max
        self.calls: Counter[str] = Counter()
        self._bytes_max = bytes_max
        self._bytes_count = 0
        self._values: dict[str, bytes] = {}
        self._late: list[tuple[str, bytes]] = []
        self._faults: defaultdict[str, deque[StoreFault]] = defaultdict(deque)  # to come, by verb
        self._lock = threading.Lock()

    def inject(self, fault: StoreFault, *, verb: str = "put_if_absent", count: int = 1) -> None:
        """Make the next *count* calls of *verb* suffer *fault*, after faults injected before."""
        assert verb in {"put_if_absent", "get", "list", "delete"}, verb
        assert verb == "put_if_absent" or fault not in {StoreFault.FULL, StoreFault.LATE}, (
            fault,
            verb,
        )
        with self._lock:
            self._faults[verb].extend([fault] * count)

    def heal(self) -> None:
        """Forget the injected faults that have not occurred yet."""
        with self._lock:
            self._faults.clear()

    def land_late(self) -> Sequence[bool]:
        """Carry out all late puts, in their order; return for each whether its key was free."""
        with self._lock:
            late, self._late = self._late, []
            return [self._put(key, value) for key, value in late]

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See `Store`."""
        call = f"put_if_absent {checked_key(key)}"
        with self._lock:
            fault = self._begin("put_if_absent")
            if fault is StoreFault.LATE:
                self._late.append((key, bytes(value)))
                raise _unavailable(call)
            if self.value_bytes_max is not None and len(value) > self.value_bytes_max:
                raise StoreFull(f"memory store: the value of {key} is too large")
            limit = self._bytes_max
            is_full = limit is not None and self._bytes_count + len(value) > limit
            if fault is StoreFault.FULL or (is_full and key not in self._values):
                raise StoreFull(f"memory store: no room for {key}")
            was_put = self._put(key, value)
            _lose(fault, call)
            return was_put

    def get(self, key: str) -> bytes | None:
        """See `Store`."""
        checked_key(key)
        with self._lock:
            _lose(self._begin("get"), f"get {key}")
            return self._values.get(key)

    def list(self, prefix: str) -> list[str]:
        """See `Store`."""
        checked_prefix(prefix)
        with self._lock:
            _lose(self._begin("list"), f"list {prefix}")
            return sorted(key for key in self._values if key.startswith(prefix))

    def delete(self, keys: Sequence[str]) -> None:
        """See `Store`."""
        for key in keys:
            checked_key(key)
        with self._lock:
            fault = self._begin("delete")
            for key in keys:
                self._bytes_count -= len(self._values.pop(key, b""))
            _lose(fault, "delete")  # after the deletion: only the reply is lost

    def close(self) -> None:
        """Do nothing: other nodes may share the store."""

    def _begin(self, verb: str) -> StoreFault | None:
        self.calls[verb] += 1
        faults = self._faults[verb]
        fault = faults.popleft() if faults else None
        if fault is StoreFault.FAILS:
            raise _unavailable(verb)
        return fault

    def _put(self, key: str, value: bytes) -> bool:
        if key in self._values:
            return False
        self._values[key] = bytes(value)  # a copy, as the caller may reuse its buffer
        self._bytes_count += len(value)
        return True


def _lose(fault: StoreFault | None, call: str) -> None:
    if fault is StoreFault.LOSES_REPLY:
        raise _unavailable(call)


def _unavailable(call: str) -> StoreUnavailable:
    return StoreUnavailable(f"memory store: {call}: a fault was injected")
