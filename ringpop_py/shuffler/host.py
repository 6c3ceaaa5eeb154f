"""All shuffles at one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import trio

from ringpop_py.errors import (
    ShuffleConflict,
    ShuffleRefused,
    ShuffleUnavailable,
    ShuffleUnknown,
)
from ringpop_py.shuffle import calls as c
from ringpop_py.shuffle.changes import created
from ringpop_py.shuffle.record import MemberId, Record, State
from ringpop_py.shuffler.shuffle import Shuffle, now_ms, now_us
from ringpop_py.values.declared import encode

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_py.shuffler.here import Process
    from ringpop_py.shuffler.register import Stored

SCAN_S: Final = 5.0
"""How often all records are read, to join shuffles that nobody has asked this process about."""
INTERVALS_MAX: Final = 4_096
TRIES: Final = 5


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

    async def find(self, name: str) -> Shuffle:
        """Return the shuffle *name*, as far as it is known here.

        Raises:
            ShuffleUnknown: if there is none.
            ShuffleUnavailable: if its record cannot be read.
        """
        shuffle = self._shuffles.get(name)
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
            path = self._folder / quote(name, safe="")
            shuffle = self._shuffles[name] = Shuffle(name, self._process, path)
            shuffle.go_by(stored, asked_at)
            self._nursery.start_soon(shuffle.run)
        else:
            shuffle.go_by(stored, asked_at)
        return shuffle

    async def scan(self) -> None:
        """Look for shuffles again and again, until cancelled."""
        while True:
            began = now_us()
            try:
                for name, stored in (await self._register.read_all()).items():
                    if name in self._shuffles or stored.record.state is not State.DELETED:
                        self._known(name, stored, began)
            except ShuffleUnavailable:
                pass
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
        definition = encode(call.definition)
        for _ in range(TRIES):
            began = now_us()
            stored = await self._register.read(call.name)
            former = None if stored is None else stored.record
            if stored is not None and former is not None and former.state is not State.DELETED:
                if (former.definition, former.interval_count) != (definition, call.interval_count):
                    raise ShuffleConflict(
                        f"shuffle {call.name!r} exists with another schema, other keys or another "
                        "number of intervals: delete it first, or choose another name"
                    )
                return self._known(call.name, stored, began)
            record = created(
                former,
                max(now_ms(), 0 if former is None else former.uid + 1),
                definition,
                call.interval_count,
                self._members(),
            )
            if await self._register.set(call.name, stored, record):
                shuffle = await self.find(call.name)
                await shuffle.read()
                return shuffle
        raise ShuffleUnavailable(f"the record of shuffle {call.name!r} cannot be set now")

    def _members(self) -> list[MemberId]:
        there = {host: each.incarnation for host, each in self._watch.shufflers.items()}
        there[self._process.name] = self._process.incarnation
        return [MemberId(host, incarnation) for host, incarnation in there.items()]


def _check(call: c.Create) -> None:
    if not 0 < len(call.name) <= c.NAME_CHARACTERS_MAX or not call.name.isprintable():
        raise ShuffleRefused(
            f"a shuffle's name is 1 to {c.NAME_CHARACTERS_MAX} printable characters, "
            f"not {call.name[:100]!r}"
        )
    if not 0 < call.interval_count <= INTERVALS_MAX:
        raise ShuffleRefused(
            f"a shuffle has 1 to {INTERVALS_MAX} intervals, not {call.interval_count}"
        )
