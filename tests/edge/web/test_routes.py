"""Every route, on a cluster in one process; in virtual time, where a test waits."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import httpx
import msgpack
import pytest
import trio
import trio.testing

from ringpop_py.base import errors
from ringpop_py.base.errors import KeyspaceError
from ringpop_py.dataflow import start_dataflow
from ringpop_py.edge.web import parameters, server
from ringpop_py.edge.web.server import App
from ringpop_py.streams import Files, start_stream
from tests.edge.web.nodes import KEYS, a_node
from tests.state.keyspaces.clusters import a_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

ERRORS = sorted(
    (
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, KeyspaceError)
    ),
    key=lambda kind: kind.__name__,
)


# One key.


async def test_a_value_is_put_and_got() -> None:
    async with a_node(members=2) as served:
        await served.put("cart", {"items": ["shoe", None, 1.5]})

        response = await served.http.get(f"{KEYS}/cart", params={"stale": "true"})

        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {"items": ["shoe", None, 1.5]}


async def test_a_key_that_is_not_there_is_404_and_one_with_null_is_not() -> None:
    async with a_node() as served:
        await served.put("null", None)

        there = await served.http.get(f"{KEYS}/null")
        missing = await served.http.get(f"{KEYS}/other")

        assert (there.status_code, there.json()) == (200, None)
        assert (missing.status_code, missing.json()["error"]) == (404, "KeyUnknown")


async def test_a_deleted_key_is_gone_and_deleting_it_again_is_no_error() -> None:
    async with a_node() as served:
        await served.put("x", 1)

        answers = [(await served.http.delete(f"{KEYS}/x")).status_code for _ in range(2)]

        assert answers == [204, 204]
        assert (await served.http.get(f"{KEYS}/x")).status_code == 404


@pytest.mark.parametrize("key", ["a/b", "käse", "100%", "a b?c#d", "..", "a/count", "\0", "🐦"])
async def test_any_text_can_be_a_key(key: str) -> None:
    encoded = "".join(f"%{byte:02X}" for byte in key.encode())
    async with a_node() as served:
        await served.put(encoded, 1)

        counted = await served.http.post(f"{KEYS}/{encoded}/count")

        assert counted.json() == 2
        assert await (await served.node.open_keyspace("k")).get(key) == 2


async def test_a_node_tells_which_streams_and_dataflows_it_runs(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"user": "u"}\n')
    source = Files(f"{tmp_path}/*.jsonl", key="user")
    async with a_node() as served:
        assert (await served.http.get("/streams")).json() == {"streams": [], "dataflows": []}
        keyspace = await served.node.open_keyspace("durable", partitions=1)
        start_stream(keyspace, source, "count", name="clicks")
        start_dataflow(served.node, source, lambda _state, rows, _context: len(rows), name="sums")
        with trio.fail_after(1e6):
            while True:
                said = (await served.http.get("/streams")).json()
                if said["streams"] and said["dataflows"][0]["rows"] == 1:
                    break
                await trio.sleep(0.5)
    assert (said["streams"][0]["stream"], said["streams"][0]["keyspace"]) == ("clicks", "durable")
    assert (said["dataflows"][0]["dataflow"], said["dataflows"][0]["trouble"]) == ("sums", "")


async def test_an_operation_answers_with_the_value_afterwards() -> None:
    async with a_node() as served:
        await served.http.post(f"{KEYS}/n/add", json=5)

        added = await served.http.post(f"{KEYS}/n/add", json=37)
        counted = await served.http.post(f"{KEYS}/n/count")

        assert (added.status_code, added.json()) == (200, 42)
        assert counted.json() == 43


async def test_a_write_with_an_operation_id_takes_effect_once_and_says_so() -> None:
    async with a_node() as served:
        header = {"Operation-Id": "order-17"}

        first = await served.http.post(f"{KEYS}/n/add", json=5, headers=header)
        again = await served.http.post(f"{KEYS}/n/add", json=5, headers=header)

        assert (first.json(), again.json()) == (5, 5)
        assert "operation-repeated" not in first.headers
        assert again.headers["operation-repeated"] == "true"


async def test_an_operation_id_used_again_for_another_write_is_a_conflict() -> None:
    async with a_node(partitions=1) as served:
        header = {"Operation-Id": "order-17"}
        await served.http.put(f"{KEYS}/a", json=1, headers=header)

        other = await served.http.put(f"{KEYS}/b", json=1, headers=header)
        many = await served.http.post(
            "/keyspaces/k/update-many",
            json={"changes": [{"key": "b", "operation": "put", "argument": 1}]},
            headers=header,
        )

        assert (other.status_code, other.json()["error"]) == (409, "OperationIdReused")
        assert "order-17" in other.json()["message"]
        (outcome,) = many.json()["outcomes"]
        assert (outcome["status"], outcome["error"]) == (409, "OperationIdReused")
        assert (await served.http.get(f"{KEYS}/b")).status_code == 404


# Bodies.


async def test_values_travel_in_msgpack_as_well() -> None:
    value = {"bytes": b"\x00\xff", "n": 1}
    packed = {"Content-Type": "application/msgpack"}
    async with a_node() as served:
        await served.http.put(f"{KEYS}/x", content=msgpack.packb(value), headers=packed)

        response = await served.http.get(f"{KEYS}/x", headers={"Accept": "application/msgpack"})

        assert response.headers["content-type"] == "application/msgpack"
        assert msgpack.unpackb(response.content) == value


async def test_a_value_of_bytes_travels_as_it_is() -> None:
    raw = {"Content-Type": "application/octet-stream"}
    async with a_node() as served:
        await served.http.put(f"{KEYS}/x", content=b"\x00\xff", headers=raw)

        response = await served.http.get(f"{KEYS}/x")

        assert response.headers["content-type"] == "application/octet-stream"
        assert response.content == b"\x00\xff"


@pytest.mark.parametrize("value", [{"a": [b"x"]}, [float("nan")], float("inf"), b"x"])
async def test_a_value_that_json_cannot_say_is_refused_with_the_way_to_get_it(value: Any) -> None:  # noqa: ANN401
    async with a_node() as served:
        await (await served.node.open_keyspace("k")).put("x", value)

        response = await served.http.get(f"{KEYS}/x", headers={"Accept": "application/json"})

        assert response.status_code == 406
        assert "Accept: application/msgpack" in response.json()["message"]


UNSAYABLE: dict[str, Any] = {
    "bytes": b"x",
    "nested": {"a": [b"x"]},
    "nan": float("nan"),
    "inf": float("-inf"),
}
"""Values that JSON has no form for, by key."""


async def test_a_page_has_an_error_for_each_row_that_json_cannot_say_and_all_the_others() -> None:
    async with a_node(members=2) as served:
        keyspace = await served.node.open_keyspace("k")
        await keyspace.update_many([(key, "put", value) for key, value in UNSAYABLE.items()])
        await keyspace.put("fine", [1.5])

        response = await served.http.get(KEYS)
        in_msgpack = await served.http.get(KEYS, headers={"Accept": "application/msgpack"})

        assert response.status_code == 200
        fine, *others = sorted(response.json()["rows"], key=lambda row: "value" not in row)
        assert fine == {"key": "fine", "value": [1.5]}
        assert [row["key"] for row in others] == sorted(UNSAYABLE)
        for row in others:
            assert (row["error"], row["status"]) == ("NotAcceptable", 406)
            assert "Accept: application/msgpack" in row["message"]
        values = {row["key"]: row["value"] for row in msgpack.unpackb(in_msgpack.content)["rows"]}
        assert repr(values) == repr(dict(sorted({**UNSAYABLE, "fine": [1.5]}.items())))


async def test_many_keys_have_an_error_for_each_that_json_cannot_say() -> None:
    async with a_node() as served:
        keyspace = await served.node.open_keyspace("k")
        await keyspace.put("bytes", b"x")
        await keyspace.put("fine", 1)

        response = await served.http.post(
            "/keyspaces/k/get-many", json={"keys": ["bytes", "fine", "none"]}
        )

        assert response.json()["values"] == {"fine": 1}
        assert response.json()["errors"].keys() == {"bytes"}
        assert response.json()["errors"]["bytes"]["error"] == "NotAcceptable"


async def test_a_value_that_cannot_be_read_is_an_error_of_its_row_alone() -> None:
    no_value = b"\x81\x01\x02"  # a map whose key is a number
    async with a_node(mode="memory", partitions=1) as served:
        keyspace = await served.node.open_keyspace("k")
        await keyspace.put("fine", 1)
        await keyspace.put("strange", 1)
        state = served.node.keyspaces.here("k").host.driver.partitions[0].state
        state.apply([{"strange": no_value}, [], {"job/x": [0]}, {}])

        page = (await served.http.get(KEYS)).json()
        many = await served.http.post("/keyspaces/k/get-many", json={"keys": ["fine", "strange"]})
        alone = await served.http.get(f"{KEYS}/strange")

        assert page["rows"][0] == {"key": "fine", "value": 1}
        assert (page["rows"][1]["key"], page["rows"][1]["error"]) == ("strange", "StateDamaged")
        assert many.json()["values"] == {"fine": 1}
        assert many.json()["errors"]["strange"]["error"] == "StateDamaged"
        assert (alone.status_code, alone.json()["error"]) == (500, "StateDamaged")


async def test_a_write_that_took_effect_says_so_whether_or_not_json_can_say_the_value() -> None:
    changes = [{"key": "list", "operation": "append", "argument": 1}]
    async with a_node() as served:
        keyspace = await served.node.open_keyspace("k")
        await keyspace.put("list", [b"x"])

        only_json = {"Accept": "application/json"}
        one = await served.http.post(f"{KEYS}/list/append", json=1, headers=only_json)
        many = await served.http.post("/keyspaces/k/update-many", json={"changes": changes})

        assert (one.status_code, one.content) == (204, b"")
        (outcome,) = many.json()["outcomes"]
        assert outcome["repeated"] is False
        assert outcome["value_error"]["error"] == "NotAcceptable"
        assert "error" not in outcome
        assert await keyspace.get("list") == [b"x", 1, 1]


# Many keys.


async def test_a_scan_goes_on_where_the_page_before_ended() -> None:
    async with a_node(members=2) as served:
        keyspace = await served.node.open_keyspace("k")
        await keyspace.update_many([(f"a{n:03}", "put", n) for n in range(25)])
        await keyspace.put("b", 0)
        found, start = [], "a001"
        while start is not None:
            params = {"prefix": "a", "start": start, "end": "a024", "limit": "10"}
            page = (await served.http.get(KEYS, params=params)).json()
            found += page["rows"]
            start = page["next"]

        assert found == [{"key": f"a{n:03}", "value": n} for n in range(1, 24)]


async def test_many_changes_are_made_at_once_and_each_has_its_outcome() -> None:
    changes = [
        {"key": "text", "operation": "add", "argument": 1},
        {"key": "n", "operation": "add", "argument": 2},
        {"key": "c", "operation": "count"},
    ]
    async with a_node(members=2) as served:
        await served.put("text", "no number")

        response = await served.http.post("/keyspaces/k/update-many", json={"changes": changes})

        assert response.status_code == 200
        refused, *done = response.json()["outcomes"]
        assert (refused["error"], refused["status"]) == ("BadOperation", 400)
        assert done == [{"value": 2, "repeated": False}, {"value": 1, "repeated": False}]


async def test_many_changes_can_have_offsets_and_an_operation_id() -> None:
    body = {"changes": [{"key": "n", "operation": "count"}], "offsets": {"topic": 7}}
    async with a_node(partitions=1) as served:
        for _ in range(2):
            response = await served.http.post(
                "/keyspaces/k/update-many", json=body, headers={"Operation-Id": "batch-1"}
            )

        assert response.json() == {"outcomes": [{"value": 1, "repeated": True}]}
        gained = await anext((await served.node.open_keyspace("k")).rescale_events())
        assert gained.offsets == {"topic": 7}  # type: ignore[union-attr]


# What there is.


async def test_keyspaces_are_listed_and_described() -> None:
    async with a_node() as served:
        await served.put("x", 1)  # so that its partitions have owners
        with trio.fail_after(10):
            while (listed := (await served.http.get("/keyspaces")).json())["k"]["online"] < 4:
                await trio.sleep(0.1)

        described = (await served.http.get("/keyspaces/k")).json()

        assert listed == {
            "k": {
                "mode": "durable",
                "generation": 1,
                "partitions": 4,
                "online": 4,
                "here": 4,
                "epoch": 4,
            }
        }
        assert described["owners"] == {"n0": 4}
        assert described["statuses"]["online"] == 4
        assert described["definition"]["strategy"] == "balanced"


async def test_who_serves_what_is_told_and_waited_for_until_it_has_changed() -> None:
    async with a_node() as served:
        await served.put("x", 1)
        owners = f"{KEYS.removesuffix('/keys')}/owners"
        now = (await served.http.get(owners)).json()
        before = trio.current_time()
        params = {"after": now["epoch"] - 1}
        changed = (await served.http.get(owners, params=params)).json()
        took_s = trio.current_time() - before
        params = {"after": now["epoch"], "timeout_s": 3}
        same = (await served.http.get(owners, params=params)).json()
        refused = await served.http.get(owners, params={"after": "soon"})

        assert now == changed == same
        assert now == {"epoch": 4, "owners": {"n0": [0, 1, 2, 3]}, "unserved": []}
        assert took_s < 1
        assert trio.current_time() - before >= 3
        assert (refused.status_code, "after is" in refused.json()["message"]) == (400, True)


async def test_health_tells_members_partitions_and_epoch() -> None:
    async with a_node(members=2) as served:
        await served.put("x", 1)

        health = (await served.http.get("/health")).json()

        assert health["name"] == "n1"
        assert health["ready"] is True
        assert (health["members"]["active"], health["members"]["total"]) == (2, 2)
        assert health["partitions"]["partitions"] == 4
        assert health["epoch"] >= 1


async def test_a_node_that_leaves_is_alive_but_not_ready() -> None:
    async with a_node() as served:
        before = (await served.http.get("/ready")).status_code

        served.node.leave()
        await trio.testing.wait_all_tasks_blocked()

        left = await served.http.get("/ready")
        assert (before, left.status_code) == (200, 503)
        assert left.headers["retry-after"] == "1"
        assert (await served.http.get("/alive")).status_code == 200


# What goes wrong.


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
async def test_every_error_of_keyspaces_has_its_status_and_its_name(
    kind: type[KeyspaceError],
) -> None:
    async with a_node() as served:

        def fail(_value: object, _argument: object) -> None:
            message = "because"
            raise kind(message)

        served.node.keyspaces.aggregations.register("fail", fail)

        response = await served.http.post(f"{KEYS}/x/fail?timeout_s=1")

        assert response.status_code == kind.http_status
        assert response.json() == {"error": kind.__name__, "message": "because"}


async def test_a_condition_that_does_not_hold_is_412_and_a_full_partition_507() -> None:
    async with a_node(partitions=1, max_keys_per_partition=1) as served:
        await served.put("x", 1)

        answers = [
            await served.http.post(f"{KEYS}/x/put_if_absent", json=2),
            await served.http.put(f"{KEYS}/y", json=2),
            await served.http.get("/keyspaces/other/keys/x"),
            await served.http.post(f"{KEYS}/x/nonsense", json=2),
        ]

        assert [(a.status_code, a.json()["error"]) for a in answers] == [
            (412, "ConditionFailed"),
            (507, "PartitionFull"),
            (404, "KeyspaceUnknown"),
            (400, "BadOperation"),
        ]


async def test_a_node_without_a_store_says_so_and_not_that_the_keyspace_is_unknown() -> None:
    async with a_cluster() as cluster:
        has = await cluster.start("has")
        lacks = await cluster.start("lacks", has_store=False)
        await has.open_keyspace("k", partitions=4)

        transport = httpx.ASGITransport(App(lacks))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            response = await http.get(f"{KEYS}/x")

        assert (response.status_code, response.json()["error"]) == (503, "PartitionUnavailable")
        assert "'lacks' has no store" in response.json()["message"]


async def test_an_unserved_partition_is_503_with_when_to_come_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    async with a_node(min_cluster_size=3) as served:
        response = await served.http.get(f"{KEYS}/x", params={"timeout_s": "0.5"})

        assert (response.status_code, response.json()["error"]) == (503, "NotEnoughMembers")
        assert response.headers["retry-after"] == "1"


MISSPELT = b'{"changes":[{"key":"x","operation":"put","argumnet":1}]}'
TWO_FIELDS = b'{"changes":[],"offset":{}}'
BOTH_LENGTHS = {"Content-Length": "1", "Transfer-Encoding": "chunked"}
JSON = {"Content-Type": "application/json"}
MSGPACK = {"Content-Type": "application/msgpack"}
EVIL = {"Origin": "http://evil.example"}


@pytest.mark.parametrize(
    ("method", "path", "content", "headers", "status", "says"),
    [
        ("PUT", f"{KEYS}/x", b"{", JSON, 400, "not a json value"),
        ("PUT", f"{KEYS}/x", b"NaN", JSON, 400, "not a json value"),
        ("PUT", f"{KEYS}/x", b'"\\ud800"', JSON, 400, "not a json value"),
        ("PUT", f"{KEYS}/x", b"[" * 100_000, JSON, 400, "not a json value"),
        ("PUT", f"{KEYS}/x", b"1" * 400, JSON, 400, "cannot be stored"),
        ("PUT", f"{KEYS}/x", b"", JSON, 400, "the body is empty"),
        ("PUT", f"{KEYS}/x", b"\xc1", MSGPACK, 400, "not a msgpack value"),
        ("PUT", f"{KEYS}/x", b"\x01\x01", MSGPACK, 400, "not a msgpack value"),
        ("PUT", f"{KEYS}/x", b"a=1", {"Content-Type": "text/plain"}, 415, "curl: --json"),
        ("POST", f"{KEYS}/x/count", b"a=1", {"Content-Type": "text/plain"}, 415, "curl"),
        ("PUT", f"{KEYS}/{'x' * 1025}", b"1", JSON, 400, "1 to 1024 bytes"),
        ("PUT", f"{KEYS}/%FF", b"1", JSON, 400, "not UTF-8"),
        ("GET", "/keyspaces/%FF", b"", {}, 400, "not UTF-8"),
        ("PUT", f"{KEYS}/x", b"1", {"Operation-Id": "x" * 300}, 400, "operation-id"),
        ("PUT", f"{KEYS}/x", b"1", {"Operation-Id": ""}, 400, "operation-id"),
        ("PUT", f"{KEYS}/x?stale=1", b"1", JSON, 400, "no 'stale'"),
        ("GET", f"{KEYS}/x?timeout_s=soon", b"", {}, 400, "timeout_s"),
        ("GET", f"{KEYS}/x?timeout_s=nan", b"", {}, 400, "timeout_s"),
        ("GET", f"{KEYS}/x?timeout_s=-1", b"", {}, 400, "timeout_s"),
        ("GET", f"{KEYS}/x?timeout_s=1e9", b"", {}, 400, "timeout_s"),
        ("GET", f"{KEYS}/x?stale=perhaps", b"", {}, 400, "true or false"),
        ("GET", f"{KEYS}/x?stale=1&stale=1", b"", {}, 400, "a parameter twice"),
        ("PUT", "/keyspaces/c?x=1", b"", {}, 400, "'x'; this request takes no parameters"),
        ("GET", "/keyspaces/k?x=1", b"", {}, 400, "'x'; this request takes no parameters"),
        ("GET", "/keyspaces?x=1", b"", {}, 400, "'x'; this request takes no parameters"),
        ("GET", f"{KEYS}/x?{'stale=1&' * 99}", b"", {}, 400, "the query"),
        ("GET", f"{KEYS}?limit=0", b"", {}, 400, "from 1 to 1,000"),
        ("GET", f"{KEYS}?limit=1001", b"", {}, 400, "from 1 to 1,000"),
        ("GET", f"{KEYS}?limit=ten", b"", {}, 400, "from 1 to 1,000"),
        ("GET", f"{KEYS}?prefix=%FF", b"", {}, 400, "the query"),
        ("POST", "/keyspaces/k/get-many", b"[]", JSON, 400, "is not a map"),
        ("POST", "/keyspaces/k/get-many", b"{}", JSON, 400, "'keys'"),
        ("POST", "/keyspaces/k/get-many", b'{"keys":[1]}', JSON, 400, "a key is a text"),
        ("POST", "/keyspaces/k/get-many", b'{"keys":7}', JSON, 400, "not a list"),
        ("POST", "/keyspaces/k/update-many", b'{"changes":[1]}', JSON, 400, "a change"),
        ("POST", "/keyspaces/k/update-many", b'{"changes":[{"key":"x"}]}', JSON, 400, "operation"),
        ("PUT", f"{KEYS}/x", b"[1e999]", JSON, 400, "1e999 is too large"),
        ("PUT", f"{KEYS}/x", b"-1e999", JSON, 400, "-1e999 is too large"),
        ("POST", f"{KEYS}/x/add", b"1e999", JSON, 400, "1e999 is too large"),
        ("POST", "/keyspaces/k/get-many", b'{"kyes":[]}', JSON, 400, "did you mean 'keys'?"),
        ("POST", "/keyspaces/k/get-many", b'{"keys":[],"x":1}', JSON, 400, "no field 'x'; it has"),
        ("POST", "/keyspaces/k/update-many", MISSPELT, JSON, 400, "did you mean 'argument'?"),
        ("POST", "/keyspaces/k/update-many", TWO_FIELDS, JSON, 400, "no field 'offset'; did you"),
        ("POST", "/keyspaces/k/update-many", b'{"changes":[],"offsets":0}', JSON, 400, "not a map"),
        ("GET", f"{KEYS}/x?stael=1", b"", {}, 400, "did you mean 'stale'?"),
        ("GET", "/nowhere", b"", {}, 404, "/nowhere"),
        ("GET", f"{KEYS}/", b"", {}, 404, "Not Found"),
        ("GET", "/ui/nothing", b"", {}, 404, "Not Found"),
        ("PATCH", f"{KEYS}/x", b"", {}, 405, "Method Not Allowed"),
        ("GET", "/health", b"", {"Sec-Fetch-Site": "cross-site"}, 403, "cross-origin"),
        ("PUT", f"{KEYS}/x", b"1", {"Origin": "http://evil.example"}, 403, "cross-origin"),
        ("PUT", f"{KEYS}/x", b"1", {"Origin": "null"}, 403, "cross-origin"),
        ("PUT", f"{KEYS}/x", b"1", {"Origin": "http://localhost:81"}, 403, "cross-origin"),
        (
            "PUT",
            f"{KEYS}/x",
            b"1",
            EVIL | {"Sec-Fetch-Site": "same-site"},
            403,
            "'http://evil.exam",
        ),
        ("PUT", f"{KEYS}/x", b"1", EVIL | {"X-Forwarded-Host": "evil.example"}, 403, "is not"),
        ("PUT", f"{KEYS}/x", b"1", EVIL | {"X-Forwarded-Host": "localhost"}, 403, "--http-host"),
        ("GET", "/health", b"", {"Host": "evil.example:3001"}, 421, "--http-host NAME permits"),
        ("GET", "/health", b"", {"Host": "localhost:3000@evil.example"}, 421, "evil.example"),
        ("GET", "/health", b"", {"Host": "[::1].evil.example"}, 421, "evil.example"),
        ("PUT", f"{KEYS}/x", b"1", {"Origin": "http://[bad"}, 403, "cross-origin"),
        ("PUT", f"{KEYS}/x", b"1", {"Origin": "http://localhost@evil"}, 403, "cross-origin"),
        ("GET", "/health", b"", {"Host": "localhost.evil.example"}, 421, "evil.example"),
        ("PUT", f"{KEYS}/x", b"1", BOTH_LENGTHS, 400, "not both"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_with_the_reason(
    method: str, path: str, content: bytes, headers: dict[str, str], status: int, says: str
) -> None:
    async with a_node() as served:
        response = await served.http.request(method, path, content=content, headers=headers)

        assert response.status_code == status, response.text
        assert says in response.json()["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:3001"},
        {"Host": "[::1]:3001"},
        {"Host": "LOCALHOST:3001"},
        {"Host": "10.0.0.1:3000"},
        {"Origin": "http://localhost"},
        {"Origin": "https://ops.example", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://localhost:8080", "X-Forwarded-Host": "localhost:8080"},
        {"Origin": "http://10.0.0.9", "X-Forwarded-Host": "10.0.0.9, proxy.example"},
    ],
)
async def test_requests_of_programs_and_of_pages_of_its_own_are_served(
    headers: dict[str, str],
) -> None:
    async with a_node() as served:
        put = await served.http.put(f"{KEYS}/x", content=b"1", headers=headers)

    assert put.status_code == 204


@pytest.mark.parametrize("path", ["/alive", "/ready"])
async def test_a_probe_may_call_the_node_what_it_likes(path: str) -> None:
    async with a_node() as served:
        answer = await served.http.get(path, headers={"Host": "pod.example", "Origin": "null"})

    assert answer.status_code == 200


async def test_any_page_may_have_something_read_that_its_browser_then_keeps_from_it() -> None:
    async with a_node() as served:
        got = await served.http.get("/health", headers={"Origin": "http://other.example"})

    assert got.status_code == 200
    assert "access-control-allow-origin" not in got.headers


class Endless(httpx.AsyncByteStream):
    """A body whose length no header gives."""

    def __aiter__(self) -> Endless:
        return self

    async def __anext__(self) -> bytes:
        return b" " * 10


async def test_a_body_that_is_too_large_is_refused_announced_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parameters, "BODY_BYTES_MAX", 100)
    async with a_node() as served:
        announced = await served.http.put(f"{KEYS}/x", content=b" " * 101, headers=JSON)
        request = httpx.Request("PUT", f"http://localhost{KEYS}/x", headers=JSON, stream=Endless())
        streamed = await served.http.send(request)

        assert [announced.status_code, streamed.status_code] == [413, 413]


async def stuck() -> AsyncGenerator[bytes]:
    """A body that never comes to its end."""
    yield b"["
    await trio.sleep_forever()


async def test_a_body_that_does_not_come_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock

    async with a_node() as served, aclosing(stuck()) as stream:
        response = await served.http.put(f"{KEYS}/x", content=stream, headers=JSON)

        assert (response.status_code, response.json()["error"]) == (408, "TooSlow")


async def test_more_requests_than_there_is_room_for_are_refused(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    monkeypatch.setattr(server, "REQUESTS_MAX", 1)
    async with a_node() as served, aclosing(stuck()) as body, trio.open_nursery() as nursery:

        async def put() -> None:
            await served.http.put(f"{KEYS}/x", content=body, headers=JSON)

        nursery.start_soon(put)
        await trio.testing.wait_all_tasks_blocked()

        refused = await served.http.get("/health")
        alive = [await served.http.get(path) for path in ("/alive", "/ready")]

        nursery.cancel_scope.cancel()
        assert [response.status_code for response in alive] == [200, 200]
        assert (refused.status_code, refused.json()["error"]) == (503, "Busy")


async def test_a_request_that_was_refused_keeps_no_place(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """Whatever refuses it: the gate, a lack of room, its endpoint, or the end of its body."""
    del autojump_clock
    monkeypatch.setattr(server, "REQUESTS_MAX", 1)
    async with a_node() as served:
        refusals = [
            await served.http.get("/health", headers={"Host": "elsewhere.example"}),
            await served.http.put(f"{KEYS}/x", headers={"Origin": "http://elsewhere.example"}),
            await served.http.get("/keyspaces/nothing/keys/x"),
        ]
        async with aclosing(stuck()) as body, trio.open_nursery() as nursery:

            async def put() -> None:
                refusals.append(await served.http.put(f"{KEYS}/x", content=body, headers=JSON))

            nursery.start_soon(put)
            await trio.testing.wait_all_tasks_blocked()
            refusals.append(await served.http.get("/health"))

        assert (await served.http.put(f"{KEYS}/x", json=1)).status_code == 204

    assert [response.status_code for response in refusals] == [421, 403, 404, 503, 408]


async def test_a_bug_of_ours_ends_its_request_and_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_node() as served:

        async def broken(_name: str) -> None:
            message = "a secret"
            raise RuntimeError(message)

        monkeypatch.setattr(served.node.keyspaces, "get", broken)

        response = await served.http.get(f"{KEYS}/x")

        assert response.status_code == 500
        assert "secret" not in response.text
