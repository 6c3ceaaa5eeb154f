"""Requests as they are forwarded, and answers in place of the application's."""

from __future__ import annotations

import json

import pytest

from ringpop_py.entry import http
from ringpop_py.errors import ConfigError, ConnectFailed, ConnectionLost, MaxRetriesExceeded
from ringpop_py.proxy.request import HttpReply

HEADERS = (("Host", "shop.example"), ("Cookie", "a=1"), ("Cookie", "b=2"))


def forwarded(*headers: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return http.to_forward("GET", "/x?y", headers, b"", client="10.0.0.9", scheme="https").headers


def test_who_asked_stands_in_headers_and_the_others_are_kept_in_order() -> None:
    assert forwarded(*HEADERS) == (
        *HEADERS,
        ("x-forwarded-for", "10.0.0.9"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example"),
    )


def test_what_proxies_before_us_have_said_is_kept() -> None:
    known = (("X-Forwarded-For", "10.0.0.1"), ("X-Forwarded-Proto", "http"))
    assert forwarded(*known) == (
        ("X-Forwarded-Proto", "http"),
        ("x-forwarded-for", "10.0.0.1, 10.0.0.9"),
    )


def test_a_mark_of_somebody_else_goes_no_further() -> None:
    names = [name for name, _ in forwarded(("Ringpop-Forwarded", "forged"))]
    assert names == ["x-forwarded-for", "x-forwarded-proto"]


@pytest.mark.parametrize(
    ("status", "method", "length"), [(200, "GET", "3"), (200, "HEAD", None), (304, "GET", None)]
)
def test_a_reply_has_the_length_of_its_body(status: int, method: str, length: str | None) -> None:
    reply = HttpReply(status, (("date", "now"), ("Server", "x"), ("set-cookie", "a")), b"abc", "n")
    headers = dict(http.reply_headers(reply, method))
    assert headers.pop("content-length", None) == length
    assert headers == {"set-cookie": "a"}


def test_a_refusal_says_why_and_when_it_passes() -> None:
    refused = http.refusal_of(MaxRetriesExceeded("tried 3 times"))
    value = json.loads(refused.body)
    assert (value["status"], value["message"]) == (refused.status, "tried 3 times")
    assert ("content-length", str(len(refused.body))) in refused.headers
    assert ("retry-after", "1") in http.refusal(503, "any", "any").headers


def test_this_host_answers_only_what_certainly_has_not_run() -> None:
    assert http.may_be_answered_here(ConnectFailed("refused"), "here")
    assert not http.may_be_answered_here(ConnectFailed("refused"), "refuse")
    assert not http.may_be_answered_here(ConnectionLost("after it was sent"), "here")


def test_options_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="away is 'here' or 'refuse', not str: 'there'"):
        http.Options(away="there").checked()  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="timeout_s is above 0"):
        http.Options(timeout_s=0).checked()
