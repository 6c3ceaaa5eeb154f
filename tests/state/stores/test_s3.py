"""The store in S3, against a server of its own."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from ringpop_demo.cluster import free_ports

pytest.importorskip("obstore", reason="obstore is an extra: pip install 'ringpop_py[s3]'")

from ringpop_py.base.errors import ConfigError, StoreFull, StoreUnavailable
from ringpop_py.state.stores import open_store, s3
from ringpop_py.state.stores.s3 import S3Store
from tests.state.stores.conformance import (
    CHECKS,
    Check,
    name_of,
    of_racing_processes_one_wins_each_key,
)
from tests.state.stores.servers import Proxy, Spoilt, proxy_before, s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFLICT = "<Error><Code>ConditionalRequestConflict</Code></Error>"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, s3_server() as at:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_REGION", "us-east-1")
        yield at


@pytest.fixture
def proxy(endpoint: str) -> Iterator[Proxy]:
    with proxy_before(endpoint.removeprefix("http://")) as before:
        yield before


def open_at(at: str, prefix: str = "") -> S3Store:
    return S3Store("bucket", prefix, endpoint=f"http://{at}", allow_http=True)


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_it_is_a_store(check: Check, endpoint: str) -> None:
    prefix = f"{secrets.token_hex(4)}/b"

    check(lambda: open_store(f"s3://bucket/{prefix}?endpoint={endpoint}&allow_http=true"))


def test_of_racing_processes_one_wins_each_key(endpoint: str) -> None:
    of_racing_processes_one_wins_each_key(
        f"s3://bucket/{secrets.token_hex(4)}?endpoint={endpoint}&allow_http=true"
    )


def test_prefixes_are_apart(endpoint: str) -> None:
    at = endpoint.removeprefix("http://")
    one, other, root = open_at(at, "one"), open_at(at, "one-2"), open_at(at)

    one.put_if_absent("a", b"1")

    assert other.list("") == []
    assert root.get("one/a") == b"1"


def test_a_conflict_is_tried_again(proxy: Proxy) -> None:
    store = open_at(proxy.at, secrets.token_hex(4))
    proxy.spoilt += [Spoilt("PUT", "/a", 409, CONFLICT)] * 2

    assert store.put_if_absent("a", b"1") is True
    assert store.get("a") == b"1"
    assert not proxy.spoilt


def test_a_conflict_that_another_won_is_a_refused_put(proxy: Proxy) -> None:
    store = open_at(proxy.at, secrets.token_hex(4))
    store.put_if_absent("a", b"theirs")
    proxy.spoilt.append(Spoilt("PUT", "/a", 409, CONFLICT))

    assert store.put_if_absent("a", b"ours") is False
    assert store.get("a") == b"theirs"


def test_conflicts_without_end_make_it_unavailable(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "CONFLICT_PAUSE_S", 0.0)
    store = open_at(proxy.at, secrets.token_hex(4))
    proxy.spoilt += [Spoilt("PUT", "/a", 409, CONFLICT)] * s3.CONFLICTS_MAX

    with pytest.raises(StoreUnavailable, match="conflicts in a row at a"):
        store.put_if_absent("a", b"1")

    assert not proxy.spoilt
    assert store.get("a") is None


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("status", [0, 500, 503], ids=["silence", "500", "503"])
def test_a_put_without_a_good_answer_is_open_and_not_repeated(
    proxy: Proxy, status: int, *, is_done: bool
) -> None:
    store = open_at(proxy.at, secrets.token_hex(4))
    proxy.seen.clear()
    proxy.spoilt.append(Spoilt("PUT", "/a", status, is_done=is_done))

    with pytest.raises(StoreUnavailable) as caught:
        store.put_if_absent("a", b"1")

    assert not isinstance(caught.value, StoreFull)
    assert len(proxy.seen) == 1
    assert store.get("a") == (b"1" if is_done else None)
    assert store.put_if_absent("a", b"1") is not is_done


def test_reads_are_repeated(proxy: Proxy) -> None:
    store = open_at(proxy.at, secrets.token_hex(4))
    store.put_if_absent("a", b"1")
    proxy.spoilt += [Spoilt("GET", "/a", 503), Spoilt("GET", "/bucket", 500)]

    assert store.get("a") == b"1"
    assert store.list("") == ["a"]
    assert not proxy.spoilt


def test_a_quota_that_is_reached_is_named(proxy: Proxy) -> None:
    store = open_at(proxy.at, secrets.token_hex(4))
    full = "<Error><Code>XMinioStorageFull</Code></Error>"
    proxy.spoilt.append(Spoilt("PUT", "/a", 507, full))

    with pytest.raises(StoreFull, match="XMinioStorageFull"):
        store.put_if_absent("a", b"1")

    assert store.get("a") is None


def test_a_service_that_overwrites_is_refused(proxy: Proxy) -> None:
    proxy.spoilt += [Spoilt("PUT", "check", 200)] * 2

    with pytest.raises(ConfigError, match="ignores If-None-Match"):
        open_at(proxy.at, secrets.token_hex(4))


def test_credentials_that_are_refused_are_named(proxy: Proxy) -> None:
    denied = "<Error><Code>AccessDenied</Code></Error>"
    proxy.spoilt.append(Spoilt("PUT", "check", 403, denied))

    with pytest.raises(ConfigError, match="AccessDenied"):
        open_at(proxy.at, secrets.token_hex(4))


def test_a_bucket_that_is_missing_is_no_empty_store(endpoint: str, proxy: Proxy) -> None:
    with pytest.raises(ConfigError, match="NoSuchBucket"):
        S3Store("nowhere", endpoint=endpoint, allow_http=True)

    store = open_at(proxy.at)
    gone = "<Error><Code>NoSuchBucket</Code></Error>"
    proxy.spoilt.append(Spoilt("GET", "/a", 404, gone))
    with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
        store.get("a")


def test_a_service_that_is_away_is_unavailable(endpoint: str) -> None:
    assert endpoint
    with pytest.raises(StoreUnavailable, match="s3 store bucket/"):
        open_at(f"127.0.0.1:{free_ports(1)[0]}")


def test_an_endpoint_without_tls_needs_leave() -> None:
    with pytest.raises(ConfigError, match="allow_http=true"):
        S3Store("bucket", endpoint="http://127.0.0.1:1")


def test_a_long_prefix_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than 200 characters"):
        S3Store("bucket", "x" * 201)
