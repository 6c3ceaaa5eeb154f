"""Errors as replies: a status, and a JSON body with the name of the error and a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from ringpop_py.base.errors import BodyError, ConfigError, KeyspaceError, ShuffleError
from ringpop_py.base.values.packed import encode_value

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON_TYPE: Final = "application/json"
LINE_END: Final = b"\n"
UNAVAILABLE: Final = 503


class HttpRefusal(Exception):
    """The refusal of a request.

    Attributes:
        kind: the name by which programs recognise the error; *message* is for people.
    """

    def __init__(
        self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.headers = headers


REFUSALS: Final = (HttpRefusal, KeyspaceError, ShuffleError, BodyError, ConfigError)


def bad_request(message: str) -> HttpRefusal:
    """Return the refusal (400) of a malformed request."""
    return HttpRefusal(400, "BadRequest", message)


def refused(error: Exception) -> Response:
    """Return the reply for *error*, one of `REFUSALS`."""
    fields = error_fields(error)
    status = fields.pop("status")
    headers = dict(getattr(error, "headers", None) or {})
    if status == UNAVAILABLE:  # the cause usually goes away within a second
        headers["retry-after"] = "1"
    body = encode_value("json", fields) + LINE_END
    return Response(body, status, headers=headers, media_type=JSON_TYPE)


def error_fields(error: Exception) -> dict[str, Any]:
    """Return *error*, one of `REFUSALS`, as the fields that replace one row or outcome of many."""
    match error:
        case HttpRefusal():
            status, kind = error.status, error.kind
        case KeyspaceError() | ShuffleError():
            status, kind = error.http_status, type(error).__name__
        case _:
            status, kind = 400, "BadRequest"
    return {"error": kind, "message": str(error), "status": status}
