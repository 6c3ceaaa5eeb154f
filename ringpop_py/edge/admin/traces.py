"""Traces that an operator switches on: each change of the membership checksum is sent to a sink.

They are Ringpop's ``/trace/add`` and ``/trace/remove``. A trace expires, so that nobody has to
remember to stop it. Its sink is a member, or on the host of its requester: a node does not call
arbitrary addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import trio

from ringpop_py.base.address import Address
from ringpop_py.base.errors import ConfigError
from ringpop_py.base.logs import log
from ringpop_py.base.values.declared import Meta, Named, Text, convert, replace
from ringpop_py.base.values.packed import encode_value
from ringpop_py.net.wire.calls import Call

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.net.transport.serving import IncomingCall
    from ringpop_py.node.ringpop import Ringpop

CHECKSUM_EVENT: Final = "membership.checksum.update"
TRACES_MAX: Final = 16  # each costs a call at every change
EXPIRES_MS_DEFAULT: Final = 10 * 60 * 1000
EXPIRES_MS_MAX: Final = 24 * 3600 * 1000
SINK_TIMEOUT_S: Final = 1.0


_Name = Annotated[str, Meta(max_length=255)]


class LogTrace(Named, frozen=True, tag_field="type", tag="log"):
    """A sink: the log of this node."""


class CallTrace(Named, frozen=True, tag_field="type", tag="tchannel", rename="camel"):
    """A sink: an endpoint of a TChannel service."""

    host_port: Text
    service_name: _Name
    endpoint: _Name

    def __post_init__(self) -> None:
        Address.parse(self.host_port, what="hostPort")


Sink = LogTrace | CallTrace


class _TraceBody(Named, frozen=True, rename="camel"):
    event: Text
    sink: Sink
    expires_in: Annotated[int, Meta(ge=0, le=EXPIRES_MS_MAX)] | None = None


class Traces:
    """The traces of one node."""

    def __init__(self, ringpop: Ringpop) -> None:
        self._ringpop = ringpop
        self._expire_at: dict[Sink, float] = {}
        self._checksum = ringpop.checksum
        ringpop.observe(self._look)

    def add(self, incoming: IncomingCall, value: object) -> object:
        """Begin, or prolong, the trace that *value* describes.

        Raises:
            BodyError: *value* does not describe one.
            ConfigError: the event is unknown, the sink is somewhere else, or there are too many
                traces.
        """
        trace = _trace_in(value)
        self._check_sink(trace.sink, incoming.remote_host)
        expires_ms = EXPIRES_MS_DEFAULT if trace.expires_in is None else trace.expires_in
        self._drop_expired()
        if trace.sink not in self._expire_at and len(self._expire_at) >= TRACES_MAX:
            raise ConfigError(f"{TRACES_MAX} traces run already")
        self._expire_at[trace.sink] = trio.current_time() + expires_ms / 1000
        return {"status": "ok"}

    def _check_sink(self, sink: Sink, asking_host: str) -> None:
        if isinstance(sink, LogTrace):
            return
        to = Address.parse(sink.host_port)
        beside = to.is_loopback if asking_host == "" else to.host == asking_host
        if not beside and all(to != member.address for member in self._ringpop.members):
            raise ConfigError(
                f"a trace goes to a member, or to the host that asks for it; {to} is neither"
            )

    def remove(self, _ringpop: Ringpop, value: object) -> object:
        """End the trace that *value* describes, if there is one. Raises as `add`."""
        self._expire_at.pop(_trace_in(value).sink, None)
        return {"status": "ok"}

    def _look(self, _effect: Effect) -> None:
        # Several kinds of effects change the checksum, so it is compared after each effect.
        checksum = self._ringpop.checksum
        if checksum == self._checksum:
            return
        old, self._checksum = self._checksum, checksum
        self._drop_expired()
        for sink in self._expire_at:
            self._tell(sink, {"local": self._ringpop.name, "old": old, "checksum": checksum})

    def _tell(self, sink: Sink, record: dict[str, Any]) -> None:
        if isinstance(sink, LogTrace):
            log.info("membership checksum changed", **record)
            return
        body = encode_value("json", {"event": CHECKSUM_EVENT, **record})
        service, to = sink.service_name, Address.parse(sink.host_port)
        call = Call(service, sink.endpoint, b"", body, ttl_s=SINK_TIMEOUT_S, scheme="json")
        # A sink that is gone must not disturb the node; the trace expires.
        self._ringpop.channel.begin(to, call, lambda _outcome: None)

    def _drop_expired(self) -> None:
        now = trio.current_time()
        self._expire_at = {sink: at for sink, at in self._expire_at.items() if at > now}


def _trace_in(value: object) -> _TraceBody:
    sink = value.get("sink") if isinstance(value, dict) else None
    kind = sink.get("type") if isinstance(sink, dict) else None
    if isinstance(kind, str) and kind not in ("log", "tchannel"):
        raise ConfigError(f"a sink is 'log' or 'tchannel', not {kind!r:.100}")
    trace = convert(_TraceBody, value, "trace")
    if trace.event != CHECKSUM_EVENT:
        raise ConfigError(f"there is no event {trace.event!r} to trace, only {CHECKSUM_EVENT!r}")
    if isinstance(trace.sink, CallTrace):
        # One address can be written in several ways, and sinks are found by their fields.
        host_port = str(Address.parse(trace.sink.host_port))
        return replace(trace, sink=replace(trace.sink, host_port=host_port))
    return trace
