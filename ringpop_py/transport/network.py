"""What a Channel asks of a network. TCP and memory implement it; so may a user's tests.

Rules for this file: bytes only. A broken stream raises `trio.BrokenResourceError`, one that was
closed at this end `trio.ClosedResourceError`; a connection that cannot be made is an `OSError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from ringpop_py.address import Address

RECEIVE_BYTES_MAX: Final = 65_536
"""Of one receive: as much as a frame, and below the size where an allocation maps memory."""


class Stream(Protocol):
    """One end of a connection that is up.

    Attributes:
        remote_host: where the other end is, as far as the network knows (for caps).
    """

    remote_host: str

    async def receive(self) -> bytes:
        """At least one byte, at most `RECEIVE_BYTES_MAX`; none at the end of the stream."""
        ...

    def send_nowait(self, data: bytes) -> int:
        """How many bytes of *data* could be sent at once; 0 is always allowed."""
        ...

    async def send_some(self, data: memoryview) -> int:
        """How many bytes of *data* were sent; waits until that is at least one."""
        ...

    def end_sending(self) -> None:
        """Send no more: the other end sees the end of the stream, and may go on sending itself."""
        ...

    def close(self) -> None:
        """Close this end at once; whoever waits on it gets `trio.ClosedResourceError`."""
        ...


class Listener(Protocol):
    """Accepts connections at one address."""

    address: Address

    async def accept(self) -> Stream:
        """The next connection."""
        ...

    def close(self) -> None:
        """Accept no more; whoever waits gets `trio.ClosedResourceError`."""
        ...


class Network(Protocol):
    """Where streams come from."""

    async def listen(self, address: Address) -> list[Listener]:
        """Listen at *address*; port 0 picks a free one.

        Raises:
            OSError: if it cannot be had.
        """
        ...

    async def connect(self, to: Address, *, origin: Address | None) -> Stream:
        """A stream to who listens at *to*; *origin* is where the caller itself listens.

        Raises:
            ConnectionRefusedError: if there is none to be had because nobody listens there.
            OSError: if there is none to be had for another reason.
        """
        ...
