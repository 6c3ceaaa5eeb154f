"""The routes of shuffles: this node is a client of the processes that hold the rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
from starlette.requests import Request
from starlette.responses import Response

from ringpop_py.base.errors import ConfigError
from ringpop_py.edge.web.forms import Wanted
from ringpop_py.edge.web.parameters import Query, body_of, fields_of, name_in, value_of
from ringpop_py.edge.web.refusals import HttpRefusal, bad_request

if TYPE_CHECKING:
    from ringpop_py.flow.shuffle.client.numbered_frames import ByHand
    from ringpop_py.node.ringpop import Ringpop

Endpoint = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
TIMEOUT_S: Final = 20.0
_NO_CONTENT: Final = 204
_FIELDS: Final = ("schema", "by", "seed", "intervals", "keep_keys_together", "durability")


class ShuffleRoutes:
    """The endpoints of one node about shuffles."""

    def __init__(self, ringpop: Ringpop) -> None:
        self._ringpop = ringpop
        config = ringpop.config  # and not the environment
        self._key_file = "" if config.dial_plain else config.cluster_key or ""

    def table(self) -> dict[str, dict[str, Endpoint]]:
        """Return the endpoints by path and method."""
        of = "/shuffles/{shuffle}"
        return {
            "/shuffles": {"GET": self._list},
            of: {"GET": self._show, "PUT": self._create, "DELETE": self._delete},
            f"{of}/attempts": {"POST": self._begin},
            f"{of}/attempts/{{attempt}}/{{frame}}": {"PUT": self._put},
            f"{of}/attempts/{{attempt}}/finish": {"POST": self._finish},
            f"{of}/end": {"POST": self._end},
            f"{of}/intervals/{{interval}}": {"GET": self._interval},
        }

    async def _run(self, request: Request, work: Callable[[ByHand], T]) -> T:
        """Do *work* with a client, in a thread."""
        try:
            from ringpop_py.flow.shuffle.client.numbered_frames import ByHand  # noqa: PLC0415 - needs pyarrow
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"shuffles need {error.name}: pip install 'ringpop_py[state]'"
            ) from None
        name = name_in(request, "shuffle") if "shuffle" in request.path_params else ""

        def run() -> T:
            with ByHand(
                str(self._ringpop.address),
                name,
                timeout_s=TIMEOUT_S,
                cluster_key=self._key_file,
            ) as client:
                return work(client)

        return await trio.to_thread.run_sync(run, abandon_on_cancel=True)

    async def _list(self, request: Request) -> Response:
        wanted, _ = Wanted(request), Query(request)
        return wanted.answer(await self._run(request, lambda client: client.all()))

    async def _show(self, request: Request) -> Response:
        wanted, _ = Wanted(request), Query(request)
        return wanted.answer(await self._run(request, lambda client: client.described()))

    async def _create(self, request: Request) -> Response:
        wanted, _ = Wanted(request), Query(request)
        given = fields_of(await value_of(request), "the body", _FIELDS)
        return wanted.answer(await self._run(request, lambda client: client.make(given)))

    async def _delete(self, request: Request) -> Response:
        query = Query(request, "confirm")
        await body_of(request)
        name = name_in(request, "shuffle")
        query.check_confirmed(name, f"this deletes shuffle {name!r:.100} and its rows")
        await self._run(request, lambda client: client.delete())
        return Response(status_code=_NO_CONTENT)

    async def _begin(self, request: Request) -> Response:
        wanted, _ = Wanted(request), Query(request)
        await body_of(request)
        number = await self._run(request, lambda client: client.begin())
        return wanted.answer({"attempt": number})

    async def _put(self, request: Request) -> Response:
        Query(request)
        body = await body_of(request)
        frame = _number(request, "attempt"), _number(request, "frame")
        await self._run(request, lambda client: client.put_frame(frame, body))
        return Response(status_code=_NO_CONTENT)

    async def _finish(self, request: Request) -> Response:
        wanted, _ = Wanted(request), Query(request)
        given = fields_of(await value_of(request), "the body", ("frames", "rows"))
        counts = _whole(given, "frames"), _whole(given, "rows")
        number = _number(request, "attempt")
        receipt = await self._run(request, lambda client: client.finish(number, *counts))
        found = receipt._asdict()
        del found["fingerprint"]  # which `commit` needs, that HTTP does not have
        return wanted.answer(found)

    async def _end(self, request: Request) -> Response:
        wanted, _ = Wanted(request), Query(request)
        given = fields_of(await value_of(request), "the body", ("receipts",))
        listed = given.get("receipts")
        if not isinstance(listed, list):
            raise bad_request("the body is a map with 'receipts', a list of what finish returned")
        names = ("number", "frames", "rows", "uid")
        maps = [{"uid": 0, **fields_of(each, "a receipt", names)} for each in listed]
        receipts = [{name: _whole(each, name) for name in names} for each in maps]
        return wanted.answer(await self._run(request, lambda client: client.finish_all(receipts)))

    async def _interval(self, request: Request) -> Response:
        version = Query(request, "version").text("version")
        if version is None or not version.isdecimal():
            raise bad_request("say by which version you go: ?version=N, of GET /shuffles/NAME")
        about = _number(request, "interval"), int(version)
        body, current = await self._run(request, lambda client: client.read(*about))
        if body is None:
            message = f"version {version} is not the current one, {current}: read it again"
            raise HttpRefusal(400, "VersionDiffers", message, {"version": str(current)})
        return Response(body, media_type=ARROW_TYPE)


def _number(request: Request, what: str) -> int:
    text = name_in(request, what)
    if not text.isdecimal() or len(text) > len(str(1 << 32)):
        raise bad_request(f"the {what} in the path is a number, not {text!r:.100}")
    return int(text)


def _whole(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad_request(f"{name} is a whole number, 0 or more, not {value!r:.100}")
    return value
