"""Which role may use which keyspace, and that each door to keyspaces asks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from ringpop_py import Config, ConfigError, open_ringpop
from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import BadRequest, KeyspaceForbidden, PeerBusy
from ringpop_py.base.metering import Operations
from ringpop_py.base.values import requests as messages
from ringpop_py.base.values.declared import encode
from ringpop_py.base.values.operations import Change, Write
from ringpop_py.base.values.packed import a_map, decode_value, encode_value
from ringpop_py.base.values.requests import (
    ApplyRequest,
    ReadRequest,
    ScanRequest,
    decode_results,
)
from ringpop_py.edge.admin.keyspaces import CREATE
from ringpop_py.flow.shuffle.server.register import KEYSPACE
from ringpop_py.net.security.identity import Identity, Role
from ringpop_py.net.security.keys import new_key, write_keys
from ringpop_py.net.security.permits import (
    NOBODY,
    OPERATORS,
    USERS,
    ClientLimits,
    check_name,
    check_use,
    limits_in,
    may_use,
    roles_for,
    signed,
)
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.actors.mail import Mail
from ringpop_py.state.jobs import messages as jobs
from ringpop_py.state.keyspaces.client_server import ClientServer
from ringpop_py.state.keyspaces.endpoints import MEMBERS_ONLY, KeyspaceServer
from ringpop_py.state.messages import (
    CLIENT_WATCH,
    DESCRIBE,
    OF_RECORDS,
    OWNERS,
    ROUTED,
    TELL,
    WATCH,
    OwnersRequest,
    decode_answer,
)
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.rows.pages import COLUMNS, ColumnsRequest
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.watch.messages import WatchPart, WatchRequest
from ringpop_py.testing import MemoryNetwork
from tests.net.security.test_nodes import THEM, US, caller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ringpop_py.node.ringpop import Ringpop

SECOND: Final = Address.parse("10.0.0.3:3000")
WRITE: Final = Write("a job", 1, (Change("x", "put", 1),))
READS: Final = {DESCRIBE, OWNERS, messages.READ, messages.SCAN, COLUMNS, WATCH, CLIENT_WATCH} | {
    ROUTED[each] for each in (messages.READ, messages.SCAN, COLUMNS)
}
"""The doors that only read. A new door is for readers only if it stands here."""
DECISION: Final = jobs.Decision((), "t", 1, b"")


def bodies(name: str) -> dict[str, tuple[bytes, bytes]]:
    """The head and body of a request to each door to keyspace *name*."""
    requests: dict[str, Any] = {
        messages.READ: ReadRequest(name, 1, ((0, ("x",)),)),
        messages.SCAN: ScanRequest(name, 1, (0,)),
        COLUMNS: ColumnsRequest(name, 1, ((0, ("x",)),)),
        WATCH: WatchRequest(name, 1, "", exact=False, wait_ms=0, parts=(WatchPart(0),)),
        messages.ACTOR: Mail(name, 1, 0, "counter", "x", "a job", 1, b""),
        jobs.FINISH: jobs.FinishRequest(name, 1, "job", "1", b""),
        jobs.DECIDE: jobs.DecideRequest(name, 1, "job", DECISION),
        jobs.STATUS: jobs.JobId(name, 1, "job"),
        jobs.SCHEMAS: jobs.SchemasRequest(name, 1),
        jobs.SETTLE: jobs.JobId(name, 1, "job"),
    }
    found = {endpoint: (b"", encode(request)) for endpoint, request in requests.items()}
    found[messages.APPLY] = b"", ApplyRequest(name, 1, ((0, (WRITE,)),)).encode()
    found[jobs.STAGE] = encode(jobs.StageHead(name, 1, "job", "1", 0, 1)), b""
    found[DESCRIBE] = b"", encode_value("msgpack", name)
    found[OWNERS] = b"", encode(OwnersRequest(name))
    found[TELL] = found[messages.ACTOR]
    found[CLIENT_WATCH] = found[WATCH]
    return found | {ROUTED[each]: found[each] for each in ROUTED}


def doors() -> set[str]:
    """The endpoints about keyspaces that are not for members alone."""
    none: Any = None
    served = KeyspaceServer(none, none, Operations()).endpoints().values()
    between = {endpoint for handlers in served for endpoint in handlers} - MEMBERS_ONLY
    return between | ClientServer(none, none, none).endpoints().keys()


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = str(tmp_path / "key")
    write_keys(path, (new_key(),), replace=False)
    return path


@asynccontextmanager
async def a_node(network: MemoryNetwork, key: str | None) -> AsyncIterator[Ringpop]:
    config = Config(listen=US, cluster_key=key)
    async with open_ringpop(config, network=network, store=MemoryStore()) as node:
        own = Definition(name=KEYSPACE, partitions=1)
        await node.keyspaces.open(own, is_own=True)
        await node.open_keyspace("k", partitions=1)
        yield node


@pytest.mark.parametrize(
    ("name", "permitted"),
    [
        ("k", USERS),
        ("k~", USERS),
        ("~shuffles", OPERATORS | {Role.SHUFFLES}),
        ("~", OPERATORS),
        ("~x", OPERATORS),
    ],
)
def test_the_names_of_the_cluster_are_for_admins_and_members(
    name: str, permitted: frozenset[Role]
) -> None:
    assert roles_for(name) == permitted
    for role in Role:
        identity = Identity("c", role, "job")
        assert may_use(name, identity) is (role in permitted)
    assert may_use(name, NOBODY) is (Role.CLIENT in permitted)


def test_a_refusal_names_the_keyspace_the_roles_and_the_caller() -> None:
    with pytest.raises(KeyspaceForbidden) as refused:
        check_use("~shuffles", Identity("c", Role.CLIENT, "job"))
    text = (
        "'~shuffles' is the cluster's own, for the role shuffles or admin or member, "
        "not ringpop://c/client/job"
    )
    assert text in str(refused.value)
    with pytest.raises(KeyspaceForbidden, match="not a caller without an identity"):
        check_use("~shuffles", NOBODY)
    with pytest.raises(ConfigError, match="begin with ~ are those of the cluster's own"):
        check_name("~x")


async def refusals(network: MemoryNetwork, key: str, role: Role, name: str, *has: str) -> set[str]:
    """The doors that refuse *role* the keyspace *name*, perhaps as it *has* only others."""
    refused = set()
    async with caller(network, key, role, str(THEM), keyspaces=has) as channel:
        for endpoint, (head, body) in bodies(name).items():
            call = Call(NODE_SERVICE, endpoint, head, body, ttl_s=5.0, scheme="msgpack")
            try:
                answer = (await channel.call(US, call)).arg3
            except BadRequest as error:
                if "is for the role" in str(error):
                    refused.add(endpoint)
                continue  # its body makes no sense, which nobody looks at before
            routed = endpoint in ROUTED.values()
            results = decode_answer(answer, 1)[0] if routed else decode_results(answer, 1)
            if isinstance(results[0], KeyspaceForbidden):
                refused.add(endpoint)
    return refused


def test_each_door_is_tried() -> None:
    assert bodies("k").keys() == doors()


@pytest.mark.virtual_time
@pytest.mark.parametrize("role", Role)
async def test_each_door_asks_who_may_use_the_keyspace(key: str, role: Role) -> None:
    network = MemoryNetwork()
    async with a_node(network, key) as node:
        others = await refusals(network, key, role, "k")
        refused = await refusals(network, key, role, KEYSPACE)
        written = await (await node.keyspaces.get(KEYSPACE)).get("x")

    # The process for shuffles has its records, and no keyspace of an application.
    # A reader has what reads, and only of keyspaces of applications.
    changes = doors() - READS
    assert others == {Role.SHUFFLES: doors(), Role.READER: changes}.get(role, set())
    programs = {Role.CLIENT: doors(), Role.READER: doors()}
    expected = {**programs, Role.SHUFFLES: doors() - OF_RECORDS}
    assert refused == expected.get(role, set())
    assert written == (None if role in programs else 1)


@pytest.mark.virtual_time
@pytest.mark.parametrize("role", [Role.CLIENT, Role.READER])
async def test_each_door_asks_whether_the_caller_has_the_keyspace(key: str, role: Role) -> None:
    network = MemoryNetwork()
    async with a_node(network, key) as node:
        for name in ("other", "other/2"):
            await node.open_keyspace(name, partitions=1)
        refused = {
            name: await refusals(network, key, role, name, "k", "oth*")
            for name in ("k", "other", "other/2", KEYSPACE)
        }
        none = await refusals(network, key, role, "k", "k2", "other")
        written = await (await node.keyspaces.get("k")).get("x")

    own = doors() - READS if role is Role.READER else set()
    assert refused == {"k": own, "other": own, "other/2": own, KEYSPACE: doors()}
    assert none == doors()
    assert written == (1 if role is Role.CLIENT else None)


async def test_who_has_some_keyspaces_creates_no_other(key: str) -> None:
    network, answers = MemoryNetwork(), {}
    async with (
        a_node(network, key),
        caller(network, key, Role.CLIENT, "job", keyspaces=("orders", "carts/*")) as channel,
    ):
        for name in ("orders", "carts/1", "carts", "others"):
            body = encode_value("msgpack", {"name": name, "partitions": 1})
            call = Call(NODE_SERVICE, CREATE, b"", body, ttl_s=5.0, scheme="msgpack")
            answer = await channel.call(US, call)
            said = a_map(decode_value("msgpack", answer.arg3), "answer")
            answers[name] = said.get("error", "created") if answer.ok is False else "created"
            why = said.get("message")
        packed = encode_value("msgpack", {"name": "orders"})
        path = "/admin/keyspaces/show"
        show = Call(NODE_SERVICE, path, b"", packed, ttl_s=5.0, scheme="msgpack")
        shown = a_map(decode_value("msgpack", (await channel.call(US, show)).arg3), "answer")

    refused = dict.fromkeys(("carts", "others"), "KeyspaceForbidden")
    assert answers == dict.fromkeys(("orders", "carts/1"), "created") | refused
    assert why == "keyspace 'others' is not for job, which may use: orders, carts/*"
    assert shown["definition"]["creator"] == "ringpop:///client/job"  # whatever it has


def test_only_clients_and_readers_have_limits_and_each_name_its_own() -> None:
    limits = ClientLimits(1, None)
    client = Identity("c", Role.CLIENT, "job", ("k",))
    for _ in range(2):  # a burst
        assert limits.why_over(client, 0.0) == ""
    for who in (client, Identity("", Role.CLIENT, "job")):  # the same name, whatever it may use
        assert limits.why_over(who, 0.0) == (
            f"{who} has had its 1 requests a second (--client-requests-max): try again in 1 s"
        )
    others = [Identity("c", role, "job") for role in Role if role is not Role.CLIENT]
    assert {limits.why_over(who, 0.0) for who in (None, NOBODY, *others)} == {""}
    for who in others:
        refused = [limits.why_over(who, 0.0) for _ in range(3)]
        assert any(refused) is (who.role is Role.READER)
    assert limits.why_over(client, 1.0) == ""


def test_bytes_of_requests_and_of_answers_count() -> None:
    limits, job = ClientLimits(None, 100), Identity("c", Role.CLIENT, "job")
    assert limits.why_over(job, 0.0, bytes(50), bytes(50)) == ""
    limits.note_bytes(job, 150, 0.0)
    limits.note_bytes(None, 1_000, 0.0)
    text = "100 bytes a second (--client-bytes-max): try again in 0.51 s"
    assert text in limits.why_over(job, 0.0)
    assert limits.why_over(job, 0.51) == ""
    assert limits_in(WireLimits()) is None  # and nothing is asked


@pytest.mark.virtual_time
async def test_a_client_that_has_had_what_it_may_is_told_that_the_node_is_busy(key: str) -> None:
    network, refused = MemoryNetwork(), []
    config = Config(listen=US, cluster_key=key, wire=WireLimits(client_requests_max=5))
    ask = Call(NODE_SERVICE, "/health", b"", encode_value("msgpack", None), ttl_s=5.0)
    async with open_ringpop(config, network=network) as node:
        for role, name in ((Role.CLIENT, "a"), (Role.CLIENT, "b"), (Role.ADMIN, "c")):
            async with caller(network, key, role, name) as channel:
                for _ in range(11):
                    try:
                        await channel.call(US, ask)
                    except PeerBusy as error:
                        refused.append(str(error))
        async with caller(network, key, Role.CLIENT, "a") as channel:  # a new connection: no more
            await trio.sleep(0.3)
            assert (await channel.call(US, ask)).ok
        count = node.channel.handlers.refused["limit"]

    assert count == len(refused) == 2
    assert all("5 requests a second" in why and "try again in" in why for why in refused)


async def test_an_application_opens_no_keyspace_of_the_cluster() -> None:
    async with a_node(MemoryNetwork(), None) as node:
        for settings in ({}, {"partitions": 1}):
            with pytest.raises(ConfigError, match="the cluster's own keyspaces, not '~shuffles'"):
                await node.open_keyspace(KEYSPACE, **settings)  # type: ignore[arg-type]


async def created_by(network: MemoryNetwork, key: str, role: Role, **body: str) -> str:
    """The creator of a keyspace that *role* has asked the second node for."""
    packed = encode_value("msgpack", {"partitions": 1, **body})
    async with caller(network, key, role, "job") as channel:
        for path in (CREATE, "/admin/keyspaces/show"):
            call = Call(NODE_SERVICE, path, b"", packed, ttl_s=5.0, scheme="msgpack")
            said = a_map(decode_value("msgpack", (await channel.call(SECOND, call)).arg3), "answer")
            packed = encode_value("msgpack", {"name": body["name"]})
    return str(said["definition"].get("creator", ""))


async def test_a_keyspace_has_the_client_as_creator_that_its_certificate_names(key: str) -> None:
    """Also through a node without a store, which asks another one; whatever the request says."""
    network = MemoryNetwork()
    config = Config(listen=SECOND, hosts=(US,), cluster_key=key)
    async with a_node(network, key), open_ringpop(config, network=network):
        honest = await created_by(network, key, Role.CLIENT, name="honest")
        forged = await created_by(network, key, Role.CLIENT, name="forged", creator="other")
        admins = await created_by(network, key, Role.ADMIN, name="admins")

    assert honest == forged == str(Identity("", Role.CLIENT, "job"))
    assert admins == ""


def test_a_creator_is_whom_keys_prove_and_nobody_else() -> None:
    client, member = (Identity("c", role, "x") for role in (Role.CLIENT, Role.MEMBER))
    for asked in ({"name": "k"}, {"name": "k", "creator": "forged"}):
        assert signed(asked, client) == {"name": "k", "creator": str(client)}
        assert signed(asked, None) == {"name": "k"}
        assert signed(asked, member) == asked
