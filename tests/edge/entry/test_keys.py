"""Where the key of a request stands."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import ConfigError
from ringpop_py.edge.entry.keys import Incoming, KeyRule, key_rule


def asked(path: str = "/", query: str = "", *headers: tuple[str, str]) -> Incoming:
    return Incoming("GET", path, query, headers)


@pytest.mark.parametrize(
    ("rule", "request_", "key"),
    [
        ("header:X-User", asked("/", "", ("x-user", "ann")), "ann"),
        ("header:x-user", asked("/", "", ("X-USER", "ann"), ("x-user", "bob")), "ann"),
        ("header:X-User", asked("/", "", ("x-user", "")), None),
        ("path:/carts/{key}", asked("/carts/7"), "7"),
        ("path:/carts/{key}", asked("/carts/7/items/3"), "7"),
        ("path:/carts/{key}", asked("/carts/"), None),
        ("path:/carts/{key}", asked("/carts"), None),
        ("path:/carts/{key}", asked("/orders/7"), None),
        ("path:/carts/{key}", asked("/carts/a%2Fb%20c"), "a/b c"),
        ("path:/carts/{key}", asked("/c%61rts/7"), "7"),
        ("path:/*/{key}/items", asked("/carts/7/items"), "7"),
        ("path:/*/{key}/items", asked("/carts/7/other"), None),
        ("path:/{key}", asked("/7"), "7"),
        ("query:user", asked("/", "a=1&user=ann%20b&user=bob"), "ann b"),
        ("query:user", asked("/", "user=&x=1"), None),
        ("query:user", asked("/", "%zz;&&="), None),
        ("cookie:sid", asked("/", "", ("cookie", 'a=1; sid="x y"; b=2')), "x y"),
        ("cookie:sid", asked("/", "", ("cookie", "nothing")), None),
        ("cookie:sid", asked("/", "", ("cookie", 'prefs={"a":1}; x=a b"; sid=abc')), "abc"),
        ("cookie:sid", asked("/", "", ("cookie", "a=1"), ("cookie", "sid=b=c")), "b=c"),
        ("cookie:sid", asked("/", "", ("cookie", "xsid=1; sid=")), None),
        ("cookie:sid", asked(), None),
        (lambda request: request.method, asked(), "GET"),
        (["header:x", "query:x"], asked("/", "x=2", ("x", "1")), "1"),
        (["header:x", "query:x"], asked("/", "x=2"), "2"),
        (["header:x", lambda _: None], asked("/", "x=2"), None),
    ],
)
def test_a_rule_finds_the_key(
    rule: str | KeyRule | list[str | KeyRule], request_: Incoming, key: str | None
) -> None:
    assert key_rule(rule)(request_) == key


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("X-User", "is none of: header:NAME"),
        ("header:", "is none of"),
        ("body:x", "is none of"),
        ("path:carts/{key}", "begins with / and has one part {key}"),
        ("path:/carts", "has one part {key}"),
        ("path:/{key}/{key}", "has one part {key}"),
        ("path:/{user}/{key}", "the only name is {key}"),
        ([], "a function or a list"),
        (5, "a function or a list"),
    ],
)
def test_a_malformed_rule_is_refused(rule: object, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        key_rule(rule)  # type: ignore[arg-type]
    assert told in str(refused.value)
