"""Shuffles over HTTP: from any language that writes and reads streams of Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pyarrow as pa
import pytest

from tests.e2e.local_cluster import free_addresses
from tests.e2e.shuffle.cluster import ShuffleCluster, until

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = pa.schema([("key", pa.int64()), ("text", pa.string())])


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with ShuffleCluster(tmp_path_factory.mktemp("cluster"), 2) as cluster:
        [address] = free_addresses(1)
        cluster[0].stop()
        cluster[0].start("--http", str(address))
        cluster.wait_ready(2)
        with httpx.Client(base_url=f"http://{address}", timeout=20) as client:
            yield client
        print(cluster.logs())  # shown if a test fails


def stream(keys: list[int], schema: pa.Schema = SCHEMA) -> bytes:
    table = pa.table({"key": keys, "text": [str(key) for key in keys]}, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_rows_are_put_and_read_over_http(http: httpx.Client) -> None:
    of = "/shuffles/mine"
    assert http.get("/shuffles").json() == {}
    assert http.get(of).status_code == 404
    definition = {"schema": {"key": "int64", "text": "string"}, "by": ["key"], "intervals": 3}
    made = http.put(of, json=definition).json()
    assert (made["state"], made["by"]) == ("put", ["key"])
    assert http.put(of, json={**definition, "by": ["text"]}).status_code == 409

    number = http.post(f"{of}/attempts").json()["attempt"]
    for frame in (0, 1, 1):
        keys = list(range(frame, 100, 2))
        assert http.put(f"{of}/attempts/{number}/{frame}", content=stream(keys)).status_code == 204
    early = http.get(f"{of}/intervals/0?version={made['version']}")
    assert (early.status_code, early.headers["retry-after"]) == (503, "1")
    receipt = http.post(f"{of}/attempts/{number}/finish", json={"frames": 2, "rows": 100}).json()
    wrong = http.post(f"{of}/end", json={"receipts": [{**receipt, "frames": 3}]})
    assert (wrong.status_code, wrong.json()["error"]) == (409, "ShuffleIncomplete")
    other = http.post(f"{of}/end", json={"receipts": [{**receipt, "uid": receipt["uid"] - 1}]})
    assert other.status_code == 409
    assert "of another shuffle" in other.text
    assert http.post(f"{of}/end", json={"receipts": [receipt]}).status_code == 200
    until(lambda: http.get(of).json()["state"] == "get")

    late = http.put(f"{of}/attempts/{number}/2", content=stream([1]))
    assert (late.status_code, late.json()["error"]) == (409, "ShuffleEnded")
    shown = http.get(of).json()
    assert sum(interval["rows"] for interval in shown["intervals"]) == 100
    keys = []
    for interval in shown["intervals"]:
        where = f"{of}/intervals/{interval['number']}"
        refused = http.get(f"{where}?version={shown['version'] - 1}")
        assert (refused.status_code, refused.headers["version"]) == (400, str(shown["version"]))
        answer = http.get(f"{where}?version={shown['version']}")
        assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
        with pa.ipc.open_stream(answer.content) as reader:
            keys += reader.read_all().column("key").to_pylist()
    assert keys == list(range(100))
    assert http.delete(of).status_code == 400
    assert http.delete(f"{of}?confirm=mine").status_code == 204
    assert http.get(of).status_code == 410
    assert http.put(f"{of}/attempts/{number}/0", content=stream([1])).status_code == 410


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("PUT", "", b'{"by": ["key"]}', "schema is a map of columns and types"),
        ("PUT", "", b'{"schema": {"key": "what"}, "by": ["key"]}', "schema: "),
        ("PUT", "", b'{"schema": {"key": "int64"}, "by": "key"}', "by is a list of columns"),
        (
            "PUT",
            "",
            b'{"schema": {"key": "int64"}, "by": [], "seed": -1}',
            "seed is a whole number",
        ),
        ("PUT", "", b'{"schema": {"key": "int64"}, "by": ["a"]}', "there is no column 'a'"),
        ("PUT", "/attempts/0/0", b"what", "the body is not a stream of Arrow"),
        ("PUT", "/attempts/x/0", b"", "the attempt in the path is a number"),
        ("POST", "/end", b"{}", "the body is a map with 'receipts'"),
        ("POST", "/attempts/0/finish", b'{"frames": -1, "rows": 0}', "frames is a whole number"),
        ("GET", "/intervals/0", b"", "say by which version you go"),
    ],
)
def test_a_wrong_request_is_refused_with_the_reason(
    http: httpx.Client, method: str, path: str, body: bytes, said: str
) -> None:
    if path:
        made = http.put("/shuffles/wrong", json={"schema": {"key": "int64"}, "by": ["key"]})
        assert made.status_code == 200

    answer = http.request(method, f"/shuffles/wrong{path}", content=body)

    assert answer.status_code == 400
    assert said in answer.json()["message"]
