"""What a Channel needs of a network. TCP and memory implement it; so can a user's tests.

Rules for this file: bytes only. A broken stream raises `trio.BrokenResourceError`, one that was
closed at this end `trio.ClosedResourceError`; a connection that cannot be made is an `OSError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.net.security.identity import Identity
    from ringpop_py.net.security.proof import Proof


class StreamRefused(trio.BrokenResourceError):
    """The two ends of a stream do not trust each other; the message says why."""


class StreamUntrusted(StreamRefused):
    """One end does not trust the certificate of the other."""


RECEIVE_BYTES_MAX: Final = 65_536
"""The most bytes of one receive: a frame, and less than what malloc would map as pages."""


class Stream(Protocol):
    """One end of a connection that is up.

    Attributes:
        remote_host: the host of the other end, as the network knows it (for limits).
        identity: who the other end has proved to be; None if that is not asked, or not known yet.
        proof: what it has shown for that, which ends.
    """

    remote_host: str
    identity: Identity | None
    proof: Proof

    async def receive(self) -> bytes:
        """Return 1 to `RECEIVE_BYTES_MAX` bytes; none at the end of the stream."""
        ...

    def send_nowait(self, data: bytes) -> int:
        """Send without waiting; return how many bytes of *data* were sent, perhaps 0."""
        ...

    async def send_some(self, data: memoryview) -> int:
        """Wait until a byte of *data* can be sent; return how many were."""
        ...

    def end_sending(self) -> None:
        """Send no more: the other end sees the end of the stream, and may still send."""
        ...

    def close(self) -> None:
        """Close this end; tasks that wait for it get `trio.ClosedResourceError`."""
        ...


class Listener(Protocol):
    """Accepts connections at one address."""

    address: Address

    async def accept(self) -> Stream:
        """Return the next connection."""
        ...

    def close(self) -> None:
        """Accept no more; a task that waits gets `trio.ClosedResourceError`."""
        ...


class Network(Protocol):
    """Makes and accepts streams."""

    async def listen(self, address: Address) -> list[Listener]:
        """Listen at *address*; port 0 picks a free one. Raises OSError."""
        ...

    async def connect(self, to: Address, *, origin: Address | None) -> Stream:
        """Return a stream to the listener at *to*; *origin* is where the caller itself listens.

        Raises:
            ConnectionRefusedError: no process listens there.
            OSError: there is no connection for another reason.
        """
        ...
