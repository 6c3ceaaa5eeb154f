"""Requests as they are forwarded, and answers in place of the application's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from ringpop_py.base.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    DeadlineExceeded,
    MaxRetriesExceeded,
    MayHaveRun,
    NoOwner,
    PeerDeclined,
    PeerFailed,
    Refused,
    RingpopError,
)
from ringpop_py.edge.entry import http
from ringpop_py.edge.entry.keys import Incoming
from ringpop_py.route.proxy.request import HttpReply, HttpRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.edge.entry.callers import Before

FAILURES: Final = (
    *(
        MaxRetriesExceeded,
        MayHaveRun,
        DeadlineExceeded,
        NoOwner,
        PeerFailed,
        Refused,
        ConnectFailed,
    ),
    PeerDeclined,
)
HEADERS = (("Host", "shop.example"), ("accept", "x"), ("Cookie", "a=1"), ("Cookie", "b=2"))


def forwarded(
    *headers: tuple[str, str], before: Before = "replaced"
) -> tuple[tuple[str, str], ...]:
    asked = Incoming("GET", "/x", "y", headers)
    request = http.to_forward(asked, b"", client="10.0.0.9", scheme="https", before=before)
    assert isinstance(request, HttpRequest)
    return request.headers


def test_a_forwarded_request_names_its_client_and_has_one_cookie_header() -> None:
    assert forwarded(*HEADERS) == (
        ("accept", "x"),
        ("cookie", "a=1; b=2"),
        ("forwarded", "for=10.0.0.9;host=shop.example;proto=https"),
        ("x-forwarded-for", "10.0.0.9"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example"),
        ("ringpop-hops", "1"),
    )


def test_nobody_removes_what_we_say_and_no_name_stands_for_another() -> None:
    tricks = (("Connection", "x-forwarded-for, x-forwarded-proto"), ("X_Forwarded_For", "1"))
    names = [name for name, _ in forwarded(*tricks)]
    assert names == ["forwarded", "x-forwarded-for", "x-forwarded-proto", "ringpop-hops"]


def test_a_request_that_goes_round_in_a_circle_is_stopped() -> None:
    headers: tuple[tuple[str, str], ...] = (("Connection", "ringpop-hops"), ("Ringpop-Hops", "x"))
    for count in range(http.HOPS_MAX):
        headers = forwarded(*headers)
        assert dict(headers)["ringpop-hops"] == str(count + 1)
    answer = http.to_forward(Incoming("GET", "/", "", headers), b"", client="", scheme="http")
    assert isinstance(answer, http.OwnAnswer)
    assert answer.status == 508
    assert b"the --app-url of a daemon is not the application of its own host" in answer.body
    odd = (("ringpop-hops", "9" * 5_000),)
    asked = Incoming("GET", "/", "", odd)
    assert isinstance(http.to_forward(asked, b"", client="", scheme="h"), http.OwnAnswer)


def test_a_host_reads_the_client_from_the_headers_that_the_other_host_added() -> None:
    assert http.asker_of(forwarded(*HEADERS)) == ("10.0.0.9", "https", "shop.example")
    assert http.asker_of([("X-Forwarded-For", "1.1.1.1, 2.2.2.2")]) == ("2.2.2.2", "", "")


def test_a_mark_of_somebody_else_goes_no_further() -> None:
    names = [name for name, _ in forwarded(("Ringpop-Forwarded", "forged"))]
    assert names == ["forwarded", "x-forwarded-for", "x-forwarded-proto", "ringpop-hops"]


@pytest.mark.parametrize(
    ("status", "method", "length"), [(200, "GET", "3"), (200, "HEAD", None), (304, "GET", None)]
)
def test_a_reply_has_the_length_of_its_body(status: int, method: str, length: str | None) -> None:
    said = (("date", "now"), ("Server", "x"), ("set-cookie", "a"), ("Transfer-Encoding", "chunked"))
    reply = HttpReply(status, said, b"abc", "n")
    headers = dict(http.reply_headers(reply, method))
    assert headers.pop("content-length", None) == length
    assert headers == {"set-cookie": "a"}


def test_a_refusal_says_why_and_when_it_passes() -> None:
    refused = http.refusal_of(ConfigError("a path begins with a slash"))
    value = json.loads(refused.body)
    assert (value["status"], value["message"]) == (400, "a path begins with a slash")
    assert ("content-length", str(len(refused.body))) in refused.headers
    assert ("retry-after", "1") in http.refusal(503, "any", "any").headers


@pytest.mark.parametrize("kind", FAILURES)
def test_a_refusal_names_no_member(kind: Callable[[str], RingpopError]) -> None:
    refused = http.refusal_of(kind("attempt 1 to 10.0.0.7:3000: n7 does not answer"))

    value = json.loads(refused.body)
    assert value["status"] == refused.status
    assert value["message"]
    assert "10.0.0.7" not in refused.body.decode()
    assert "n7" not in refused.body.decode()


def test_a_head_keeps_the_length_that_the_application_has_said() -> None:
    reply = HttpReply(200, (("content-length", "77"),), b"", "n")
    assert http.reply_headers(reply, "HEAD") == (("content-length", "77"),)
    assert http.reply_headers(reply, "GET") == (("content-length", "0"),)


def test_this_host_answers_only_while_its_daemon_is_away_or_ends() -> None:
    assert http.may_be_answered_here(ConnectRefused("refused"), "here")
    assert http.may_be_answered_here(PeerDeclined("ends"), "here")
    assert not http.may_be_answered_here(ConnectRefused("refused"), "refuse")
    assert not http.may_be_answered_here(ConnectFailed("too many"), "here")
    assert not http.may_be_answered_here(ConnectionLost("after it was sent"), "here")


def test_options_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="away is 'here' or 'refuse', not str: 'there'"):
        http.Options(away="there").checked()  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="timeout_s is above 0"):
        http.Options(timeout_s=0).checked()


@pytest.mark.parametrize("failover", [1, 2])
def test_a_request_that_may_have_run_is_repeated_only_if_its_method_permits_that(
    failover: int,
) -> None:
    options = http.Options(failover=failover, idempotent=("GET",))

    assert options.tries("POST") == options.tries("PUT") == {}
    more = {"failover": failover} if failover > 1 else {}
    assert options.tries("GET") == {"idempotent": True, **more}
