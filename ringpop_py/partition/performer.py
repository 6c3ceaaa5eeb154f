"""Requests of a log, carried out in threads against a store; and checkpoints, read from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ringpop_py.errors import StateDamaged, StoreUnavailable
from ringpop_py.logs import log
from ringpop_py.slotlog.effects import Found, GoneCheckpoint, StoreAnswer, Unreadable

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ringpop_py.partition.checkpoints import Checkpoint
    from ringpop_py.partition.tasks import Worker
    from ringpop_py.slotlog.slots import Slot
    from ringpop_py.stores.layout import PartitionKeys
    from ringpop_py.stores.store import Store

R = TypeVar("R")


class Performer(ABC, Generic[R]):
    """Carries out requests of class R; a refusal by the store is a reply, too.

    Args:
        said: what was logged of damage, if several share it.

    Attributes:
        quick: see `Store.quick`.
        trouble: why the last request failed; None if it did not.
    """

    def __init__(self, worker: Worker, said: set[str] | None = None) -> None:
        self.quick = worker.store.quick
        self.trouble: StoreUnavailable | None = None
        self._worker = worker
        self._store = worker.store
        self._said = set[str]() if said is None else said

    def perform(self, request: R) -> Awaitable[Any]:
        """Carry out *request* in a thread."""
        return self._worker.run(self.perform_now, request)

    def perform_now(self, request: R) -> Any:  # noqa: ANN401 - the replies are those of the log
        """Carry out *request* on this thread. It blocks, unless the store is `quick`."""
        try:
            reply = self._carry_out(request)
        except StoreUnavailable as error:
            self.trouble = error
            return StoreAnswer.FAILED if error.passes else StoreAnswer.NO_ROOM
        except StateDamaged as error:
            self.trouble = StoreUnavailable(str(error))
            self.say_damaged(str(error))
            return Unreadable(str(error))
        self.trouble = None
        return reply

    @abstractmethod
    def _carry_out(self, request: R) -> Any:  # noqa: ANN401 - see `perform_now`
        """Carry out *request*. Raises StoreUnavailable or StateDamaged."""

    def say_damaged(self, text: str) -> None:
        """Log *text*, once: each try finds the same damage again, until it is repaired."""
        if text not in self._said:
            self._said.add(text)
            log.error("state-damaged", text=text)


def gone(key: str, why: str) -> str:
    """Return the error text for an object that is missing, and *why* that matters."""
    return f"{key} is gone, and {why}; restore the object"


def snapshots_at(store: Store, keys: PartitionKeys, slot: Slot) -> Found | GoneCheckpoint:
    """Return the checkpoint at *slot* and those that it builds on, the whole one first."""
    newest = _checkpoint(store, keys, slot)
    if newest is None:
        return GoneCheckpoint(slot)
    snapshots = []
    for earlier in newest.builds_on:
        found = _checkpoint(store, keys, earlier)
        if found is None:
            return GoneCheckpoint(earlier)
        snapshots.append(found.snapshot)
    return Found([*snapshots, newest.snapshot])


def _checkpoint(store: Store, keys: PartitionKeys, slot: Slot) -> Checkpoint | None:
    # Not at the top, because pyarrow takes 60 MB.
    from ringpop_py.partition.checkpoints import decode_checkpoint  # noqa: PLC0415

    key = keys.checkpoint(slot)
    value = store.get(key)
    if value is None:
        return None
    try:
        found = decode_checkpoint(value)
    except StateDamaged as error:
        raise StateDamaged(f"{key}: {error}") from None
    # A file is sealed, but it does not know its key: an operator may have copied it elsewhere.
    if found.slot != slot or not keys.are_of(found.keyspace, found.generation, found.partition):
        raise StateDamaged(
            f"{key} is a checkpoint of another slot or partition; restore the object"
        )
    return found
