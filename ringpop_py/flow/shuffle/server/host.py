"""All shuffles at one process."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import (
    BodyError,
    ShuffleConflict,
    ShuffleEnded,
    ShuffleError,
    ShuffleRefused,
    ShuffleUnavailable,
    ShuffleUnknown,
)
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import keep_running
from ringpop_py.base.values.arrow import schema_in
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.changes import created
from ringpop_py.flow.shuffle.protocol.messages import Answer
from ringpop_py.flow.shuffle.protocol.record import MemberId, Record, State
from ringpop_py.flow.shuffle.server.framestore import name_in_files
from ringpop_py.flow.shuffle.server.shuffle import Shuffle, now_ms, now_us
from ringpop_py.flow.shuffle.sorting.frame_builder import last_frame_of, next_entries
from ringpop_py.flow.shuffle.sorting.frames import entry_of
from ringpop_py.flow.shuffle.sorting.interval import batches_of
from ringpop_py.flow.shuffle.sorting.order import Order

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_py.flow.shuffle.server.context import Process
    from ringpop_py.flow.shuffle.server.register import Stored

SCAN_S: Final = 5.0
"""Seconds between two readings of all records, to join shuffles that no caller has named here."""
TRIES: Final = 5
PUT_S: Final = 30.0
PAUSE_S: Final = 0.05
LISTED_MAX: Final = 32
"""The most shuffles that are listed for people."""


class Host:
    """See the module."""

    def __init__(self, process: Process, folder: Path, nursery: trio.Nursery) -> None:
        self._process = process
        self._register = process.register
        self._watch = process.watch
        self._folder = folder
        self._nursery = nursery
        self._shuffles: dict[str, Shuffle] = {}

    # Shuffles.

    def by_state(self) -> dict[str, int]:
        """Return how many shuffles are in each state, as far as they are known here."""
        return dict(Counter(shuffle.record.state.value for shuffle in self._shuffles.values()))

    def listed(self) -> list[dict[str, object]]:
        """Return how far shuffles are, each as a `ShuffleSeen`; those that change come first."""
        records = {name: shuffle.record for name, shuffle in self._shuffles.items()}
        shown = sorted(records, key=lambda name: (records[name].state.is_settled, name))
        return [records[name].seen(name) for name in shown[:LISTED_MAX]]

    async def find(self, name: str) -> Shuffle:
        """Return the shuffle *name*, as far as it is known here.

        Raises:
            ShuffleUnknown: if no such shuffle was created.
            ShuffleUnavailable: if its record cannot be read.
        """
        shuffle = self._shuffles.get(name)
        if shuffle is not None and shuffle.has_ended:
            raise _ending(name)
        if shuffle is None:
            began = now_us()
            stored = await self._register.read(name)
            if stored is None:
                raise ShuffleUnknown(f"there is no shuffle {name!r}: create it first")
            shuffle = self._known(name, stored, began)
        return shuffle

    def _known(self, name: str, stored: Stored, asked_at: int) -> Shuffle:
        shuffle = self._shuffles.get(name)
        if shuffle is None:
            path = self._folder / name_in_files(name)
            shuffle = Shuffle(name, self._process, path)
            shuffle.go_by(stored, asked_at)
            self._shuffles[name] = shuffle
            self._nursery.start_soon(self._run, shuffle)
        elif shuffle.has_ended:
            raise _ending(name)
        else:
            shuffle.go_by(stored, asked_at)
        return shuffle

    async def _run(self, shuffle: Shuffle) -> None:
        await keep_running(f"shuffle {shuffle.name!r}", shuffle.run)  # until it is deleted
        del self._shuffles[shuffle.name]

    async def tidy(self) -> None:
        """Remove what former processes have left in the store; retry until that succeeds."""
        while True:
            try:
                await self._process.frames.tidy(self._register)
            except ShuffleUnavailable as error:
                log.info("shuffle-retries", why=str(error), duty="tidy the store")
                await trio.sleep(SCAN_S)
            except ShuffleError as error:
                text = f"what is left of shuffles stays in the store: {error}"
                log.warning("shuffle-trouble", text=text)
                return
            else:
                return

    async def scan(self) -> None:
        """Look for shuffles again and again, until cancelled."""
        while True:
            began = now_us()
            found: dict[str, Stored] = {}
            with suppress(ShuffleUnavailable):
                found = await self._register.read_all()
            for name, stored in found.items():
                if name not in self._shuffles and stored.record.state is State.DELETED:
                    continue
                try:
                    self._known(name, stored, began)
                except ShuffleUnavailable:
                    continue  # until the former one of that name has ended
                except Exception:  # the others go on
                    log.exception("shuffle-failed", shuffle=name)
            await trio.sleep(SCAN_S)

    async def follow(self) -> None:
        """Tell all shuffles when processes come or go, until cancelled."""
        known = self._watch.shufflers
        while True:
            await self._watch.changed.wait()
            if self._watch.shufflers != known:
                known = self._watch.shufflers
                for shuffle in self._shuffles.values():
                    shuffle.here.nudge()

    def has_member_at(self, host: str) -> bool:
        """Return whether *host* is that of a process for shuffles, as far as it is known."""
        return any(each.rpartition(":")[0] == host for each in self._watch.addresses().values())

    def described(self, name: str, record: Record) -> c.Described:
        """Return *record* with the addresses of all processes."""
        return c.Described(name, record, self._watch.addresses())

    async def all(self) -> c.Listed:
        """Return all shuffles that are not deleted. Raises ShuffleUnavailable."""
        records = await self._register.read_all()
        return c.Listed(
            tuple(
                self.described(name, stored.record)
                for name, stored in sorted(records.items())
                if stored.record.state is not State.DELETED
            )
        )

    async def create(self, call: c.Create) -> Shuffle:
        """Create a shuffle, unless it is there with this definition.

        Raises:
            ShuffleConflict: if it is there with another one.
            ShuffleRefused: if there can be no such shuffle.
            ShuffleUnavailable
        """
        _check(call)
        is_stored = call.definition.durability == "store"
        if is_stored:
            self._process.frames.check()
        definition = encode(call.definition)
        for _ in range(TRIES):
            began = now_us()
            stored = await self._register.read(call.name)
            former = None if stored is None else stored.record
            if stored is not None and former is not None and former.state is not State.DELETED:
                if (former.definition, former.interval_count) != (definition, call.interval_count):
                    raise ShuffleConflict(
                        f"shuffle {call.name!r} exists with another schema, other keys, another "
                        "number of intervals or another durability: delete it first, or choose "
                        "another name"
                    )
                return self._known(call.name, stored, began)
            record = created(
                former,
                max(now_ms(), 0 if former is None else former.uid + 1),
                definition,
                call.interval_count,
                self._members(),
                is_stored=is_stored,
            )
            if await self._register.set(call.name, stored, record):
                shuffle = await self.find(call.name)
                await shuffle.read()
                return shuffle
        raise ShuffleUnavailable(f"the record of shuffle {call.name!r} cannot be set now")

    async def feed(self, source: Shuffle, call: c.Feed) -> c.Said | c.Fed:
        """Put the rows of an interval of *source* into another shuffle, in its random order.

        Raises:
            ShuffleEnded, ShuffleDeleted: the other one takes no rows.
            ShuffleUnavailable, ShuffleFull
        """
        found = await source.get(c.Get(call.name, call.uid, call.version, call.interval))
        if isinstance(found, c.Said):
            return found
        target = await self.find(call.target)
        if not await target.fresh(call.target_uid, 0):
            raise ShuffleUnavailable(f"the record of shuffle {call.target!r} cannot be read now")
        order, definition = target.here.order, decode(c.Definition, target.record.definition)
        if order is None or definition.seed is None or target.record.uid != call.target_uid:
            raise ShuffleRefused(f"shuffle {call.target!r} does not have a random order")
        seed, path = definition.seed, found[1]
        frames = rows = 0
        batches = batches_of(path)
        life, in_order = source.member.life, (order, (seed, call.interval), call.attempt)
        while True:
            try:
                entries, count = await trio.to_thread.run_sync(
                    next_entries, batches, *in_order, frames, rows
                )
            except (BodyError, OSError) as error:
                source.here.failed(error, life)
                raise ShuffleUnavailable(f"interval {call.interval} is damaged here") from None
            if not entries:
                break
            for entry in entries:
                await _put(target, call.target_uid, entry)
            frames, rows = frames + len(entries), rows + count
        last = entry_of(last_frame_of(call.attempt, frames, rows))
        await _put(target, call.target_uid, last)
        return c.Fed(frames, rows)

    def _members(self) -> list[MemberId]:
        there = {host: each.incarnation for host, each in self._watch.shufflers.items()}
        there[self._process.name] = self._process.incarnation
        return [MemberId(host, incarnation) for host, incarnation in there.items()]


def _ending(name: str) -> ShuffleUnavailable:
    return ShuffleUnavailable(f"the former shuffle {name!r}, which was deleted, still ends here")


async def _put(target: Shuffle, uid: int, entry: bytes) -> None:
    """Put a frame as a client does, here, until it is acknowledged."""
    with trio.move_on_after(PUT_S):
        while True:
            answer = Answer((await target.put(uid, entry)).answer)
            if answer is Answer.OK:
                return
            if answer is not Answer.NOT_NOW:
                raise ShuffleEnded(f"shuffle {target.name!r} takes no more rows")
            await trio.sleep(PAUSE_S)
    raise ShuffleUnavailable(f"shuffle {target.name!r} took no rows here within {PUT_S:g} s")


def _check(call: c.Create) -> None:
    call.check()
    try:
        schema = schema_in(call.definition.schema)
    except BodyError as error:
        raise ShuffleRefused(f"the schema cannot be read here: {error}") from None
    Order(schema, call.definition.by)  # raises ShuffleRefused
