"""Spans of OpenTelemetry for calls: between nodes, and from clients. An extra; off unless wanted.

No trace begins here: only calls that belong to one, and whose trace is sampled, have spans.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ringpop_py.base.values.declared import replace
from ringpop_py.net.wire.calls import Answer
from ringpop_py.net.wire.traces import SAMPLED, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.trace import Span

    from ringpop_py.base.errors import CallError
    from ringpop_py.net.wire.calls import Call


class _Incoming(Protocol):
    """What a span says about a call of a peer."""

    endpoint: str

    @property
    def service(self) -> str: ...
    @property
    def caller(self) -> str: ...


_I = TypeVar("_I", bound=_Incoming)
_Served = Answer | Awaitable[Answer | None] | None


class Tracing:
    """Makes spans for the calls of one node, with the tracer provider of the process."""

    def __init__(self, version: str) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - an extra

        self._trace = trace
        self._tracer = trace.get_tracer("ringpop_py", version)

    def calling(self, call: Call, to: object) -> tuple[Call, Callable[[Answer | CallError], None]]:
        """Return *call* with its own span, and a function that ends it; untraced calls get none."""
        if not packed(self._trace.get_current_span().get_span_context()):
            return call, _nothing
        span = self._tracer.start_span(
            f"{call.service} {call.endpoint}",
            kind=self._trace.SpanKind.CLIENT,
            attributes={
                "rpc.system": "tchannel",
                "rpc.service": call.service,
                "rpc.method": call.endpoint,
                "server.address": str(to),
            },
        )

        def end(outcome: Answer | CallError) -> None:
            self._end(span, outcome)

        return replace(call, tracing=packed(span.get_span_context())), end

    def serve(self, handler: Callable[[_I], _Served], incoming: _I, tracing: bytes) -> _Served:
        """Call *handler* within a span, whose parent is that of the caller."""
        flags = self._trace.TraceFlags(SAMPLED)
        parent = self._trace.SpanContext(*unpacked(tracing), is_remote=True, trace_flags=flags)
        if not parent.is_valid:
            return handler(incoming)
        span = self._tracer.start_span(
            f"{incoming.service} {incoming.endpoint}",
            context=self._trace.set_span_in_context(self._trace.NonRecordingSpan(parent)),
            kind=self._trace.SpanKind.SERVER,
            attributes={
                "rpc.system": "tchannel",
                "rpc.service": incoming.service,
                "rpc.method": incoming.endpoint,
                "client.address": incoming.caller,
            },
        )
        with self._within(span):
            result = handler(incoming)
        if inspect.isawaitable(result):
            return self._finished(span, result)
        self._end(span, result)  # None: it is answered later, by what stands behind it
        return result

    async def _finished(self, span: Span, result: Awaitable[Answer | None]) -> Answer | None:
        with self._within(span):
            answer = await result
        self._end(span, answer)
        return answer

    @contextmanager
    def _within(self, span: Span) -> Iterator[None]:
        """Make *span* the current one; end it if the block fails."""
        try:
            with self._trace.use_span(span, record_exception=True, set_status_on_exception=True):
                yield
        except BaseException:
            span.end()
            raise

    def _end(self, span: Span, outcome: Answer | CallError | None) -> None:
        if isinstance(outcome, Exception):
            span.record_exception(outcome)
            span.set_status(self._trace.StatusCode.ERROR, type(outcome).__name__)
        elif outcome is not None and not outcome.ok:
            span.set_status(self._trace.StatusCode.ERROR, "the application refused it")
        span.end()


def _nothing(_outcome: Any) -> None:  # noqa: ANN401 - of any kind
    """End no span."""
