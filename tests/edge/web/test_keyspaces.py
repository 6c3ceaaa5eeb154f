"""Keyspaces are created, listed and dropped over HTTP, and a path says what it offers."""

from __future__ import annotations

import httpx
import pytest

from ringpop_py.base.config.settings import StateConfig
from ringpop_py.edge.web.server import App
from ringpop_py.flow.shuffle.server.register import KEYSPACE
from ringpop_py.state.placement.definition import Definition
from tests.edge.web.nodes import KEYS, a_node
from tests.logged import events_in
from tests.state.keyspaces.clusters import a_cluster

NEW = "/keyspaces/new"
SETTINGS = {"partitions": 8, "max_keys_per_partition": 5}


async def test_a_keyspace_is_created_once_and_creating_it_again_is_no_error() -> None:
    async with a_node(members=2) as served:
        first = await served.http.put(NEW, json=SETTINGS)
        again = await served.http.put(NEW, json=SETTINGS)

        assert (first.status_code, again.status_code) == (201, 200)
        assert (first.json()["created"], again.json()["created"]) == (True, False)
        assert (first.json()["name"], first.json()["partitions"]) == ("new", 8)
        assert (await served.http.put(f"{NEW}/keys/x", json=1)).status_code == 204
        assert "new" in (await served.http.get("/keyspaces")).json()


async def test_a_keyspace_with_hash_tags_is_created_over_http() -> None:
    async with a_node() as served:
        await served.http.put(NEW, json=SETTINGS | {"hash_tags": True})
        refused = await served.http.put(NEW, json=SETTINGS)
        keyspace = await served.node.open_keyspace("new")

        assert keyspace.partition_of("{a}b") == keyspace.partition_of("a")
        assert "hash_tags True instead of False" in refused.json()["message"]


async def test_without_keys_nobody_reaches_the_records_of_shuffles_by_their_name() -> None:
    async with a_node() as served:
        own = Definition(name=KEYSPACE, partitions=1)
        keyspace = await served.node.keyspaces.open(own, is_own=True)
        records = f"/keyspaces/{KEYSPACE}"

        written = await served.http.put(f"{records}/keys/x", json=1)  # `GET /shuffles` read it
        read = await served.http.get(f"{records}/keys/x")
        dropped = await served.http.delete(records, params={"confirm": KEYSPACE})

        for answer in (written, read, dropped):
            assert (answer.status_code, answer.json()["error"]) == (403, "KeyspaceForbidden")
        assert (
            "the cluster's own, for the role shuffles or admin or member"
            in written.json()["message"]
        )
        assert await keyspace.get("x") is None
        assert KEYSPACE in (await served.http.get("/keyspaces")).json()  # how it is may be seen


async def test_a_cluster_has_so_many_keyspaces_and_partitions_and_no_more() -> None:
    state = StateConfig(keyspaces_max=2, partitions_max=20)
    async with a_cluster() as cluster:
        node = await cluster.start("a", state=state)
        await node.keyspaces.open(Definition(name=KEYSPACE, partitions=16), is_own=True)
        transport = httpx.ASGITransport(App(node))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            first = await http.put(NEW, json=SETTINGS)
            large = await http.put("/keyspaces/large", json={"partitions": 16})
            in_memory = await http.put("/keyspaces/m", json={"partitions": 13, "mode": "memory"})
            second = await http.put("/keyspaces/second", json={"partitions": 12})
            third = await http.put("/keyspaces/third", json={"partitions": 1})
            again = await http.put(NEW, json=SETTINGS)
            await http.delete("/keyspaces/second", params={"confirm": "second"})
            after_a_drop = await http.put("/keyspaces/third", json={"partitions": 1})

    assert [answer.status_code for answer in (first, second, again)] == [201, 201, 200]
    assert after_a_drop.status_code == 201
    for answer in (large, in_memory, third):
        assert (answer.status_code, answer.json()["error"]) == (507, "TooManyKeyspaces")
    assert "it would have 24, and a node permits 20" in large.json()["message"]
    assert "--partitions-max N (state.partitions_max)" in large.json()["message"]
    assert "--keyspaces-max N (state.keyspaces_max)" in third.json()["message"]


async def test_without_settings_a_keyspace_has_the_defaults() -> None:
    async with a_node() as served:
        response = await served.http.put("/keyspaces/caf%C3%A9")

        assert response.status_code == 201
        described = (await served.http.get("/keyspaces/caf%C3%A9")).json()
        assert described["definition"]["name"] == "café"
        assert described["definition"]["partitions"] == 256


@pytest.mark.parametrize("settings", [{"partitions": 9}, {}, {"partitions": 8, "mode": "memory"}])
async def test_a_keyspace_with_other_settings_is_left_as_it_is(settings: dict[str, object]) -> None:
    async with a_node() as served:
        await served.http.put(NEW, json=SETTINGS)

        response = await served.http.put(NEW, json=settings)

        assert (response.status_code, response.json()["error"]) == (409, "KeyspaceConflict")
        assert (await served.http.get(NEW)).json()["partitions"] == 8


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"partitons": 8}, "no field 'partitons'; did you mean 'partitions'?"),
        ({"name": "other"}, "no field 'name'"),
        ({"partitions": "8"}, "partitions is a whole number from 1"),
        ({"mode": "ram"}, "mode is 'durable' or 'memory'"),
        ({"strategy": "nonsense"}, "nonsense"),
        ([], "the body is not a map"),
    ],
)
async def test_settings_that_make_no_sense_create_nothing(settings: object, says: str) -> None:
    async with a_node() as served:
        response = await served.http.put(NEW, json=settings)

        assert (response.status_code, response.json()["error"]) == (400, "BadRequest")
        assert says in response.json()["message"]
        assert (await served.http.get(NEW)).status_code == 404


async def test_a_node_without_a_store_has_a_member_with_one_create_the_keyspace() -> None:
    async with a_cluster() as cluster:
        await cluster.start("has")
        lacks = await cluster.start("lacks", has_store=False)
        transport = httpx.ASGITransport(App(lacks))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            created = await http.put(NEW, json=SETTINGS)
            refused = await http.put(NEW, json={"partitions": 9})

        assert (created.status_code, created.json()["source"]) == (201, "has")
        assert (refused.status_code, refused.json()["error"]) == (409, "KeyspaceConflict")


async def test_a_keyspace_is_dropped_when_its_name_is_said_twice() -> None:
    async with a_node(members=2) as served:
        await served.put("x", 1)

        answers = [
            await served.http.delete("/keyspaces/k"),
            await served.http.delete("/keyspaces/k", params={"confirm": "true"}),
        ]
        assert [answer.status_code for answer in answers] == [400, 400]
        assert answers[0].json()["message"].endswith("confirm with ?confirm=k")
        assert await served.value("x") == 1

        dropped = await served.http.delete("/keyspaces/k", params={"confirm": "k"})
        again = await served.http.delete("/keyspaces/k", params={"confirm": "k"})

        assert (dropped.status_code, dropped.json()["name"]) == (200, "k")
        assert dropped.json()["kept_under"]
        assert (again.status_code, again.json()["error"]) == (404, "KeyspaceUnknown")
        assert (await served.http.get(f"{KEYS}/x")).status_code == 404


async def test_the_address_of_whoever_creates_or_drops_a_keyspace_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "ringpop")
    async with a_node() as served:
        await served.http.put(NEW, json=SETTINGS)
        await served.http.get(NEW)
        await served.http.delete(NEW, params={"confirm": "new"})

    created, dropped = [event.fields for event in events_in(caplog, "change-asked")]
    assert created["endpoint"] == "/admin/keyspaces/create"
    assert created["asked"] == repr({**SETTINGS, "name": "new"})
    assert (dropped["endpoint"], dropped["asked"]) == (
        "/admin/keyspaces/drop",
        "{'name': 'new'}",
    )
    assert created["caller"] == dropped["caller"] == "127.0.0.1:123"  # as httpx has it


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (f"{KEYS}/x", "DELETE, GET, HEAD, PUT"),
        ("/keyspaces/k", "DELETE, GET, HEAD, PUT"),
        (f"{KEYS}/x/add", "POST"),
        (KEYS, "GET, HEAD"),
        ("/keyspaces/k/get-many", "POST"),
        ("/alive", "GET, HEAD"),
    ],
)
async def test_a_method_that_a_path_does_not_have_is_told_all_that_it_has(
    path: str, methods: str
) -> None:
    async with a_node() as served:
        response = await served.http.patch(path)

        assert (response.status_code, response.json()["error"]) == (405, "MethodNotAllowed")
        assert response.headers["allow"] == methods
        assert f"this path allows {methods}" in response.json()["message"]
