"""The terms that a partition knows: of leaders that have written, and of locks on its keys (pure).

They stand among the offsets of the partition, so they are in its log and in checkpoints, and go
where it goes. A lock is ``[term, nonce, until_ms]`` under the name of its key, and the last term
of any lock is under `LOCK_PREFIX` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ringpop_py.base.errors import BadOperation, ConditionFailed, PartitionFull, StaleTerm
from ringpop_py.base.values.operations import KEY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ringpop_py.base.values.operations import Change, Value, Write

FENCE_PREFIX: Final = "fence:"
"""The prefix of the names of offsets that are the highest terms of leaders that have written."""
LOCK_NAME: Final = "\0"
"""What begins the name of a lock. No leader can be called so."""
LOCK_PREFIX: Final = FENCE_PREFIX + LOCK_NAME
TERM_MAX: Final = (1 << 53) - 1
LOCKS_MAX: Final = 1_024
"""The most locks that are held at the same time on keys of one partition."""
LOCKED_KEY_BYTES_MAX: Final = KEY_BYTES_MAX - len(LOCK_PREFIX)
TTL_MS_MAX: Final = 3_600_000
LOCK: Final = "lock"
"""The step that takes a lock. It and the next two are no operations: a lock's record is no key."""
RENEW: Final = "renew"
UNLOCK: Final = "unlock"
_GONE: Final = b"\xc0"  # None, packed


class LockClock(Protocol):
    """See `DueClock`."""

    def set_ms(self) -> int:
        """Return the time from which instants are counted."""

    def due_ms(self) -> int:
        """Return the time up to which instants are due."""


class LockRecord(NamedTuple):
    """A lock that was taken and not released. It can be taken from *until_ms* on."""

    term: int
    nonce: str
    until_ms: int


def is_fence(name: object) -> bool:
    """Return whether the offset *name* says under which term a write is made."""
    return isinstance(name, str) and name.startswith(FENCE_PREFIX)


def held_in(value: Value) -> LockRecord | None:
    """Return the lock in the *value* of an offset."""
    return LockRecord(*value) if type(value) is list else None


def fences_in(offsets: Mapping[str, Value] | None) -> dict[str, int]:
    """Return the terms under which a write is made. Raises BadOperation if one is no term."""
    found: dict[str, int] = {}
    for name, term in (offsets or {}).items():
        if is_fence(name):
            if type(term) is not int or not 0 < term <= TERM_MAX:
                raise BadOperation(
                    f"a term is a whole number from 1 to {TERM_MAX}, not {term!r:.60}"
                )
            found[name] = term
    return found


def is_known(name: str, term: int, offset: Value) -> bool:
    """Return whether the partition, which has *offset* for the fence *name*, knows *term* already.

    Raises:
        StaleTerm: if a later term has written; of a lock, if this is not the term of its holder.
    """
    if name.startswith(LOCK_PREFIX):
        held = held_in(offset)
        if held is None or held.term != term:
            state = f"held in term {held.term}" if held else "not held, or of another partition"
            raise StaleTerm(f"term {term} of the lock on {_key_of(name)!r} is over: it is {state}")
        return True
    known: Any = offset or 0
    if known > term:
        raise StaleTerm.of(name.removeprefix(FENCE_PREFIX), term, known)
    return bool(known == term)


def later_terms(fences: Mapping[str, int], offset_of: Callable[[str], Value]) -> dict[str, Value]:
    """Return what a repetition leaves: its term may be later than that of what took effect."""
    found: dict[str, Value] = {}
    for name, term in fences.items():
        known: Any = offset_of(name) or 0
        if not name.startswith(LOCK_PREFIX) and term > known:
            found[name] = term
    return found


def nonce_in(write: Write) -> str:
    """Return who takes, renews or releases a lock by *write*; empty if it is another write."""
    if not write.offsets or len(write.offsets) > 1:
        return ""
    ((name, nonce),) = write.offsets.items()
    return nonce if type(nonce) is str and str(name).startswith(LOCK_PREFIX) else ""


def step(
    change: Change,
    nonce: str,
    names: Collection[str],
    offset_of: Callable[[str], Value],
    clock: LockClock,
) -> tuple[dict[str, Value], int]:
    """Return the offsets that *change* sets, None for one that goes, and the term of the lock.

    Args:
        nonce: who asks; no other try to hold a lock has it.
        names: of the offsets before the group of writes.

    Raises:
        ConditionFailed: the lock is another's; for all but `LOCK`, or nobody's.
        PartitionFull: too many locks are held.
        BadOperation: it is no step.
    """
    key, operation, ttl_ms = change
    name = f"{LOCK_PREFIX}{key}"
    held = held_in(offset_of(name))
    if not key or operation not in (LOCK, RENEW, UNLOCK):
        raise BadOperation(f"{operation!r} of {key!r} is no step of a lock")
    if type(ttl_ms) is not int or not 0 < ttl_ms <= TTL_MS_MAX:
        raise BadOperation(f"a lock is kept for 1 to {TTL_MS_MAX} ms, not {ttl_ms!r:.60}")
    until_ms = clock.set_ms() + ttl_ms
    if held is not None and held.nonce == nonce:
        kept: Value = [held.term, nonce, until_ms]
        return {name: None if operation == UNLOCK else kept}, held.term
    if operation != LOCK or (held is not None and held.until_ms > clock.due_ms()):
        by = f"another's, in term {held.term}" if held else "nobody's"
        raise ConditionFailed(f"the lock on {key!r} is {by}")
    swept = _swept(names, offset_of, clock.due_ms()) if len(names) >= LOCKS_MAX else {}
    last: Any = offset_of(LOCK_PREFIX) or 0
    return {**swept, LOCK_PREFIX: last + 1, name: [last + 1, nonce, until_ms]}, last + 1


def term_of(key: str, nonce: str, offset_of: Callable[[str], Value]) -> int:
    """Return the term of the lock on *key* if it is held under *nonce*; otherwise 0."""
    held = held_in(offset_of(f"{LOCK_PREFIX}{key}"))
    return held.term if held is not None and held.nonce == nonce else 0


def released_in(offsets: Mapping[str, bytes]) -> list[str]:
    """Return the names in packed *offsets* of locks that are held no longer."""
    if _GONE not in offsets.values():
        return []
    gone = [name for name, packed in offsets.items() if packed == _GONE]
    return [name for name in gone if name.startswith(LOCK_PREFIX)]


def _swept(
    names: Collection[str], offset_of: Callable[[str], Value], now_ms: int
) -> dict[str, Value]:
    # What lapsed and was not released goes when there are many locks, so that others have room.
    locks = [name for name in names if name.startswith(LOCK_PREFIX) and name != LOCK_PREFIX]
    if len(locks) < LOCKS_MAX:
        return {}
    held = {name: held_in(offset_of(name)) for name in locks}
    gone = [name for name, lock in held.items() if lock is None or lock.until_ms <= now_ms]
    if not gone:
        raise PartitionFull(f"on keys of the partition, {LOCKS_MAX} locks are held, the maximum")
    return dict.fromkeys(gone)


def _key_of(name: str) -> str:
    return name.removeprefix(LOCK_PREFIX)
