"""ETag, If-Match and If-None-Match: what is read has a tag, and writes can depend on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import msgpack
import pytest
import trio

from ringpop_py import tag_of
from ringpop_py.edge.web.server import App
from tests.edge.web.nodes import KEYS, a_node
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

if TYPE_CHECKING:
    from typing import Literal

X = f"{KEYS}/x"
MSGPACK = {"Accept": "application/msgpack"}


async def test_an_answer_to_a_read_or_write_has_the_tag_of_the_value() -> None:
    async with a_node() as served:
        put = await served.http.put(X, json=["tea"])
        got = await served.http.get(X)
        updated = await served.http.post(f"{X}/append", json="milk")

        assert put.headers["etag"] == got.headers["etag"] == f'"{tag_of(["tea"])}"'
        assert updated.headers["etag"] == f'"{tag_of(["tea", "milk"])}"'
        assert got.headers["vary"] == "accept"


@pytest.mark.parametrize(
    ("body", "content_type", "comes_back"),
    [
        (b'{"a":[1,"\xc3\xa4"]}', "application/json", True),
        (b"null", "application/json; charset=utf-8", True),
        (msgpack.packb({"b": b"\xff"}), "application/msgpack", True),
        (b"\x00\xff", "application/octet-stream", True),
        (b'{"a": 1}', "application/json", False),
        (b'"\\u00e4"', "application/json", False),
        (b"\xca\x3f\x80\x00\x00", "application/msgpack", False),  # 1.0 in 32 bits
    ],
)
async def test_a_put_has_the_tag_of_a_get_if_that_returns_the_body_as_it_was_sent(
    body: bytes, content_type: str, *, comes_back: bool
) -> None:
    async with a_node() as served:
        put = await served.http.put(X, content=body, headers={"Content-Type": content_type})
        got = await served.http.get(X, headers={"Accept": content_type})

        assert put.status_code == 204
        assert (got.content == body) is comes_back
        assert put.headers.get("etag") == (got.headers["etag"] if comes_back else None)


async def test_each_form_of_a_value_has_a_tag_of_its_own_and_all_are_good_for_a_write() -> None:
    async with a_node() as served:
        await served.put("x", 1)
        tags = [
            (await served.http.get(X, headers=accept)).headers["etag"] for accept in ({}, MSGPACK)
        ]
        assert len(set(tags)) == 2

        other_form = {"If-None-Match": tags[0], **MSGPACK}
        assert (await served.http.get(X, headers=other_form)).status_code == 200

        for value, tag in enumerate(tags):
            done = await served.http.put(X, json=value, headers={"If-Match": tag})
            assert done.status_code == 204
            await served.put("x", 1)


async def test_a_client_that_has_the_value_already_is_told_so_without_it() -> None:
    async with a_node() as served:
        await served.put("x", {"large": "value"})
        tag = (await served.http.get(X)).headers["etag"]

        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            response = await served.http.get(X, headers={"If-None-Match": known})
            assert (response.status_code, response.content) == (304, b"")
            assert response.headers["etag"] == tag
        await served.put("x", {"another": "value"})
        changed = await served.http.get(X, headers={"If-None-Match": tag})

        assert (changed.status_code, changed.json()) == (200, {"another": "value"})


async def test_a_read_of_another_value_than_the_expected_one_is_412() -> None:
    async with a_node() as served:
        await served.put("x", 1)
        tag = (await served.http.get(X)).headers["etag"]

        answers = [
            (await served.http.get(X, headers={"If-Match": wanted})).status_code
            for wanted in (tag, "*", '"other"', f"W/{tag}")
        ]
        missing = await served.http.get(f"{KEYS}/missing", headers={"If-None-Match": "*"})

        assert answers == [200, 200, 412, 412]
        assert missing.status_code == 404


async def test_a_put_that_wants_no_value_there_overwrites_none() -> None:
    async with a_node(members=2) as served:
        create = {"If-None-Match": "*"}

        first = await served.http.put(X, json=1, headers=create)
        second = await served.http.put(X, json=2, headers=create)

        assert first.status_code == 204
        assert (second.status_code, second.json()["error"]) == (412, "ConditionFailed")
        assert await served.value("x") == 1


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
async def test_every_write_goes_by_if_match(method: str) -> None:
    path = f"{X}/add" if method == "POST" else X
    content = None if method == "DELETE" else b"5"
    async with a_node(members=2) as served:

        async def write(condition: str) -> int:
            headers = {"If-Match": condition}
            response = await served.http.request(method, path, content=content, headers=headers)
            return response.status_code

        assert await write("*") == 412  # there is no value
        await served.put("x", 1)
        tag = (await served.http.get(X)).headers["etag"]
        assert [await write('"other"'), await write(f"W/{tag}")] == [412, 412]
        assert await served.value("x") == 1

        assert await write(f'"other", {tag}') in (200, 204)
        assert await write(tag) == 412


@pytest.mark.virtual_time
@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_of_two_callers_with_one_tag_at_two_members_exactly_one_gets_its_way(
    mode: Literal["durable", "memory"],
) -> None:
    statuses: list[int] = []
    async with a_cluster() as cluster:
        members = [await cluster.start("a"), await cluster.start("b")]
        keyspace = await members[0].open_keyspace("k", partitions=8, mode=mode)
        await all_online(keyspace, "a", "b")
        path = f"{KEYS}/{key_at(keyspace, 'b')}"

        async def write(number: int, tag: str) -> None:
            async with caller(number) as http:
                response = await http.put(path, json=number, headers={"If-Match": tag})
                statuses.append(response.status_code)

        def caller(number: int) -> httpx.AsyncClient:
            transport = httpx.ASGITransport(App(members[number % 2]))
            return httpx.AsyncClient(transport=transport, base_url="http://localhost")

        async with caller(0) as http:
            tag = (await http.put(path, json="before")).headers["etag"]
            async with trio.open_nursery() as nursery:
                for number in range(6):
                    nursery.start_soon(write, number, tag)

    assert sorted(statuses) == [204, 412, 412, 412, 412, 412]


async def test_a_repeated_write_succeeds_again_and_has_no_tag_of_what_it_wrote_before() -> None:
    async with a_node(members=2) as served:
        await served.put("x", 1)
        tag = (await served.http.get(X)).headers["etag"]
        headers = {"If-Match": tag, "Operation-Id": "order-17"}

        first = await served.http.put(X, json=2, headers=headers)
        await served.put("x", 3)
        again = await served.http.put(X, json=2, headers=headers)

        assert (first.status_code, again.status_code) == (204, 204)
        assert again.headers["operation-repeated"] == "true"
        assert "etag" in first.headers
        assert "etag" not in again.headers  # by now the key has another value
        assert await served.value("x") == 3


@pytest.mark.virtual_time
async def test_a_stale_read_that_the_store_has_answered_has_its_age() -> None:
    async with a_cluster() as cluster:
        reader = await cluster.start("reader")
        await cluster.start("owner")
        keyspace = await reader.open_keyspace("k", partitions=8)
        await all_online(keyspace, "reader", "owner")
        path = f"{KEYS}/{key_at(keyspace, 'owner')}"
        body = {"keys": [path.rpartition("/")[2]]}
        transport = httpx.ASGITransport(App(reader))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            put = await http.put(path, json="kept")
            from_owner = await http.get(path, params={"stale": "true"})
            cluster.hang("owner")
            await trio.sleep(0.3)

            one = await http.get(path, params={"stale": "true"})
            await trio.sleep(0.3)
            page = await http.get(KEYS, params={"stale": "true"})
            many = await http.post("/keyspaces/k/get-many?stale=true", json=body)
            none = await http.get(f"{path}-none", params={"stale": "true"})

    assert "age" not in from_owner.headers
    assert (one.status_code, one.json(), one.headers["age"]) == (200, "kept", "0")
    assert one.headers["etag"] == put.headers["etag"]
    assert page.json()["rows"][0]["value"] == "kept"
    assert [page.headers["age"], many.headers["age"]] == ["1", "1"]  # rounded up
    assert none.status_code == 404


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match"])
@pytest.mark.parametrize("text", ["abc", '"abc', '"a" "b"', '*, "a"', "w/*", "W/"])
async def test_a_condition_that_cannot_be_read_is_refused_and_not_ignored(
    header: str, text: str
) -> None:
    async with a_node() as served:
        answers = [
            await served.http.put(X, json=1, headers={header: text}),
            await served.http.get(X, headers={header: text}),
        ]

        for response in answers:
            assert response.status_code == 400
            assert f"{header.lower()} is a list of tags in quotes" in response.json()["message"]


async def test_tags_in_several_headers_and_with_commas_are_read() -> None:
    async with a_node() as served:
        await served.put("x", 1)
        tag = (await served.http.get(X)).headers["etag"]
        headers = [("If-Match", '"a,b", ,"c"'), ("If-Match", f"  {tag}  ")]

        response = await served.http.put(X, json=2, headers=headers)

        assert response.status_code == 204


@pytest.mark.parametrize(
    ("method", "path", "advice"),
    [
        ("PUT", "/keyspaces/k", ""),
        ("DELETE", "/keyspaces/k?confirm=k", ""),
        ("POST", "/keyspaces/k/get-many", ""),
        ("POST", "/keyspaces/k/update-many", "; for update-many, use the operation 'conditional'"),
    ],
)
async def test_a_condition_of_what_has_no_tag_is_refused_and_not_ignored(
    method: str, path: str, advice: str
) -> None:
    async with a_node() as served:
        response = await served.http.request(method, path, json={}, headers={"If-None-Match": "*"})

        assert response.status_code == 400
        message = f"if-none-match is for a request about one key{advice}"
        assert response.json()["message"] == message


async def test_changes_of_many_keys_have_their_conditions_as_operations() -> None:
    held = {"operation": "add", "argument": 1, "if_match": "*"}
    failed = {"operation": "add", "argument": 1, "if_none_match": "*"}
    changes = [
        {"key": "x", "operation": "conditional", "argument": argument}
        for argument in (held, failed)
    ]
    async with a_node() as served:
        await served.put("x", 1)

        response = await served.http.post("/keyspaces/k/update-many", json={"changes": changes})

        done, refused = response.json()["outcomes"]
        assert done == {"value": 2, "repeated": False}
        assert (refused["error"], refused["status"]) == ("ConditionFailed", 412)
