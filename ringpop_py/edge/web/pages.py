"""The console: a page that shows the cluster, live, at `/ui` of any node.

The page is complete without its script, which updates it. Nothing comes from other hosts, and no
script but ours runs (`Content-Security-Policy`). All links are relative: a proxy may serve the page
under any path.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import trio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ringpop_py.base.errors import BodyError, CallError, NoOwner
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.base.version import package_version
from ringpop_py.edge.admin import keyspaces
from ringpop_py.edge.admin.endpoints import CHANGES, REFUSALS
from ringpop_py.edge.console.page import PARTS, clock, file_of, page_of
from ringpop_py.edge.web.callers import caller_of, check_role
from ringpop_py.edge.web.forms import Wanted
from ringpop_py.edge.web.overview import text_of_event
from ringpop_py.edge.web.parameters import Query, fields_of, value_of
from ringpop_py.edge.web.refusals import HttpRefusal, bad_request
from ringpop_py.net.security.identity import Role
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.node.events import log_change

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from ringpop_py.edge.web.overview import Overview
    from ringpop_py.node.ringpop import Ringpop

Endpoint = Callable[[Request], Awaitable[Response]]
WATCHERS_MAX: Final = 32
"""The most pages that are kept up to date at the same time; further ones are told to retry."""
LOOK_S: Final = 1.0
REMEMBERED_SHOWN: Final = 20
"""The most events of a member that its details show."""
SUCCESSORS: Final = 3
KEY_CHARACTERS_MAX: Final = 1 << 16
ACT_S: Final = 30.0
ACTS: Final = {
    "drain": "/admin/member/drain",
    "undrain": "/admin/member/undrain",
    "leave": "/admin/member/leave",
    "join": "/admin/member/join",
    "heal": "/admin/healpartition/disco",
}
"""The acts that a page can ask of a member."""
REBALANCE: Final = "rebalance"
"""The act that a page can ask of this node, on a keyspace."""
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_TYPES: Final = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "pictures.css": "text/css",
    "pictures.js": "text/javascript",
}


class EventStream(Response):
    """An answer that goes on until *stream* ends, or the caller goes.

    Args:
        stream: is given a function that sends bytes.
        lasts: is asked every second whether to go on.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        stream: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]],
        lasts: Callable[[], bool],
    ) -> None:
        # nginx otherwise keeps events back, to send several together.
        super().__init__(headers={**HEADERS, "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._stream, self._lasts = stream, lasts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `Response`."""
        del scope
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})

        async def send_bytes(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        async with trio.open_nursery() as nursery:

            async def until_over() -> None:
                is_gone = False
                while not is_gone and self._lasts():
                    with trio.move_on_after(LOOK_S):
                        is_gone = (await receive())["type"] == "http.disconnect"
                nursery.cancel_scope.cancel()  # hypercorn sends a chunk to its end even so

            nursery.start_soon(until_over)
            await self._stream(send_bytes)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class ConsoleRoutes:
    """The endpoints of the console."""

    def __init__(self, ringpop: Ringpop, overview: Overview) -> None:
        self._ringpop = ringpop
        self._overview = overview
        self._html: dict[str, str] = {}
        self._rendered_of: dict[str, Any] = {}

    def table(self) -> dict[str, dict[str, Endpoint]]:
        """Return the endpoints by path and method."""
        return {
            "/": {"GET": self._home},
            "/ui": {"GET": self._page},
            "/ui/state": {"GET": self._state},
            "/ui/events": {"GET": self._events},
            "/ui/lookup": {"GET": self._look_up},
            "/ui/found": {"GET": self._found_part},
            "/ui/member": {"GET": self._member_part},
            "/ui/act": {"POST": self._act},
            **{f"/ui/{name}": {"GET": self._file} for name in _TYPES},
        }

    async def _home(self, _request: Request) -> Response:
        return RedirectResponse("ui")

    async def _page(self, request: Request) -> Response:
        key, name = request.query_params.get("key"), request.query_params.get("member")
        sections = await self._overview.fresh()
        more: dict[str, Any] = {"key": key, "version": package_version()}
        if key is not None:
            more["found"] = self._found(key)
        elif name is not None:
            more |= self._details(sections, name)
        return _html(page_of(sections, **more))

    async def _file(self, request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        return Response(file_of(name), headers=HEADERS, media_type=_TYPES[name])

    async def _state(self, request: Request) -> Response:
        return Wanted(request).answer(await self._overview.fresh())

    async def _events(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(headers=HEADERS, media_type=EventStream.media_type)
        if self._overview.watchers >= WATCHERS_MAX:
            text = f"{WATCHERS_MAX} pages of this node are open; open another node's"
            raise HttpRefusal(503, "Busy", text)
        ending, callers = self._ringpop.ending, request.state.callers
        return EventStream(self._stream, lambda: not ending.begun and callers.knows(request))

    async def _stream(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send parts of the page, each when it has changed.

        After each overview there is a beat, also if nothing has changed: without beats, a page
        knows that it is old.
        """
        sent: dict[str, str] = {}
        with self._overview.watching():
            await send(b"retry: 1000\n\n")
            await self._overview.fresh()
            while True:
                new = {n: html for n, html in self._parts().items() if sent.get(n) != html}
                sent |= new
                at = time.time()
                beat = {"at": round(at, 3), "clock": clock(at)}
                parts = (
                    b"event: %s\ndata: %s\n\n" % (name.encode(), encode_value("json", value))
                    for name, value in {**new, "beat": beat}.items()
                )
                await send(b"".join(parts))
                await self._overview.changed()

    def _parts(self) -> dict[str, str]:
        """Return the present parts of the page; they are made once for all watchers."""
        sections, before = self._overview.sections, self._rendered_of
        if sections is not before:
            for part, of in PARTS.items():
                if not before or any(sections[name] != before[name] for name in of):
                    self._html[part] = page_of(sections, part=part)
            self._rendered_of = sections
        return self._html

    # Looking a key up.

    async def _found_part(self, request: Request) -> Response:
        key = Query(request, "key").text("key")
        if key is None:
            raise bad_request("say which key: ?key=KEY")
        sections = await self._overview.fresh()
        return _html(page_of(sections, part="found", found=self._found(key)))

    async def _member_part(self, request: Request) -> Response:
        """Show all that is known about a member, and what can be asked of it."""
        name = Query(request, "member").text("member")
        if name is None:
            raise bad_request("say which member: ?member=NAME")
        sections = await self._overview.fresh()
        return _html(page_of(sections, part="member", **self._details(sections, name)))

    def _details(self, sections: dict[str, Any], name: str) -> dict[str, Any]:
        """Return a member, and what this node remembers about it. Raises HttpRefusal."""
        for member in sections["members"]:
            if member["name"] == name:
                break
        else:
            raise HttpRefusal(404, "MemberUnknown", f"there is no member {name!r:.100}")
        records = [*self._ringpop.reporter.events.about(name, is_own=name == self._ringpop.name)]
        last = records[: -REMEMBERED_SHOWN - 1 : -1]
        remembered = [{"at": each["at"], "text": text_of_event(each)} for each in last]
        return {"member": member, "remembered": remembered}

    async def _look_up(self, request: Request) -> Response:
        wanted, query = Wanted(request), Query(request, "key")
        key = query.text("key")
        if key is None:
            raise bad_request("say which key: ?key=KEY")
        return wanted.answer(self._found(key))

    def _found(self, key: str) -> dict[str, Any]:
        """Return who owns *key*, who comes next, and where its partitions are."""
        if len(key) > KEY_CHARACTERS_MAX:
            raise bad_request(f"a key has at most {KEY_CHARACTERS_MAX} characters")
        ringpop = self._ringpop
        try:
            names = ringpop.lookup_n(key, SUCCESSORS)
        except NoOwner:
            names = ()
        statuses = {member.name: member.status.label for member in ringpop.members}
        rows = []
        if ringpop.keyspaces_on_demand.loaded:
            for keyspace in ringpop.keyspaces.all():
                row = keyspace.table[keyspace.partition_of(key)]
                rows.append(
                    {
                        "keyspace": keyspace.name,
                        "partition": row.partition,
                        "owner": row.owner,
                        "status": row.status.label,
                    }
                )
        return {
            "key": key,
            "hash": f"{ringpop.ring.dialect.hash_key(key):#x}",
            "owners": [{"name": name, "status": statuses.get(name, "gone")} for name in names],
            "keyspaces": rows,
        }

    # Acts.

    async def _rebalance(self, request: Request, asked: dict[str, Any]) -> dict[str, Any]:
        """Spread the partitions of a keyspace, or say how that would be done."""
        name, dry_run = asked.get("keyspace"), asked.get("dry_run", False)
        if not isinstance(name, str) or not isinstance(dry_run, bool):
            raise bad_request("say which keyspace, as a text, and dry_run as true or false")
        if not self._ringpop.keyspaces_on_demand.loaded:
            raise HttpRefusal(404, "KeyspaceUnknown", f"there is no keyspace {name!r:.100}")
        path = keyspaces.REBALANCE
        if not dry_run:
            log_change(path, caller_of(request), asked, request.state.identity)
        plan = keyspaces.CHANGES[path](self._ringpop, {"name": name, "dry_run": dry_run})
        return {"act": REBALANCE, "keyspace": name, "answer": await plan}

    async def _act(self, request: Request) -> Response:
        check_role(request, Role.ADMIN)
        wanted = Wanted(request)
        fields = ("act", "member", "keyspace", "dry_run")
        asked = fields_of(await value_of(request), "the body", fields)
        act, name = asked.get("act"), asked.get("member", self._ringpop.name)
        if act == REBALANCE:
            return wanted.answer(await self._rebalance(request, asked))
        if act not in ACTS:
            known = ", ".join((*ACTS, REBALANCE))
            raise bad_request(f"an act is one of {known}, not {act!r:.100}")
        address = self._ringpop.address_of(name) if isinstance(name, str) else None
        if address is None:
            raise HttpRefusal(404, "MemberUnknown", f"there is no member {name!r:.100}")
        log_change(ACTS[act], caller_of(request), asked, request.state.identity)
        if name == self._ringpop.name:
            try:
                value = CHANGES[ACTS[act]](self._ringpop, None)
                value = await value if inspect.isawaitable(value) else value
            except REFUSALS as error:
                raise HttpRefusal(409, "MemberRefuses", f"{name}: {error}") from None
            return wanted.answer({"act": act, "member": name, "answer": value})
        body = encode_value("msgpack", None)
        call = Call(NODE_SERVICE, ACTS[act], b"", body, ttl_s=ACT_S, scheme="msgpack")
        try:
            answer = await self._ringpop.channel.call(address, call)
            value = decode_value("msgpack", answer.arg3)
        except (CallError, BodyError) as error:
            raise HttpRefusal(502, "MemberSilent", f"{name} does not answer: {error}") from None
        if not answer.ok:
            message = value.get("message", value) if isinstance(value, dict) else value
            raise HttpRefusal(409, "MemberRefuses", f"{name}: {message}")
        return wanted.answer({"act": act, "member": name, "answer": value})


def _html(page: str) -> Response:
    return Response(page, headers=HEADERS, media_type="text/html; charset=utf-8")
