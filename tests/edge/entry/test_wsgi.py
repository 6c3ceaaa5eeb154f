"""WSGI applications whose key another host owns, without a daemon."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base import arguments
from ringpop_py.edge.entry.http import to_forward
from ringpop_py.edge.entry.keys import key_rule
from ringpop_py.edge.entry.wsgi import RingpopWSGI, _incoming_of
from ringpop_py.route.proxy.request import HttpRequest
from tests.e2e.local_cluster import free_addresses
from tests.edge.entry.daemons import ME, OTHER, Daemon, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable


def answer_of(body: bytes, **environ: Any) -> tuple[str, bytes]:  # noqa: ANN401 - of WSGI
    """The status and the body of an answer of a host whose daemon is away."""
    statuses: list[str] = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:  # noqa: ANN401
        start_response("200 OK", [])
        return [environ["wsgi.input"].read()]

    given = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/carts/7",
        "wsgi.input": BytesIO(body),
        "wsgi.url_scheme": "http",
        **environ,
    }
    wrapped = RingpopWSGI(app, key="path:/carts/{key}", daemon=free_addresses(1)[0])
    said = b"".join(wrapped(given, lambda status, _headers: statuses.append(status)))  # type: ignore[arg-type]
    return statuses[0], said


def test_this_host_answers_with_the_whole_body() -> None:
    assert answer_of(b"abc", CONTENT_LENGTH="3") == ("200 OK", b"abc")


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"CONTENT_LENGTH": "4"}, "400 Bad Request"),
        ({"CONTENT_LENGTH": "2000000000"}, "413"),
        ({"HTTP_TRANSFER_ENCODING": "chunked"}, "411 Length Required"),
    ],
)
def test_a_body_that_is_not_whole_is_not_handled(environ: dict[str, str], status: str) -> None:
    assert answer_of(b"abc", **environ)[0].startswith(status)


def test_a_body_whose_end_the_server_knows_is_handled() -> None:
    environ = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    assert answer_of(b"abc", **environ) == ("200 OK", b"abc")


@pytest.mark.parametrize(("mark", "is_known"), [("the daemon's", True), ("forged", False)])
def test_a_replayed_request_is_answered_here_and_no_mark_is_shown(
    mark: str,
    is_known: bool,  # noqa: FBT001
) -> None:
    shown: list[dict[str, Any]] = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:  # noqa: ANN401
        shown.append(environ)
        start_response("200 OK", [])
        return [b"here"]

    daemon = Daemon()
    daemon.tell("the daemon's")
    wrapped = RingpopWSGI(app, key="path:/carts/{key}")
    wrapped._follower._client = daemon  # type: ignore[assignment]
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": f"/carts/{key_of(OTHER if is_known else ME)}",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_RINGPOP_FORWARDED": mark,
        "HTTP_X_FORWARDED_FOR": "10.0.0.9",
        "wsgi.url_scheme": "http",
    }

    assert b"".join(wrapped(environ, lambda *_: None)) == b"here"  # type: ignore[arg-type]

    assert "HTTP_RINGPOP_FORWARDED" not in shown[0]
    assert shown[0]["REMOTE_ADDR"] == ("10.0.0.9" if is_known else "127.0.0.1")


@pytest.mark.parametrize(
    ("raw", "forwarded"),
    [(None, "/shop/carts/"), ("/shop/carts/", "/shop/carts/"), ("/carts/", "/carts/")],
    ids=["decoded", "whole", "without what a proxy has removed"],
)
def test_in_a_mounted_application_the_key_stands_in_the_whole_path(
    raw: str | None, forwarded: str
) -> None:
    asked = _incoming_of(
        {
            "REQUEST_METHOD": "GET",
            "SCRIPT_NAME": "/shop",
            "PATH_INFO": "/carts/é".encode().decode("latin-1"),
            **({} if raw is None else {"REQUEST_URI": f"{raw}%C3%A9?a=b"}),
        }
    )

    request = to_forward(asked, b"", client="", scheme="http")

    assert key_rule("path:/shop/carts/{key}")(asked) == "é"
    assert isinstance(request, HttpRequest)
    assert request.path == f"{forwarded}%C3%A9"


def test_a_key_that_is_too_long_is_a_mistake_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arguments, "ROUTED_KEY_CHARACTERS_MAX", 10)

    status, body = answer_of(b"", PATH_INFO=f"/carts/{'k' * 11}")

    assert status == "400 Bad Request"
    assert b"a key has at most 10 characters, not 11" in body
