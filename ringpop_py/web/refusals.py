"""What goes wrong, as an answer: a status, and a JSON body that says which error, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from ringpop_py.errors import BodyError, ConfigError, KeyspaceError
from ringpop_py.wire.values import encode_value

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON_TYPE: Final = "application/json"
UNAVAILABLE: Final = 503
RETRY_AFTER: Final = {"retry-after": "1"}


class Refusal(Exception):
    """A request that is not served.

    Attributes:
        kind: what a program tells it by; *message* is for a person.
    """

    def __init__(
        self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.headers = headers


REFUSALS: Final = (Refusal, KeyspaceError, BodyError, ConfigError)


def bad_request(message: str) -> Refusal:
    """The request makes no sense."""
    return Refusal(400, "BadRequest", message)


def refused(error: Exception) -> Response:
    """The answer for one of `REFUSALS`."""
    match error:
        case Refusal():
            return an_error(error.status, error.kind, str(error), error.headers)
        case KeyspaceError():
            return an_error(error.http_status, type(error).__name__, str(error))
        case _:
            return an_error(400, "BadRequest", str(error))


def an_error(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer that says what went wrong."""
    body = encode_value("json", {"error": kind, "message": message})
    more = {**(headers or {}), **(RETRY_AFTER if status == UNAVAILABLE else {})}
    return Response(body, status, headers=more, media_type=JSON_TYPE)
