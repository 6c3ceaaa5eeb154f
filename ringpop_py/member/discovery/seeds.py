"""The seeds of a node: the hosts of its configuration, and those that a file lists now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import trio

from ringpop_py.base.address import Address, DnsLookup
from ringpop_py.base.errors import HostsFileError
from ringpop_py.base.logs import log
from ringpop_py.member.discovery.hosts import read_hosts_file
from ringpop_py.member.discovery.names import RESOLVE_S_MAX, resolved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ringpop_py.base.address import Host
    from ringpop_py.member.discovery.names import Resolve


REFRESH_S_MAX: Final = 2.0


class Resolver(NamedTuple):
    """The functions that find the addresses behind hosts.

    Attributes:
        resolve: returns the addresses of a name.
        look_up: returns the hosts of a lookup, or raises OSError.
        is_member: returns whether a member is known under an address.
    """

    resolve: Resolve
    look_up: Callable[[DnsLookup], Awaitable[Sequence[Address]]]
    is_member: Callable[[Address], bool] = lambda _: False


class Seeds:
    """A reader of the hosts file, which also resolves the names of hosts, again on request.

    If the file cannot be read, the hosts stay as they were. That is logged once for each new
    reason, and once when the file can be read again.

    Args:
        static: hosts that need not be in the file.
        file: the path of the hosts file, if there is one.
        tell: called with all hosts after they were read.
        resolver: finds the addresses behind names and lookups; None leaves names as they are.

    Attributes:
        unknown: names and lookups that could not be resolved last time, and why.
    """

    def __init__(
        self,
        static: Sequence[Host],
        file: str | None,
        tell: Callable[[tuple[Address, ...]], None],
        resolver: Resolver | None = None,
    ) -> None:
        self.unknown: Mapping[str, str] = {}
        self._resolver = resolver
        self._static = tuple(static)
        self._file = file
        self._tell = tell
        self._wanted = trio.Event()
        self._waiting: list[trio.Event] = []
        self._trouble = ""
        self._looked_up: dict[DnsLookup, Sequence[Address]] = {}
        """The last addresses that were found."""

    def read(self) -> tuple[Host, ...]:
        """Return all hosts as they are now, each once. Raises HostsFileError."""
        listed = read_hosts_file(self._file) if self._file is not None else ()
        return tuple(dict.fromkeys([*self._static, *listed]))

    async def resolved(self, hosts: tuple[Host, ...]) -> tuple[Address, ...]:
        """Return *hosts* with addresses in place of lookups, and of names that have several.

        A lookup that fails now keeps its last result; that is logged once.
        """
        addresses = [host for host in hosts if isinstance(host, Address)]
        lookups = [host for host in hosts if isinstance(host, DnsLookup)]
        if self._resolver is None:
            return tuple(addresses)
        named, unknown = await resolved(addresses, self._resolver.resolve, self._resolver.is_member)
        unknown = {**unknown, **await self._look_up(lookups)}
        for name, why in unknown.items():
            if name not in self.unknown:
                text = f"the host {name} is not tried: {why}"
                if any(str(lookup) == name and lookup in self._looked_up for lookup in lookups):
                    text = f"the hosts of {name} are as before: {why}"
                log.warning("host-unknown", text=text, host=name, why=why)
        self.unknown = unknown
        found = (each for lookup in lookups for each in self._looked_up.get(lookup, ()))
        return tuple(dict.fromkeys([*named, *found]))

    async def _look_up(self, lookups: Sequence[DnsLookup]) -> dict[str, str]:
        """Look up all of *lookups*; return those that failed, and why."""
        assert self._resolver is not None
        look_up = self._resolver.look_up
        why = f"it was not resolved within {RESOLVE_S_MAX:g} s"
        unknown = {str(lookup): why for lookup in lookups}

        async def one(lookup: DnsLookup) -> None:
            try:
                found = await look_up(lookup)
                self._looked_up[lookup] = found
                del unknown[str(lookup)]
            except OSError as error:
                unknown[str(lookup)] = str(error)

        with trio.move_on_after(2 * RESOLVE_S_MAX):
            async with trio.open_nursery() as nursery:
                for lookup in lookups:
                    nursery.start_soon(one, lookup)
        return unknown

    def want(self) -> None:
        """Request a reading of the file."""
        self._wanted.set()

    async def refresh(self) -> str:
        """Read the file; return why that failed, or an empty text, within `REFRESH_S_MAX`."""
        done = trio.Event()
        self._waiting.append(done)
        self.want()
        with trio.move_on_after(REFRESH_S_MAX):
            await done.wait()
            return self._trouble
        if done in self._waiting:
            self._waiting.remove(done)
        return f"hosts file {self._file}: not read within {REFRESH_S_MAX:g} s"

    async def run(self) -> NoReturn:
        """Read the file on request, one reading at a time, until cancelled."""
        while True:
            await self._wanted.wait()
            # Before the reading: a request that comes during it waits for the next one.
            self._wanted = trio.Event()
            waiting, self._waiting = self._waiting, []
            await self._read_again()
            for done in waiting:
                done.set()

    async def _read_again(self) -> None:
        if self._file is None and self._resolver is None:
            return
        hosts = self._static
        if self._file is not None:
            try:
                # In a thread: the file may be on a network that hangs, which must not delay gossip.
                hosts = await trio.to_thread.run_sync(self.read, abandon_on_cancel=True)
            except HostsFileError as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.error("kept the old hosts", reason=self._trouble)  # noqa: TRY400 - its text says it all
                return
        hosts = await self.resolved(hosts)
        if self._trouble:
            self._trouble = ""
            log.info("the hosts file can be read again", file=self._file, hosts=len(hosts))
        self._tell(hosts)
