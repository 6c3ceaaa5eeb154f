"""Errors as answers: a status, and a JSON body with the name of the error and a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from ringpop_py.errors import BodyError, ConfigError, KeyspaceError
from ringpop_py.values.packed import encode_value

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON_TYPE: Final = "application/json"
UNAVAILABLE: Final = 503
RETRY_AFTER: Final = {"retry-after": "1"}


class HttpRefusal(Exception):
    """A request that is not served.

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


REFUSALS: Final = (HttpRefusal, KeyspaceError, BodyError, ConfigError)


def bad_request(message: str) -> HttpRefusal:
    """Return the refusal (400) of a malformed request."""
    return HttpRefusal(400, "BadRequest", message)


def refused(error: Exception) -> Response:
    """Return the answer for *error*, one of `REFUSALS`."""
    status, kind = _named(error)
    headers = error.headers if isinstance(error, HttpRefusal) else None
    return an_error(status, kind, str(error), headers)


def error_fields(error: Exception) -> dict[str, Any]:
    """Return *error*, one of `REFUSALS`, as fields that stand for one row or outcome of many."""
    status, kind = _named(error)
    return {"error": kind, "message": str(error), "status": status}


def _named(error: Exception) -> tuple[int, str]:
    match error:
        case HttpRefusal():
            return error.status, error.kind
        case KeyspaceError():
            return error.http_status, type(error).__name__
        case _:
            return 400, "BadRequest"


def an_error(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer with an error."""
    body = encode_value("json", {"error": kind, "message": message})
    more = {**(headers or {}), **(RETRY_AFTER if status == UNAVAILABLE else {})}
    return Response(body, status, headers=more, media_type=JSON_TYPE)
