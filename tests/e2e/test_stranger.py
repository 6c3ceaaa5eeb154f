"""The ringpop dialect seen by a stranger: a TChannel client of a few lines, byte for byte."""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING, Any, Self

import pytest

from tests.e2e.local_cluster import LocalCluster, LocalNode, free_addresses, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

TRACING = bytes(25)
STATS_KEYS = {
    "hooks",
    "membership",
    "process",
    "protocol",
    "ring",
    "version",
    "timestamp",
    "uptime",
    "tchannelVersion",
}


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def long(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


class Stranger:
    """Speaks TChannel with nothing of ours: frames by hand, one call at a time."""

    def __init__(self, node: LocalNode, host_port: str = "0.0.0.0:0") -> None:
        self.socket = socket.create_connection(node.address, timeout=5)
        self.host_port = host_port
        headers = {"host_port": host_port, "process_name": "stranger"}
        body = struct.pack(">HH", 2, len(headers))
        for key, value in headers.items():
            body += long(key.encode()) + long(value.encode())
        self.send(0x01, 1, body)
        kind, _, _ = self.receive()
        assert kind == 0x02

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()

    def send(self, kind: int, frame_id: int, payload: bytes) -> None:
        head = struct.pack(">HBBI8x", 16 + len(payload), kind, 0, frame_id)
        self.socket.sendall(head + payload)

    def receive(self) -> tuple[int, int, bytes]:
        head = self._exactly(16)
        size, kind, _, frame_id = struct.unpack(">HBBI8x", head)
        return kind, frame_id, self._exactly(size - 16)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            assert piece, "the node closed the connection"
            data += piece
        return data

    def request(self, endpoint: str, arg3: bytes, scheme: str = "raw") -> bytes:
        payload = b"\0" + struct.pack(">I", 3000) + TRACING + short("ringpop") + b"\x02"
        payload += short("as") + short(scheme) + short("cn") + short("probe") + b"\0"
        return payload + long(endpoint.encode()) + long(b"") + long(arg3)

    def call(self, endpoint: str, arg3: bytes, scheme: str = "raw") -> tuple[bytes, bytes]:
        """The whole head of the answer up to arg1, and arg3."""
        self.send(0x03, 2, self.request(endpoint, arg3, scheme))
        kind, frame_id, payload = self.receive()
        assert (kind, frame_id) == (0x04, 2), payload
        offset = 2 + 25
        position = offset + 1
        for _ in range(payload[offset] * 2):
            position += 1 + payload[position]
        assert payload[position] == 0  # no checksum was asked for
        position += 1
        head = payload[:position]
        args = []
        for _ in range(3):
            (size,) = struct.unpack_from(">H", payload, position)
            args.append(payload[position + 2 : position + 2 + size])
            position += 2 + size
        assert position == len(payload)
        assert args[0] == b""
        return head, args[2]

    def json(self, endpoint: str, value: object = None, scheme: str = "raw") -> Any:  # noqa: ANN401
        body = b"" if value is None else json.dumps(value).encode()
        head, arg3 = self.call(endpoint, body, scheme)
        assert head[1] == 0, arg3
        return json.loads(arg3)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNode]:
    folder = tmp_path_factory.mktemp("stranger")
    with LocalCluster(folder, 1, "--dialect=ringpop") as cluster:
        cluster.wait_converged()
        yield cluster[0]


def test_a_lookup_is_answered_byte_for_byte(node: LocalNode) -> None:
    with Stranger(node) as stranger:
        # The frame of the wire's description, literally.
        frame = bytes.fromhex(
            "00680300000000020000000000000000" + "00" + "00000bb8" + "00" * 25 + "0772696e67706f70"
            "020261730372617702636e0570726f6265" + "00" + "000d2f61646d696e2f6c6f6f6b7570" + "0000"
            "000d7b226b6579223a22616263227d"
        )
        assert frame[16:] == stranger.request("/admin/lookup", b'{"key":"abc"}')
        stranger.socket.sendall(frame)
        kind, frame_id, payload = stranger.receive()

    body = json.dumps({"dest": node.name}, separators=(",", ":")).encode()
    expected = b"\0\0" + TRACING + b"\x01" + short("as") + short("raw") + b"\0"
    assert (kind, frame_id) == (0x04, 2)
    assert payload == expected + long(b"") + long(b"") + long(body)


@pytest.mark.parametrize("scheme", ["raw", "json"])
@pytest.mark.parametrize("body", [b"", b"null", b"{}"])
def test_stats_have_exactly_the_keys_that_ringpops_have(
    node: LocalNode, scheme: str, body: bytes
) -> None:
    with Stranger(node) as stranger:
        _, arg3 = stranger.call("/admin/stats", body, scheme)

    stats = json.loads(arg3)
    assert set(stats) == STATS_KEYS
    assert stats["hooks"] is None
    assert set(stats["membership"]) == {"checksum", "members"}
    assert set(stats["membership"]["members"][0]) == {"address", "status", "incarnationNumber"}
    assert set(stats["process"]) == {"memory", "pid"}
    assert set(stats["process"]["memory"]) == {"rss", "heapTotal", "heapUsed"}
    rates = {"timing", "protocolRate", "clientRate", "serverRate", "totalRate"}
    assert set(stats["protocol"]) == rates
    assert set(stats["ring"]) == {"checksum", "servers", "checksums"}
    assert isinstance(stats["version"], str)
    assert isinstance(stats["tchannelVersion"], str)


def test_a_join_is_answered_with_the_list_and_does_not_add_the_joiner(node: LocalNode) -> None:
    join = {
        "app": "ringpop",
        "source": "127.0.0.1:1",
        "incarnationNumber": 5,
        "timeout": 1_000_000_000,
    }
    with Stranger(node) as stranger:
        answer = stranger.json("/protocol/join", join)
        again = stranger.json("/protocol/join", join)

    assert set(answer) == {"app", "coordinator", "membership", "membershipChecksum"}
    assert (answer["app"], answer["coordinator"]) == ("ringpop", node.name)
    assert [m["address"] for m in again["membership"]] == [node.name]
    assert all("id" not in member for member in answer["membership"])


def test_a_ping_is_answered_with_what_the_node_knows(node: LocalNode) -> None:
    with Stranger(node) as stranger:
        joined = stranger.json(
            "/protocol/join", {"app": "ringpop", "source": "127.0.0.1:1", "incarnationNumber": 5}
        )
        ping = {
            "checksum": joined["membershipChecksum"],
            "changes": [],
            "source": "127.0.0.1:1",
            "sourceIncarnationNumber": 5,
            "app": "ringpop",
        }
        answer = stranger.json("/protocol/ping", ping)
        no_checksum = stranger.json("/protocol/ping", {**ping, "checksum": None, "changes": None})

    assert set(answer) == {"checksum", "changes", "source", "sourceIncarnationNumber", "app"}
    assert answer["source"] == node.name
    assert answer["checksum"] == joined["membershipChecksum"]
    assert no_checksum["changes"][0]["address"] == node.name


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("/health", None),
        ("/admin/gossip/status", {"status": "running"}),
        ("/admin/gossip/start", {}),
        ("/admin/reap", {"status": "ok", "reaped": 0}),
        ("/admin/debugSet", {"status": "ok"}),
        ("/admin/debugClear", {"status": "ok"}),
    ],
)
def test_the_small_endpoints_answer_as_ringpops_do(
    node: LocalNode, endpoint: str, expected: object
) -> None:
    with Stranger(node) as stranger:
        assert stranger.json(endpoint) == expected


def test_a_member_that_left_still_answers_and_says_just_that(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 1, "--dialect=ringpop") as cluster:
        cluster.wait_converged()
        with Stranger(cluster[0]) as stranger:
            assert stranger.json("/admin/member/leave") == {"status": "ok"}
            ping = {"source": "127.0.0.1:1", "changes": [], "checksum": 1, "app": "ringpop"}
            answer = stranger.json("/protocol/ping", ping)

            change = answer["changes"][0]
            assert [c["status"] for c in answer["changes"]] == ["leave"]
            assert (change["address"], change["source"]) == (cluster[0].name, cluster[0].name)
            assert stranger.json("/admin/member/join") == {"status": "rejoined"}


def test_a_stranger_that_joins_by_gossip_is_pinged_on_the_connection_it_made(
    tmp_path: Path,
) -> None:
    (address,) = free_addresses(1)
    with LocalCluster(tmp_path, 1, "--dialect=ringpop") as cluster:
        cluster.wait_converged()
        with Stranger(cluster[0], host_port=str(address)) as stranger:
            ping = {
                "source": str(address),
                "sourceIncarnationNumber": 5,
                "checksum": 1,
                "app": "ringpop",
                "changes": [
                    {
                        "source": str(address),
                        "sourceIncarnationNumber": 5,
                        "address": str(address),
                        "incarnationNumber": 5,
                        "status": "alive",
                        "id": "d3b07384-d9a0-4c9b-8f0e-000000000000",
                        "timestamp": -62135596800,
                    }
                ],
            }
            stranger.send(0x03, 2, stranger.request("/protocol/ping", json.dumps(ping).encode()))

            kinds = []
            while 0x03 not in kinds:
                kind, _, payload = stranger.receive()
                kinds.append(kind)

            assert b"/protocol/ping" in payload or b"/protocol/join" in payload


def test_a_cluster_of_ours_converges_with_labels_for_identities(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 2, "--dialect=ringpop") as cluster:
        for number, node in enumerate(cluster.nodes):
            node.kill()
            node.start(f"--identity=node{number}")
        cluster.wait_converged()

        wait_until(lambda: len(cluster[0].statuses()) == 2, 20, "both known")
        owners = cluster[0].admin("/admin/ring")["owners"]

        assert sorted(owner["identity"] for owner in owners) == ["node0", "node1"]
