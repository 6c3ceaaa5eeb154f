"""The store in etcd, against a process of its own."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import httpx
import pytest

from ringpop_demo.cluster import free_ports
from ringpop_py.base.errors import ConfigError, StoreFull, StoreUnavailable
from ringpop_py.state.stores import etcd, open_store
from ringpop_py.state.stores.etcd import EtcdStore
from tests.state.stores.conformance import (
    CHECKS,
    Check,
    name_of,
    of_racing_processes_one_wins_each_key,
)
from tests.state.stores.servers import Proxy, Spoilt, etcd_server, proxy_before

if TYPE_CHECKING:
    from collections.abc import Iterator

TXN = "/v3/kv/txn"
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("etcd")
    with etcd_server(folder) as at:
        yield at


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("etcd")
    with etcd_server(folder, "--quota-backend-bytes", str(4 * MEBIBYTE)) as at:
        yield at


@pytest.fixture
def proxy(endpoint: str) -> Iterator[Proxy]:
    with proxy_before(endpoint) as before:
        yield before


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_it_is_a_store(check: Check, endpoint: str) -> None:
    prefix = f"{secrets.token_hex(4)}/b"

    check(lambda: open_store(f"etcd://{endpoint}/{prefix}"))


def test_of_racing_processes_one_wins_each_key(endpoint: str) -> None:
    of_racing_processes_one_wins_each_key(f"etcd://{endpoint}/{secrets.token_hex(4)}")


def test_prefixes_are_apart(endpoint: str) -> None:
    one, other = EtcdStore([endpoint], "one"), EtcdStore([endpoint], "one-2")

    one.put_if_absent("a", b"1")

    assert other.list("") == []
    assert one.list("") == ["a"]
    for store in (one, other):
        store.close()


def test_a_list_in_pages_is_of_one_moment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "KEYS_A_PAGE", 3)
    store = EtcdStore([endpoint], secrets.token_hex(4))
    keys = [f"a/{number}" for number in range(10)]
    for key in keys:
        store.put_if_absent(key, b"")
    asked = store._ask

    def put_between(at: str, verb: str, query: dict[str, object]) -> dict[str, object]:
        answer = asked(at, verb, query)
        if "keys_only" in query:
            asked(at, "put", {"key": etcd._encoded(f"{store._at}a/9{len(answer)}")})
        return answer

    monkeypatch.setattr(store, "_ask", put_between)

    assert store.list("a/") == keys
    store.close()


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("status", [0, 503], ids=["silence", "503"])
def test_a_put_without_a_good_answer_is_open_and_not_repeated(
    proxy: Proxy, endpoint: str, status: int, *, is_done: bool
) -> None:
    store = EtcdStore([proxy.at, endpoint], secrets.token_hex(4))
    proxy.spoilt.append(Spoilt("POST", TXN, status, is_done=is_done))

    with pytest.raises(StoreUnavailable) as caught:
        store.put_if_absent("a", b"1")

    assert not isinstance(caught.value, StoreFull)
    assert store.get("a") == (b"1" if is_done else None)
    assert store.put_if_absent("a", b"1") is not is_done
    store.close()


def test_the_next_endpoint_is_asked_if_one_is_away(endpoint: str) -> None:
    away = f"127.0.0.1:{free_ports(1)[0]}"
    store = EtcdStore([away, endpoint], secrets.token_hex(4))

    assert store.put_if_absent("a", b"1")
    assert store._endpoints == (endpoint, away)
    store.close()


def test_a_put_goes_to_the_next_endpoint_only_if_it_was_not_heard(
    proxy: Proxy, endpoint: str
) -> None:
    store = EtcdStore([proxy.at, endpoint], secrets.token_hex(4))
    proxy.close()
    store._client.close()
    store._client = httpx.Client(trust_env=False)  # for its open connection was heard

    assert store.put_if_absent("a", b"1") is True
    store.close()


def test_a_read_goes_to_the_next_endpoint_if_one_fails(proxy: Proxy, endpoint: str) -> None:
    store = EtcdStore([proxy.at, endpoint], secrets.token_hex(4))
    store.put_if_absent("a", b"1")
    proxy.spoilt += [Spoilt("POST", "/range", 503)]

    assert store.get("a") == b"1"
    assert not proxy.spoilt
    store.close()


@pytest.mark.parametrize("size", [int(1.7 * MEBIBYTE), 3 * MEBIBYTE])
def test_a_value_that_is_too_large_is_named_and_takes_nothing(narrow: str, size: int) -> None:
    store = EtcdStore([narrow], "large")

    with pytest.raises(StoreFull, match=r"too large|larger than max"):
        store.put_if_absent("a", bytes(size))

    assert store.get("a") is None
    assert store.list("") == []
    store.close()


def test_where_etcd_has_no_room_only_what_is_certain_is_called_full(narrow: str) -> None:
    store = EtcdStore([narrow], "many")
    said: list[type] = []
    for number in range(10):
        try:
            store.put_if_absent(f"{number}", bytes(MEBIBYTE))
            said.append(bytes)
        except StoreUnavailable as error:
            said.append(type(error))

    there = [store.get(f"{number}") is not None for number in range(10)]

    assert {bytes, StoreFull} <= set(said)
    assert there == [kind is not StoreFull for kind in said]
    store.close()


def test_a_write_that_was_done_and_called_full_is_open(proxy: Proxy) -> None:
    store = EtcdStore([proxy.at], secrets.token_hex(4))
    full = '{"code": 8, "message": "etcdserver: mvcc: database space exceeded"}'
    proxy.spoilt.append(Spoilt("POST", TXN, 429, full, is_done=True))

    with pytest.raises(StoreUnavailable, match="space exceeded") as caught:
        store.put_if_absent("a", b"1")

    assert not isinstance(caught.value, StoreFull)
    assert store.get("a") == b"1"
    store.close()


def test_a_server_that_is_not_etcd_is_refused(proxy: Proxy) -> None:
    for status, body in ((404, "nothing here"), (200, "<html>"), (200, "{}"), (200, "[]")):
        proxy.spoilt.append(Spoilt("POST", "/range", status, body))
        with pytest.raises((ConfigError, StoreUnavailable), match=proxy.at):
            EtcdStore([proxy.at], "p")


def test_nobody_there_is_unavailable() -> None:
    away = f"127.0.0.1:{free_ports(1)[0]}"

    with pytest.raises(StoreUnavailable, match=f"etcd store {away}: "):
        EtcdStore([away], "p")
