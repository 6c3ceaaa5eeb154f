"""Keys that expire, over HTTP: they are given an instant, which a read says."""

from __future__ import annotations

import math
import time
from email.utils import formatdate, parsedate_to_datetime

import pytest

from ringpop_py.base.values.packed import encode_value
from ringpop_py.state.table.due import NEVER_MS, stamped
from tests.edge.web.nodes import KEYS, Served, a_node

MANY = "/keyspaces/k/update-many"
SOON = 4_102_444_800  # the year 2100
SOON_TEXT = "2100-01-01T01:00:00.25+01:00"
ZONE = "such as 2030-01-31T09:00:00Z"


async def expires(served: Served, key: str) -> str | None:
    found = await served.http.get(f"{KEYS}/{key}")
    head = await served.http.head(f"{KEYS}/{key}")
    assert found.headers.get("expires") == head.headers.get("expires")
    return str(found.headers["expires"]) if "expires" in found.headers else None


async def test_a_put_gives_a_key_an_instant_and_reads_say_it_rounded_up() -> None:
    async with a_node(members=2) as served:
        before = time.time()
        lived = await served.http.put(f"{KEYS}/a", json=[1], params={"expires_in": "1800.5"})
        dated = await served.http.put(f"{KEYS}/b", json=[1], params={"expires_at": SOON_TEXT})
        seconds = await served.http.put(f"{KEYS}/c", json=[1], params={"expires_at": str(SOON)})
        await served.put("d", [1])
        tag = (await served.http.get(f"{KEYS}/b")).headers["etag"]
        same = await served.http.get(f"{KEYS}/b", headers={"If-None-Match": tag})

        assert [each.status_code for each in (lived, dated, seconds)] == [204] * 3
        assert lived.headers["etag"] == tag  # the instant is no part of the value
        left = parsedate_to_datetime(await expires(served, "a") or "").timestamp() - before
        assert 1_800 < left < 1_800 + 600
        assert await expires(served, "b") == formatdate(SOON + 1, usegmt=True)
        assert await expires(served, "c") == formatdate(SOON, usegmt=True)
        assert await expires(served, "d") is None
        assert (same.status_code, same.headers["expires"]) == (304, await expires(served, "b"))
        assert await served.value("a") == [1]


async def test_an_operation_gives_an_instant_and_persist_takes_it_away() -> None:
    at = {"expires_at": str(SOON)}
    async with a_node() as served:
        counted = await served.http.post(f"{KEYS}/n/count", params=at)
        kept = await served.http.post(f"{KEYS}/n/count")
        there = await expires(served, "n")
        persisted = await served.http.post(f"{KEYS}/n/persist")
        only_new = {"If-None-Match": "*"}
        refused = await served.http.put(f"{KEYS}/n", json=0, params=at, headers=only_new)

        assert (counted.json(), kept.json(), persisted.json()) == (1, 2, 2)
        assert there == formatdate(SOON, usegmt=True)
        assert (refused.status_code, await expires(served, "n")) == (412, None)


async def test_each_of_many_changes_can_have_its_own_instant() -> None:
    rows: list[tuple[str, dict[str, object]]] = [
        ("a", {"expires_in": 60}),
        ("b", {"expires_at": SOON}),
        ("c", {"expires_at": SOON_TEXT}),
    ]
    rows += [("d", {"expires_in": None}), ("e", {"expires_at": 1})]
    changes = [{"key": key, "operation": "put", "argument": 1, **when} for key, when in rows]
    async with a_node() as served:
        outcomes = (await served.http.post(MANY, json={"changes": changes})).json()["outcomes"]

        assert [each.get("value") for each in outcomes] == [1, 1, 1, 1, None]
        assert "in the past" in outcomes[4]["message"]
        assert await expires(served, "a")
        assert await expires(served, "b") == formatdate(SOON, usegmt=True)
        assert await expires(served, "c") == formatdate(math.ceil(SOON + 0.25), usegmt=True)
        assert await expires(served, "d") is None


async def test_an_instant_beyond_the_last_date_of_http_is_told_as_that_date() -> None:
    far = stamped(encode_value("msgpack", 1), NEVER_MS)  # a job may put any bytes
    async with a_node(mode="memory", partitions=1) as served:
        keyspace = await served.node.open_keyspace("k")
        await keyspace.put("far", 1)
        state = served.node.keyspaces.here("k").host.driver.partitions[0].state
        state.apply([{"far": far}, [], {"job/x": [0]}, {}])

        assert await expires(served, "far") == "Fri, 31 Dec 9999 23:59:59 GMT"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("expires_in=soon", "expires_in is a number of seconds above 0"),
        ("expires_in=0", "expires_in is a number of seconds above 0"),
        ("expires_in=nan", "expires_in is a number of seconds above 0"),
        ("expires_in=1e12", "expires_in is a number of seconds above 0, 3.16224e+09 at most"),
        ("expires_at=tomorrow", ZONE),
        ("expires_at=2100-01-01T00:00:00", ZONE),
        ("expires_at=", ZONE),
        ("expires_at=inf", ZONE),
        ("expires_at=1e15", "expires_at is seconds since 1970"),
        ("expires_at=1", "in the past"),
        ("expires_in=5&expires_at=4102444800", "exclude each other"),
        ("expires=5", "did you mean 'expires_in'?"),
    ],
)
async def test_a_wrong_time_is_refused_with_the_reason_and_changes_nothing(
    query: str, reason: str
) -> None:
    async with a_node() as served:
        put = await served.http.put(f"{KEYS}/x?{query}", json=1)
        posted = await served.http.post(f"{KEYS}/x/count?{query}")

        for answer in (put, posted):
            assert answer.status_code == 400
            assert reason in answer.json()["message"]
        assert (await served.http.get(f"{KEYS}/x")).status_code == 404


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ({"expires_in": "60"}, "expires_in is seconds above 0"),
        ({"expires_in": True}, "expires_in is seconds above 0"),
        ({"expires_at": "2100-01-01"}, ZONE),
        ({"expires_at": [1]}, "expires_at is seconds since 1970"),
        ({"expires": 5}, "did you mean 'expires_in'?"),
    ],
)
async def test_a_wrong_time_of_one_of_many_changes_refuses_all(
    when: dict[str, object], reason: str
) -> None:
    changes = [{"key": "x", "operation": "put"}, {"key": "y", "operation": "put", **when}]
    async with a_node() as served:
        answer = await served.http.post(MANY, json={"changes": changes})

        assert (answer.status_code, reason in answer.json()["message"]) == (400, True)
        assert (await served.http.get(f"{KEYS}/x")).status_code == 404


async def test_a_delete_takes_no_time_for_a_key_that_would_be_gone() -> None:
    async with a_node() as served:
        deleted = await served.http.delete(f"{KEYS}/x?expires_in=5")
        posted = await served.http.post(f"{KEYS}/x/delete?expires_in=5")

        for answer in (deleted, posted):
            assert (answer.status_code, "no 'expires_in'" in answer.json()["message"]) == (
                400,
                True,
            )
