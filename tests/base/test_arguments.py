"""A mistake of a caller is an error of ours that names the argument, and nothing has happened."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from ringpop_py import (
    Client,
    Config,
    ConfigError,
    HashRing,
    KeyspaceClient,
    Request,
    RingpopError,
    open_local_keyspaces,
    open_ringpop,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.address import Address


SOUND: Final = Request("/x")
LONG: Final = "k" * 65_537
ANY: Final[Any] = None
"""Stands for nothing: the argument before it is the wrong one."""
OF_NODE: Final[dict[str, tuple[Callable[[Any], Any], str]]] = {
    "a key that is a number": (lambda node: node.handle_or_proxy(7, SOUND), "key .*not int"),
    "a key in bytes": (lambda node: node.proxy(b"k", SOUND), "key .*not bytes"),
    "a key that is too long": (lambda node: node.handle_or_proxy(LONG, SOUND), "65536.*65537"),
    "many keys, one too long": (lambda node: node.proxy(["k", LONG], SOUND), "65536.*65537"),
    "keys of which one is None": (lambda node: node.proxy(["k", None], SOUND), "key .*None"),
    "many keys, a number": (lambda node: node.handle_or_proxy_all(7, SOUND), "key.*not int"),
    "many keys, numbers": (lambda node: node.handle_or_proxy_all([7], SOUND), "key .*not int"),
    "a request that is text": (lambda node: node.proxy("k", "/x"), "request .*not str"),
    "a request that is None": (lambda node: node.handle_or_proxy("k", None), "request .*None"),
    "a request of many": (lambda node: node.handle_or_proxy_all(["k"], b""), "request .*bytes"),
    "an unknown option": (lambda node: node.proxy("k", SOUND, retries=3), "no option 'retries'"),
    "an option of many": (
        lambda node: node.handle_or_proxy_all(["k"], SOUND, deadline=3),
        "no option .deadline.*deadline_s",
    ),
    "a deadline that is text": (lambda node: node.proxy("k", SOUND, deadline_s="1"), "deadline_s"),
    "a deadline that is no number": (
        lambda node: node.proxy("k", SOUND, deadline_s=float("nan")),
        "deadline_s",
    ),
    "retries that are text": (lambda node: node.proxy("k", SOUND, max_retries="1"), "max_retries"),
    "a schedule that is a number": (
        lambda node: node.proxy("k", SOUND, retry_schedule=1),
        "retry_schedule",
    ),
    "a schedule of texts": (
        lambda node: node.proxy("k", SOUND, retry_schedule=["1"]),
        "retry_schedule",
    ),
    "the key of a lookup": (lambda node: node.lookup(7), "key .*not int"),
    "the key of lookup_n": (lambda node: node.lookup_n(None, 2), "key .*not None"),
    "the n of lookup_n": (lambda node: node.lookup_n("k", "2"), "n .*'2'"),
    "a decorator without parentheses": (lambda node: node.handler(print), "endpoint .*not builtin"),
    "an endpoint": (lambda node: node.many_handler(7), "endpoint .*int: 7"),
    "an endpoint without a slash": (lambda node: node.handler("x")(lambda _call: b""), "endpoint"),
    "a handler": (lambda node: node.handler("/x")("handle"), "handler .*'handle'"),
    "the name of an aggregation": (lambda node: node.aggregation(7), "name .*7"),
    "an aggregation": (lambda node: node.aggregation("x")("max"), "'max'"),
    "labels": (lambda node: node.set_labels("zone=a"), "label"),
    "a label": (lambda node: node.set_labels((("zone", 7),)), "label"),
    "a load": (lambda node: node.set_load("0.5"), "load"),
    "an observer": (lambda node: node.observe("observe"), "observer"),
    "the name of a keyspace": (
        lambda node: node.open_keyspace(7, partitions=4, mode="memory"),
        "name",
    ),
    "the number of partitions": (lambda node: node.open_keyspace("n", partitions="4"), "part"),
    "an unknown setting": (lambda node: node.open_keyspace("n", partition=4), "partition"),
    "the name of one that exists": (lambda node: node.open_keyspace(7), "7"),
}
OF_KEYSPACE: Final[dict[str, tuple[Callable[[Any], Any], str]]] = {
    "the key of a get": (lambda k: k.get(7), "key .*not int"),
    "the key of a put": (lambda k: k.put(7, 1), "key .*not int"),
    "a key in bytes": (lambda k: k.put(b"k", 1), "key .*not bytes"),
    "a key that is empty": (lambda k: k.put("", 1), "key"),
    "a key that is not Unicode": (lambda k: k.put("\ud800", 1), "key|surrogates"),
    "the key of a delete": (lambda k: k.delete(None), "key .*not None"),
    "a value": (lambda k: k.put("k", object()), "object"),
    "an operation": (lambda k: k.update("k", 7, 1), "operation .*not int"),
    "a tag": (lambda k: k.put("k", 1, if_tag=7), "tag"),
    "an operation id": (lambda k: k.put("k", 1, operation_id=7), "operation_id"),
    "a timeout that is text": (lambda k: k.put("k", 1, timeout_s="1"), "timeout_s"),
    "a timeout that is no number": (lambda k: k.get("k", timeout_s=float("nan")), "timeout_s"),
    "keys that are a number": (lambda k: k.get_many(7), "keys .*not int"),
    "keys that are numbers": (lambda k: k.get_many([7]), "key .*not int"),
    "keys that are one text": (lambda k: k.get_many("abc"), "keys .*'abc'"),
    "changes that are a number": (lambda k: k.update_many(7), "changes .*not int"),
    "a change that is a number": (lambda k: k.update_many([7]), "change .*7"),
    "a change too short": (lambda k: k.update_many([("k",)]), "change .*'k'"),
    "a change of a key in bytes": (lambda k: k.update_many([(b"k", "put", 1)]), "key .*not bytes"),
    "a change without an operation": (lambda k: k.update_many([("k", None, 1)]), "operation"),
    "offsets": (lambda k: k.update_many([("k", "put", 1)], offsets=7), "offsets"),
    "the prefix of a scan": (lambda k: k.scan(7), "prefix"),
    "the start of a scan": (lambda k: k.scan(start=7), "start"),
    "the end of a scan": (lambda k: k.scan(end=b"x"), "end"),
    "the limit of a scan": (lambda k: k.scan(limit="7"), "limit"),
    "the limit below 0": (lambda k: k.scan(limit=-1), "limit"),
}
OF_CLIENT: Final[dict[str, tuple[Callable[[Client], Any], str]]] = {
    "the key of a lookup": (lambda client: client.lookup(ANY), "key .*not None"),
    "a key that is not Unicode": (lambda client: client.lookup("\ud800"), "key .*Unicode"),
    "the key of a proxy": (lambda client: client.proxy(7, SOUND), "key .*not int"),  # type: ignore[call-overload]
    "a key that is too long": (lambda client: client.proxy(LONG, SOUND), "65536.*65537"),
    "a long key to be looked up": (lambda client: client.lookup(LONG), "65536.*65537"),
    "keys, one too long": (
        lambda client: client.handle_or_proxy_all(["k", LONG], SOUND),
        "65536.*65537",
    ),
    "no key": (lambda client: client.proxy([], SOUND), "key"),
    "a key in bytes": (lambda client: client.proxy(b"k", SOUND), "key .*not bytes"),  # type: ignore[arg-type]
    "a request": (lambda client: client.proxy("k", "/x"), "request .*not str"),  # type: ignore[call-overload]
    "a request of invoke": (lambda client: client.invoke("/x"), "request .*not str"),  # type: ignore[arg-type]
    "a request of relay": (lambda client: client.relay("a", "/x"), "request .*not str"),  # type: ignore[arg-type]
    "an owner": (lambda client: client.relay(7, SOUND), "owner .*not int"),  # type: ignore[arg-type]
    "a deadline": (lambda client: client.proxy("k", SOUND, deadline_s="1"), "seconds"),  # type: ignore[call-overload]
    "a service": (lambda client: client.proxy("k", SOUND, service=7), "service"),  # type: ignore[call-overload]
    "a service too long": (
        lambda client: client.proxy("k", SOUND, service="x" * 300),
        "name of 300",
    ),
    "an endpoint": (lambda client: client.admin(7), "endpoint"),  # type: ignore[arg-type]
    "a body": (lambda client: client.admin("/admin/lookup", object()), "object"),
}
MADE: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    "a request": (lambda: Request("/x", "text"), "body .*not str"),  # type: ignore[arg-type]
    "an address to listen at": (lambda: Config(listen="127.0.0.1:0"), "listen .*Address"),  # type: ignore[arg-type]
    "an address to advertise": (lambda: Config(advertise=7), "advertise .*7"),  # type: ignore[arg-type]
    "an address of HTTP": (lambda: Config(http="127.0.0.1:0"), "http .*Address"),  # type: ignore[arg-type]
    "hosts": (lambda: Config(hosts=("127.0.0.1:3000",)), "hosts .*Address"),  # type: ignore[arg-type]
    "one host": (lambda: Config(hosts="127.0.0.1:3000"), "hosts .*Address"),  # type: ignore[arg-type]
    "labels": (lambda: Config(labels={"a": "b"}), "labels"),  # type: ignore[arg-type]
    "a label": (lambda: Config(labels=(("a", 7),)), "labels"),  # type: ignore[arg-type]
    "gossip": (lambda: Config(gossip="lan"), "gossip .*GossipConfig"),  # type: ignore[arg-type]
    "limits": (lambda: Config(wire=None), "wire .*WireLimits"),  # type: ignore[arg-type]
    "a client's peer": (lambda: Client(7), "peer"),  # type: ignore[arg-type]
    "a client's timeout": (lambda: Client("127.0.0.1:1", timeout_s="1"), "timeout_s"),  # type: ignore[arg-type]
    "a client's timeout below 0": (lambda: Client("127.0.0.1:1", timeout_s=-1), "timeout_s"),
    "a keyspace's client": (lambda: KeyspaceClient("127.0.0.1:1", "k"), "client"),  # type: ignore[arg-type]
    "a keyspace's name": (lambda: KeyspaceClient(Client("127.0.0.1:1"), 7), "name"),  # type: ignore[arg-type]
    "a key of a ring": (lambda: HashRing(["a"]).lookup(7), "key .*not int"),  # type: ignore[arg-type]
    "keys of a ring": (lambda: HashRing(["a"]).lookup_many([7]), "key .*not int"),  # type: ignore[list-item]
    "a key to place": (lambda: partition_of(b"k", 4), "key .*not bytes"),  # type: ignore[arg-type]
}


async def _awaited(called: Any) -> None:  # noqa: ANN401 - whatever a method returns
    if hasattr(called, "__aiter__"):
        async for _ in called:
            pass
    elif hasattr(called, "__await__"):
        await called


@pytest.mark.parametrize("what", MADE)
def test_an_object_made_with_a_wrong_argument_names_the_argument(what: str) -> None:
    make, names = MADE[what]
    with pytest.raises(ConfigError, match=names):
        make()


async def test_a_node() -> None:
    async with open_ringpop(Config()) as node:
        node.handler("/sound")(lambda call: call.body)
        for what, (call, names) in OF_NODE.items():
            await _refused(what, partial(call, node), names)
        assert (await node.proxy("k", Request("/sound", b"still here"))).body == b"still here"
        assert node.application.counts.in_flight == 0


async def test_a_keyspace() -> None:
    async with open_ringpop(Config()) as node:
        keyspace = await node.open_keyspace("k", partitions=4, mode="memory")
        for what, (call, names) in OF_KEYSPACE.items():
            await _refused(what, partial(call, keyspace), names)
        assert [row async for row in keyspace.scan()] == []


async def test_a_keyspace_of_one_process() -> None:
    async with open_local_keyspaces() as node:
        keyspace = await node.open_keyspace("k", partitions=4, mode="memory")
        for what, (call, names) in OF_KEYSPACE.items():
            await _refused(what, partial(call, keyspace), names)


async def test_clients() -> None:
    async with open_ringpop(Config()) as node:
        await node.open_keyspace("k", partitions=4, mode="memory")
        await trio.to_thread.run_sync(_clients, node.address)
        assert [row async for row in (await node.open_keyspace("k")).scan()] == []


def _clients(peer: Address) -> None:
    with Client(peer) as client, KeyspaceClient(client, "k") as keyspace:
        for what, (call, names) in OF_CLIENT.items():
            _refused_at_once(what, partial(call, client), names)
        for what, (call, names) in OF_KEYSPACE.items():
            _refused_at_once(what, partial(call, keyspace), names)
        assert client.lookup("k") == str(peer)


async def _refused(what: str, call: Callable[[], Any], names: str) -> None:
    try:
        await _awaited(call())
    except RingpopError as error:
        _names(what, error, names)
    except BaseException as error:
        raise AssertionError(f"{what}: {error!r}") from error
    else:
        raise AssertionError(f"{what}: was taken")


def _refused_at_once(what: str, call: Callable[[], Any], names: str) -> None:
    try:
        found = call()
        if hasattr(found, "__next__"):
            list(found)
    except RingpopError as error:
        _names(what, error, names)
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error
    else:
        raise AssertionError(f"{what}: was taken")


def _names(what: str, error: RingpopError, names: str) -> None:
    assert re.search(names, str(error)), f"{what}: {error}"
    assert not error.passes, what
