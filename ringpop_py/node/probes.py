"""Probes of the application beside a node: while it is away, other members answer in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import RingpopError
from ringpop_py.base.logs import log
from ringpop_py.member.door import ApplicationDoor
from ringpop_py.member.swim.member import AWAY, AWAY_LABEL
from ringpop_py.net.http.message import HttpRequest
from ringpop_py.net.transport.deadlines import now_us

if TYPE_CHECKING:
    from typing import NoReturn

    from ringpop_py.node.ringpop import Ringpop

EVERY_S: Final = 1.0
"""The time from the start of one probe to that of the next, in seconds."""
PROBE_S: Final = 1.0
"""A probe without an answer fails after so many seconds."""
BODY_BYTES_MAX: Final = 1 << 20
"""A health page with more bytes counts as a failure."""
OK_MAX: Final = 399


class ApplicationProbes:
    """Watches the application at *app_url*, and says to all members whether it is away.

    Args:
        health: a path below *app_url* whose answer decides; if it is None, a connection is enough.
    """

    def __init__(self, ringpop: Ringpop, app_url: str, health: str | None) -> None:
        self._ringpop = ringpop
        self._at = app_url, health
        self._wanted = trio.Event()
        self._door = ApplicationDoor()

    async def begin(self) -> None:
        """Probe once; an application that is not there counts as away from the start."""
        self._door = self._ringpop.readiness.door = ApplicationDoor(await probe(*self._at))
        if not self._door.is_open:
            self._tell()
        self._ringpop.application.watch_refusals(self._refused)

    async def run(self) -> NoReturn:
        """Probe again and again, until cancelled."""
        while True:
            with trio.move_on_after(EVERY_S):
                await self._wanted.wait()
            self._wanted = trio.Event()
            began = now_us()  # the outcome counts from here: a second one comes `EVERY_S` later
            trouble = await probe(*self._at)
            self._note(began, trouble)

    def _refused(self, why: str) -> None:
        """Note that a request did not reach the application."""
        if self._door.is_open and not self._door.in_doubt:
            self._wanted.set()
        self._note(now_us(), why)

    def _note(self, now: int, trouble: str) -> None:
        door = self._door
        if door.failed(now, trouble) if trouble else door.answered(now):
            self._tell()

    def _tell(self) -> None:
        door, (url, _) = self._door, self._at
        if self._ringpop.node.dialect.extends:  # others would not know the label
            self._ringpop.labels.set_own(AWAY_LABEL, None if door.is_open else AWAY[1])
        if door.is_open:
            text = f"the application at {url} answers again: this node owns keys again"
            log.info("application-back", text=text, url=url)
        else:
            text = f"the application at {url} is away, and other members answer in its place"
            log.warning("application-away", text=f"{text}: {door.trouble}", url=url)


async def probe(app_url: str, health: str | None) -> str:
    """Return why the application at *app_url* does not answer; empty if it does."""
    with trio.move_on_after(PROBE_S):
        try:
            return await (_connect(app_url) if health is None else _get(app_url, health))
        except RingpopError as error:
            return str(error)
    return f"it did not answer within {PROBE_S:g} s"


async def _connect(app_url: str) -> str:
    from ringpop_py.net.http.connections import AppAddress, close  # noqa: PLC0415 - few have one

    close(await AppAddress(app_url).connect())
    return ""


async def _get(app_url: str, health: str) -> str:
    from ringpop_py.net.http.replay import HttpReplayer  # noqa: PLC0415 - few have a path

    # A new connection each time: an application that ends may still answer on the old ones.
    replayer = HttpReplayer(app_url, BODY_BYTES_MAX, 1)
    try:
        status = (await replayer.replay(HttpRequest("GET", health))).status
    finally:
        await replayer.aclose()
    return "" if status <= OK_MAX else f"{health} answers {status}"
