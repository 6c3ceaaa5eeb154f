"""The trace that a call belongs to, as the call carries it.

TChannel has 25 bytes for it: 8 each for the span, its parent and the trace, and flags. Traces of
OpenTelemetry have 16 bytes: the upper half stands in the place of the parent, which a receiver has
no use for.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

SAMPLED: Final = 1
_FIELDS: Final = struct.Struct(">QQQB")
_LOW: Final = (1 << 64) - 1
_LOADED: Final = "opentelemetry.trace"


class Traced(NamedTuple):
    """A span, and the trace that it is part of."""

    trace_id: int
    span_id: int


def packed(context: SpanContext) -> bytes:
    """Return *context* as a call carries it; nothing if it is not sampled."""
    if not (context.is_valid and context.trace_flags & SAMPLED):
        return b""
    trace_id = context.trace_id
    return _FIELDS.pack(context.span_id, trace_id >> 64, trace_id & _LOW, SAMPLED)


def unpacked(tracing: bytes) -> Traced:
    """Return the trace in *tracing*, which `packed` wrote."""
    span_id, high, low, _ = _FIELDS.unpack(tracing)
    return Traced(high << 64 | low, span_id)


def current() -> bytes:
    """Return the packed span of this task or thread, at no cost without OpenTelemetry."""
    trace = sys.modules.get(_LOADED)
    return b"" if trace is None else packed(trace.get_current_span().get_span_context())
