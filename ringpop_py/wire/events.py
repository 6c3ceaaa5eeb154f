"""What a connection tells its owner: one value for each thing that the peer's bytes meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.errors import CallError
    from ringpop_py.wire.calls import Answer, CallHead


class Initialised(NamedTuple):
    """The peer has said who it is, and we have; calls may go both ways."""

    host_port: str
    headers: Mapping[str, str]


class CallReceived(NamedTuple):
    """The peer asks; answer with `Connection.send_answer` or `Connection.send_error`."""

    id: int
    head: CallHead
    arg2: bytes
    arg3: bytes
    ttl_ms: int
    checksum_type: int


class CallUnreadable(NamedTuple):
    """A call of the peer cannot be read; the peer has been told, and nothing is to be sent."""

    service: str
    why: str


class CancelReceived(NamedTuple):
    """The peer gave up its call *id*, and has been told that it ended; nothing is to be sent."""

    id: int
    why: str


class AnswerReceived(NamedTuple):
    """The answer to our call *id*."""

    id: int
    answer: Answer


class CallFailed(NamedTuple):
    """Our call *id* ended without an answer."""

    id: int
    error: CallError


class Ended(NamedTuple):
    """The connection takes no more: one end refused the other, or the peer said why it closes.

    Attributes:
        refused: whether calls that still wait certainly did not run: one end does not want the
            other, or the peer ended in good order (`Connection.send_goodbye`).
    """

    reason: str
    refused: bool


Event = (
    Initialised
    | CallReceived
    | CallUnreadable
    | AnswerReceived
    | CallFailed
    | CancelReceived
    | Ended
)
