"""Traces that an operator switches on: each change of the membership checksum, to a sink.

Ringpop's ``/trace/add`` and ``/trace/remove``. A trace ends by itself, so that nobody's memory
is needed to stop it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.errors import ConfigError
from ringpop_py.logs import log
from ringpop_py.values.packed import a_map, a_text, address_from, an_integer, encode_value
from ringpop_py.wire.calls import Answer, Call

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.errors import CallError
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.swim.effects import Effect

CHECKSUM_EVENT: Final = "membership.checksum.update"
TRACES_MAX: Final = 16
EXPIRES_MS_DEFAULT: Final = 10 * 60 * 1000
EXPIRES_MS_MAX: Final = 24 * 3600 * 1000
SINK_TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Sink:
    """Where a trace goes: the log, or an endpoint of a TChannel service at *to*."""

    to: Address | None = None
    service: str = ""
    endpoint: str = ""


class Traces:
    """The traces of one node."""

    def __init__(self, ringpop: Ringpop) -> None:
        self._ringpop = ringpop
        self._expire_at: dict[Sink, float] = {}
        self._checksum = ringpop.checksum
        ringpop.observe(self._look)

    def add(self, _ringpop: Ringpop, value: object) -> object:
        """Begin, or prolong, the trace that *value* (the body of ``/trace/add``) describes.

        Raises:
            BodyError: if it does not describe one.
            ConfigError: if there is no such event, or there are too many traces.
        """
        body = a_map(value, "body")
        sink = _sink_from(body)
        expires_in = body.get("expiresIn")
        if expires_in is None:
            expires_in = EXPIRES_MS_DEFAULT
        expires_ms = an_integer(expires_in, "expiresIn", maximum=EXPIRES_MS_MAX)
        self._drop_expired()
        if sink not in self._expire_at and len(self._expire_at) >= TRACES_MAX:
            raise ConfigError(f"{TRACES_MAX} traces run already")
        self._expire_at[sink] = trio.current_time() + expires_ms / 1000
        return {"status": "ok"}

    def remove(self, _ringpop: Ringpop, value: object) -> object:
        """End the trace that *value* describes; harmless if there is none. Raises as `add`."""
        self._expire_at.pop(_sink_from(a_map(value, "body")), None)
        return {"status": "ok"}

    def _look(self, _effect: Effect) -> None:
        checksum = self._ringpop.checksum
        if checksum == self._checksum:
            return
        old, self._checksum = self._checksum, checksum
        self._drop_expired()
        for sink in self._expire_at:
            self._tell(sink, {"local": self._ringpop.name, "old": old, "checksum": checksum})

    def _tell(self, sink: Sink, record: dict[str, Any]) -> None:
        if sink.to is None:
            log.info("membership checksum changed", **record)
            return
        body = encode_value("json", {"event": CHECKSUM_EVENT, **record})
        call = Call(sink.service, sink.endpoint, b"", body, ttl_s=SINK_TIMEOUT_S, scheme="json")
        self._ringpop.channel.begin(sink.to, call, _ignore)

    def _drop_expired(self) -> None:
        now = trio.current_time()
        self._expire_at = {sink: at for sink, at in self._expire_at.items() if at > now}


def _ignore(_outcome: Answer | CallError) -> None:
    """A sink that is gone must not disturb the node; the trace ends by itself."""


def _sink_from(body: dict[str, Any]) -> Sink:
    event = a_text(body.get("event"), "event")
    if event != CHECKSUM_EVENT:
        raise ConfigError(f"no event {event!r} to trace; there is {CHECKSUM_EVENT!r}")
    sink = a_map(body.get("sink"), "sink")
    kind = a_text(sink.get("type"), "type of sink")
    if kind == "log":
        return Sink()
    if kind != "tchannel":
        raise ConfigError(f"a sink is 'log' or 'tchannel', not {kind!r}")
    return Sink(
        address_from(sink.get("hostPort"), "hostPort"),
        a_text(sink.get("serviceName"), "serviceName", length_max=255),
        a_text(sink.get("endpoint"), "endpoint", length_max=255),
    )
