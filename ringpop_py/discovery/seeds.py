"""The seeds of a node: the hosts of its configuration, and those that a file lists now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import trio

from ringpop_py.discovery.hosts import read_hosts_file
from ringpop_py.discovery.names import resolved
from ringpop_py.errors import HostsFileError
from ringpop_py.logs import log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ringpop_py.address import Address
    from ringpop_py.discovery.names import Resolve


REFRESH_S_MAX: Final = 2.0


class Seeds:
    """Reads the hosts file and resolves the names of hosts, again on request.

    If the file cannot be read, the hosts stay as they were. That is logged once for each new
    reason, and once when the file can be read again.

    Args:
        static: hosts that need not be in the file.
        file: the path of the hosts file, if there is one.
        tell: called with all hosts after they were read.
        resolve: returns the addresses of a name; None leaves names as they are.

    Attributes:
        unknown: names of hosts that could not be resolved the last time, and why.
    """

    def __init__(
        self,
        static: Sequence[Address],
        file: str | None,
        tell: Callable[[tuple[Address, ...]], None],
        resolve: Resolve | None = None,
    ) -> None:
        self.unknown: Mapping[str, str] = {}
        self._resolve = resolve
        self._static = tuple(static)
        self._file = file
        self._tell = tell
        self._wanted = trio.Event()
        self._waiting: list[trio.Event] = []
        self._trouble = ""

    def read(self) -> tuple[Address, ...]:
        """Return all hosts as they are now, each once. Raises HostsFileError."""
        listed = read_hosts_file(self._file) if self._file is not None else ()
        return tuple(dict.fromkeys([*self._static, *listed]))

    async def resolved(self, hosts: tuple[Address, ...]) -> tuple[Address, ...]:
        """Return *hosts* with all addresses in the place of a name that has several.

        A name that is new among those that cannot be resolved is logged.
        """
        if self._resolve is None:
            return hosts
        found, unknown = await resolved(hosts, self._resolve)
        for name, why in unknown.items():
            if name not in self.unknown:
                text = f"the host {name} is not tried: {why}"
                log.warning("host-unknown", text=text, host=name, why=why)
        self.unknown = unknown
        return found

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
        if self._file is None and self._resolve is None:
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
