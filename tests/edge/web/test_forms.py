"""Which form of an answer a caller gets, by its Accept."""

from __future__ import annotations

import msgpack
import pytest

from tests.edge.web.nodes import KEYS, a_node

JSON, MSGPACK, BYTES = "application/json", "application/msgpack", "application/octet-stream"
LARGE = ",".join(["text/html;q=0.5"] * 500)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("*", JSON),
        ("application/*", JSON),
        ("application/json;charset=utf-8", JSON),
        ("APPLICATION/MsgPack", MSGPACK),
        ("application/x-msgpack", MSGPACK),
        ("application/vnd.msgpack; q=0.3", MSGPACK),
        ("text/html, application/json;q=0.2, application/msgpack;q=0.9", MSGPACK),
        ("text/html, application/json;q=0.9, application/msgpack;q=0.2", JSON),
        ("application/json;q=0, */*", MSGPACK),
        ("application/*;q=0.1, application/msgpack;q=0.2, */*;q=1", MSGPACK),
        ("text/html, image/gif, *; q=.2, */*; q=.2", JSON),
        ("application/msgpack;q=much, application/json;q=0.1", JSON),
        ("application/msgpack;q=7, application/json;q=0.1", JSON),
        (f"{LARGE}, application/json", JSON),
    ],
)
async def test_a_value_comes_in_the_form_that_is_wanted_most(accept: str, form: str) -> None:
    async with a_node() as served:
        await served.put("x", 1)

        one = await served.http.get(f"{KEYS}/x", headers={"Accept": accept})
        rows = await served.http.get(KEYS, headers={"Accept": accept})

        assert (one.status_code, one.headers["content-type"]) == (200, form)
        assert (rows.status_code, rows.headers["content-type"]) == (200, form)
        assert rows.headers["vary"] == "accept"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("*/*", BYTES),
        (BYTES, BYTES),
        ("application/json, */*;q=0.1", BYTES),
        ("application/json, application/msgpack;q=0.1", MSGPACK),
        ("application/msgpack, */*;q=0.1", MSGPACK),
    ],
)
async def test_bytes_come_in_a_form_that_can_say_them(accept: str, form: str) -> None:
    async with a_node() as served:
        await (await served.node.open_keyspace("k")).put("x", b"\xff")

        response = await served.http.get(f"{KEYS}/x", headers={"Accept": accept})

        assert (response.status_code, response.headers["content-type"]) == (200, form)
        assert response.content == (b"\xff" if form == BYTES else msgpack.packb(b"\xff"))


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "image/*", BYTES])
@pytest.mark.parametrize("path", ["/keyspaces", "/keyspaces/k", KEYS])
async def test_a_client_that_accepts_none_of_the_forms_is_told_which_there_are(
    accept: str, path: str
) -> None:
    async with a_node() as served:
        response = await served.http.get(path, headers={"Accept": accept})

        assert (response.status_code, response.json()["error"]) == (406, "NotAcceptable")
        assert f"this path offers only {JSON} and {MSGPACK}" in response.json()["message"]


@pytest.mark.parametrize("path", ["/alive", "/ready", "/health"])
async def test_a_probe_is_answered_in_json_whatever_it_accepts_and_adds_to_the_query(
    path: str,
) -> None:
    async with a_node() as served:
        strange = await served.http.get(f"{path}?probe=1", headers={"Accept": "text/plain"})
        packed = await served.http.get(path, headers={"Accept": MSGPACK})

        assert (strange.status_code, strange.headers["content-type"]) == (200, JSON)
        assert (packed.status_code, packed.headers["content-type"]) == (200, MSGPACK)


async def test_a_write_whose_answer_nobody_could_read_is_refused_before_it_is_made() -> None:
    body = {"changes": [{"key": "n", "operation": "count"}]}
    async with a_node() as served:
        headers = {"Accept": "text/html"}

        answers = [
            await served.http.post(f"{KEYS}/n/count", headers=headers),
            await served.http.post("/keyspaces/k/update-many", json=body, headers=headers),
            await served.http.put("/keyspaces/new", json={}, headers=headers),
        ]

        assert [answer.status_code for answer in answers] == [406, 406, 406]
        assert (await served.http.get(f"{KEYS}/n")).status_code == 404
        assert (await served.http.get("/keyspaces/new")).status_code == 404
