"""The changes of keys as server-sent events."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from starlette.responses import Response

from ringpop_py.base.errors import KeyspaceError, WatchGap
from ringpop_py.base.values.packed import encode_value
from ringpop_py.edge.web.forms import JSON, Wanted
from ringpop_py.edge.web.pages import HEADERS, EventStream
from ringpop_py.edge.web.refusals import HttpRefusal, error_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

    from ringpop_py.edge.web.parameters import Query
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.watch.course import KeyChange
    from ringpop_py.state.watch.watch import AsyncChanges

STREAMS_MAX: Final = 256
"""The most streams at the same time; further callers are told to ask another node."""
KEEP_ALIVE_S: Final = 15.0
"""So often a stream without changes tells its reader that it goes on, and after which position."""


class ChangeStreams:
    """The streams of one node."""

    def __init__(self, ringpop: Ringpop) -> None:
        self._ringpop = ringpop
        self._count = 0

    async def answer(self, request: Request, query: Query, keyspace: Keyspace) -> Response:
        """Return the stream that *query* asks for.

        Raises:
            HttpRefusal: there are too many.
            KeyspaceError: as `Keyspace.watch`, for example WatchGap.
        """
        prefix, key = query.text("prefix") or "", query.text("key")
        request.state.keys = [key] if key is not None else [f"{prefix}*"] if prefix else []
        if self._count >= STREAMS_MAX:
            text = f"{STREAMS_MAX} watch changes at this node; ask another node"
            raise HttpRefusal(503, "Busy", text)
        # A browser that connects again repeats the query, and says in the header how far it came.
        after = request.headers.get("last-event-id") or query.text("after") or None
        changes = keyspace.watch(prefix, key=key, after=after, existing=query.flag("existing"))
        found = await changes.some(0.0)  # what is refused is no stream
        if request.method == "HEAD":
            return Response(headers=HEADERS, media_type=EventStream.media_type)
        ending = self._ringpop.ending
        began_draining = ending.draining

        def lasts() -> bool:
            is_over = ending.begun or ending.draining > began_draining
            return not is_over and request.state.callers.knows(request)

        return EventStream(partial(self._send, request, changes, found), lasts)

    async def _send(
        self,
        request: Request,
        changes: AsyncChanges,
        found: Sequence[KeyChange],
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        wanted = Wanted(request, (JSON,), otherwise=JSON)
        limits = self._ringpop.channel.handlers.limits
        self._count += 1
        try:
            await send(b"retry: 1000\n\n")
            while True:
                for change in found:
                    data = _event(wanted, change)
                    if limits is not None:
                        limits.note_bytes(request.state.identity, len(data), trio.current_time())
                    # While the reader is slow, nothing is asked for it. If it takes nothing for
                    # `UNREAD_MS_MAX`, its connection ends.
                    await send(data)
                if not found:  # an event without data: of it, readers see the id alone
                    await send(b": no change\nid: %s\n\n" % str(changes.position).encode())
                found = await changes.some(KEEP_ALIVE_S)
        except KeyspaceError as error:
            await send(_named("gap" if isinstance(error, WatchGap) else "end", error_fields(error)))
        finally:
            self._count -= 1


def _event(wanted: Wanted, change: KeyChange) -> bytes:
    name, value = "delete", {}
    if change.packed is not None:
        name, value = "put", wanted.row(change.key, change.packed)
    return b"id: %s\n" % str(change.position).encode() + _named(name, {"key": change.key, **value})


def _named(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), encode_value("json", data))
