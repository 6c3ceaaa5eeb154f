"""What arrives on a client's connection: outcomes of calls, or the end of the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringpop_py.base.errors import (
    CallError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    PeerDeclined,
)
from ringpop_py.base.values.declared import replace
from ringpop_py.net.wire.calls import Answer, AnswerReceived, CallFailed, CallReceived, Ended
from ringpop_py.net.wire.connection import Connection
from ringpop_py.net.wire.frames import ErrorCode
from ringpop_py.net.wire.init import NO_LISTENER
from ringpop_py.net.wire.traces import current

if TYPE_CHECKING:
    from ringpop_py.base.address import Peer
    from ringpop_py.base.config.settings import WireLimits
    from ringpop_py.net.wire.calls import Call


def new_connection(limits: WireLimits) -> Connection:
    """Return the connection of a client, which has said nothing yet."""
    return Connection(
        host_port=NO_LISTENER, process_name="ringpop_py-client", initiates=True, limits=limits
    )


def sent(connection: Connection, call: Call) -> int:
    """Send *call*, with the trace that goes on in it; return its id. Raises CallError."""
    tracing = current()
    return connection.send_call(replace(call, tracing=tracing) if tracing else call)


def no_time_left() -> CallTimeout:
    """Return the error of a call that was not sent, as its time is over."""
    error = CallTimeout("no time was left for the call")
    error.took_effect = "no"
    return error


def not_connected(peer: Peer, error: Exception) -> ConnectFailed:
    """Return the error of a call that was not sent, as *error* kept us from reaching *peer*."""
    if isinstance(error, TimeoutError):
        return ConnectFailed(f"cannot reach {peer}: no answer in time")
    if isinstance(error, CallError):
        return ConnectFailed(str(error))
    cause = error.__cause__  # anyio has tried all addresses of the name
    causes = cause.exceptions if isinstance(cause, BaseExceptionGroup) else [cause or error]
    if all(isinstance(each, ConnectionRefusedError | FileNotFoundError) for each in causes):
        return ConnectRefused(f"cannot reach {peer}: connection refused")
    return ConnectFailed(f"cannot reach {peer}: {error}")


def why_ended(error: Exception | None, *, initialised: bool) -> str:
    """Return what a peer has done that ended a connection, perhaps by *error*.

    Args:
        initialised: whether it had said before what it is.
    """
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    how = "closed the connection" if error is None else f"broke the connection ({reason})"
    if initialised:
        return f"{how}: its process has ended, or this client was idle for long"
    return (
        f"{how} before it said what it is: its process has just ended, it has no room for"
        " another connection, it wants TLS (RINGPOP_CLUSTER_KEY), it refuses the certificate"
        " (revoked, or of another cluster: its log says so), or it is no ringpopd"
    )


class LineEnd(NamedTuple):
    """The error of the calls that have no outcome when their connection ends."""

    kind: type[CallError]
    why: str


class Outcomes(dict[int, Answer | CallError]):
    """The outcomes of the calls of one connection, by call.

    Attributes:
        lost: what the calls get that have none when it ends.
    """

    lost = LineEnd(ConnectionLost, "is not connected: this client closed the connection")


def take_in(connection: Connection, data: bytes, outcomes: Outcomes) -> LineEnd | None:
    """Add to *outcomes* what *data* says; return what ends the connection, if that is in it.

    Raises:
        WireError: if the peer does not speak TChannel.
    """
    for event in connection.receive(data):
        match event:
            case AnswerReceived(call_id, answer):
                outcomes[call_id] = answer
            case CallFailed(call_id, error):
                outcomes[call_id] = error
            case CallReceived(call_id):
                # Answered, not ignored: the peer would wait for its time-out.
                connection.send_error(call_id, ErrorCode.BAD_REQUEST, "this end serves nothing")
            case Ended(reason, refused):
                kind = PeerDeclined if refused else ConnectionLost
                return LineEnd(kind, f"ended the connection: {reason}")
            case _:
                pass  # `Initialised`; or the peer cancels a call that we have refused
    return None
