"""Who has sent a request, as applications read it."""

from __future__ import annotations

import pytest

from ringpop_py.base.config.settings import EntryConfig
from ringpop_py.base.errors import ConfigError
from ringpop_py.edge.entry.callers import Before, is_trusted, networks, told

Headers = tuple[tuple[str, str], ...]
HOST = (("Host", "shop.example"),)


def said(
    *headers: tuple[str, str], before: Before = "kept", client: str = "10.0.0.5"
) -> dict[str, str]:
    pairs = (*headers, *HOST)
    kept, ours = told(pairs, headers, before, client, "http")
    assert len({name.lower() for name, _ in (*kept, *ours)}) == len(kept) + len(ours)
    return dict((*kept, *ours))


@pytest.mark.parametrize("before", ["kept", "replaced", "dropped"])
def test_a_caller_without_a_proxy_is_told_in_both_ways(before: Before) -> None:
    assert said(before=before, client="2001:db8::9") == {
        "forwarded": 'for="[2001:db8::9]";host=shop.example;proto=http',
        "x-forwarded-for": "2001:db8::9",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "shop.example",
    }


def test_what_a_believed_proxy_says_stays_and_its_address_follows() -> None:
    assert said(
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Forwarded-For", "2001:db8::9"),  # haproxy adds a line of its own
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "shop.example:8443"),
        ("X-Forwarded-Port", "8443"),
    ) == {
        "forwarded": 'for=203.0.113.9, for="[2001:db8::9]", '
        'for=10.0.0.5;host="shop.example:8443";proto=https',
        "x-forwarded-for": "203.0.113.9, 2001:db8::9, 10.0.0.5",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "shop.example:8443",
        "X-Forwarded-Port": "8443",
    }


def test_what_a_believed_proxy_says_as_forwarded_stays_and_ours_follows() -> None:
    came = 'For="[2001:db8::9]:4711";proto=https, for="198.51.100.7:80" ; host="a\\"b"'
    assert said(("Forwarded", came)) == {
        "forwarded": came + ', for=10.0.0.5;host="a\\"b";proto=https',
        "x-forwarded-for": "2001:db8::9, 198.51.100.7, 10.0.0.5",
        "x-forwarded-proto": "https",
        "x-forwarded-host": 'a"b',
    }


def test_a_forwarded_that_came_with_the_other_headers_is_a_callers_and_does_not_count() -> None:
    told_by = said(("Forwarded", "for=evil;host=evil"), ("X-Forwarded-For", "203.0.113.9"))
    assert "evil" not in str(told_by)
    assert told_by["forwarded"].startswith("for=203.0.113.9, for=10.0.0.5;host=shop.example")


@pytest.mark.parametrize("came", ['for="1.1.1.1', "for=1.1.1.1,", "1.1.1.1", ""])
def test_half_a_forwarded_swallows_nothing_of_ours(came: str) -> None:
    assert said(("Forwarded", came))["forwarded"] == "for=10.0.0.5;host=shop.example;proto=http"


FORGED: Headers = (
    ("Forwarded", "for=evil;proto=evil;host=evil"),
    ("X-Forwarded-For", "evil"),
    ("X-Forwarded-Proto", "evil"),
    ("X-Forwarded-Host", "evil"),
)
OTHERS: Headers = (("X-Forwarded-User", "evil"), ("X-Real-IP", "evil"))


def test_a_caller_that_is_not_believed_says_nothing_about_itself() -> None:
    assert said(*FORGED, *OTHERS, ("X-User", "ann"), before="dropped", client="203.0.113.9") == {
        "X-User": "ann",
        "forwarded": "for=203.0.113.9;host=shop.example;proto=http",
        "x-forwarded-for": "203.0.113.9",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "shop.example",
    }


def test_a_middleware_says_what_its_server_knows_and_passes_a_sign_on_on() -> None:
    told_by = said(*FORGED, OTHERS[0], before="replaced")
    assert told_by.pop("X-Forwarded-User") == "evil"
    assert "evil" not in str(told_by)


@pytest.mark.parametrize(
    ("client", "is_believed"),
    [
        *((address, True) for address in ("127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.0.1")),
        *((address, True) for address in ("::1", "fd00::1", "fe80::1%eth0", "::ffff:10.0.0.5")),
        *((address, False) for address in ("203.0.113.9", "172.32.0.1", "2001:db8::1")),
        *((address, False) for address in ("::ffff:203.0.113.9", "100.64.0.1", "", "unix")),
    ],
)
def test_by_default_ones_own_networks_are_believed(client: str, *, is_believed: bool) -> None:
    assert is_trusted(client, networks(EntryConfig().trusted)) is is_believed


@pytest.mark.parametrize("text", ["10.0.0.1/8", "nginx", "10.0.0.0/33", ""])
def test_a_network_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"trusted is a tuple of networks, as '10\.0\.0\.0/8'"):
        EntryConfig(trusted=(text,))
