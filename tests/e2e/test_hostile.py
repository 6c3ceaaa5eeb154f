"""20,000 mutated frames and bodies against a running node: it stays in the ring, memory flat."""

from __future__ import annotations

import itertools
import os
import random
import socket
import struct
from typing import TYPE_CHECKING

import msgpack
import pytest

from ringpop_py.base.config.settings import WireLimits
from ringpop_py.net.wire.calls import Call
from ringpop_py.net.wire.connection import Connection
from ringpop_py.net.wire.init import NO_LISTENER
from tests.e2e.local_cluster import LocalCluster, LocalNode

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FRAMES_COUNT = BODIES_COUNT = int(os.environ.get("RINGPOP_HOSTILE_FRAMES", "10000"))
BATCH = 50
FRAMES_A_CONNECTION = 4
_IDS = itertools.count(2)
MEMORY_GROWTH_MAX_BYTES = 24 << 20

INIT = Connection(
    host_port=NO_LISTENER, process_name="hostile", initiates=True, limits=WireLimits()
).take_outgoing()


def call_frame(service: str, endpoint: str, arg2: bytes, arg3: bytes, scheme: str) -> bytes:
    """A sound call req, by way of our own connection as a peer of itself."""
    limits = WireLimits()
    one = Connection(host_port=NO_LISTENER, process_name="x", initiates=True, limits=limits)
    two = Connection(host_port=NO_LISTENER, process_name="y", initiates=False, limits=limits)
    two.receive(one.take_outgoing())
    one.receive(two.take_outgoing())
    one.send_call(Call(service, endpoint, arg2, arg3, ttl_s=1.0, scheme=scheme))
    return one.take_outgoing()


def bodies(victim: LocalNode) -> list[tuple[str, str, bytes, bytes, str]]:
    host, port = victim.address
    member = [victim.name, host, port, 1, 0, {"k": "v"}]
    change = ["127.0.0.1:1", 5, ["127.0.0.1:1", "127.0.0.1", 1, 5, 0]]
    ping = ["default", 100, "127.0.0.1:1", "127.0.0.1", 1, 5, 7, [change]]
    ping_req = ["default", "127.0.0.1:1", "127.0.0.1", 1, 5, 7, victim.name, host, port, []]
    join = ["default", 100, "127.0.0.1:1", "127.0.0.1", 1, 5, 1000]
    accusation = ["x", 1, member]
    pack = msgpack.packb
    return [
        ("ringpop", "/protocol/ping", b"", pack(ping), "msgpack"),
        ("ringpop", "/protocol/ping", b"", pack([*ping[:7], [accusation]]), "msgpack"),
        ("ringpop", "/protocol/ping-req", b"", pack(ping_req), "msgpack"),
        ("ringpop", "/protocol/join", b"", pack(join), "msgpack"),
        ("ringpop", "/admin/lookup", b"", pack({"key": "k", "n": 3}), "msgpack"),
        ("ringpop", "/admin/lookup", b"", b'{"key": "k"}', "raw"),
        ("ringpop", "/admin/config/get", b"", b'["period_s"]', "json"),
        ("ringpop", "/proxy/req", b'{"url":"/x","method":"GET","ringpopKeys":["k"]}', b"", "raw"),
        ("app", "/who", pack({"keys": ["k"], "ring": 5}), b"body", "raw"),
        ("app", "/who", pack({"keys": ["k"], "route": True}), b"body", "raw"),
    ]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """*data* with a few bytes changed, cut out, repeated or added."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(5):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.choice([0, 1, 0x7F, 0x80, 0xC1, 0xDF, 0xFF])
            case 2:
                del out[at : at + rng.randint(1, 8)]
            case 3:
                out[at:at] = out[at : at + rng.randint(1, 16)]
            case _:
                out[at:at] = rng.randbytes(rng.randint(1, 8))
    return bytes(out)


class Attacker:
    """A connection that is made again whenever the node has closed it."""

    def __init__(self, victim: LocalNode) -> None:
        self.victim = victim
        self.socket: socket.socket | None = None
        self.sent_count = 0
        self.connections_count = 0

    def send(self, frames: list[bytes]) -> None:
        for _ in range(100):
            try:
                if self.socket is None:
                    self.socket = socket.create_connection(self.victim.address, timeout=5)
                    self.connections_count += 1
                    self.socket.sendall(INIT)
                self.socket.sendall(b"".join(frames))
                self._drain()
            except OSError:
                self.close()
            else:
                self.sent_count += len(frames)
                return
        pytest.fail("the node takes no connections any more")

    def _drain(self) -> None:
        assert self.socket is not None
        self.socket.settimeout(0)
        try:
            while data := self.socket.recv(1 << 16):
                del data
            self.close()
        except BlockingIOError:
            self.socket.settimeout(5)

    def hang_up(self) -> None:
        """Close so that the node reads all that was sent: it sees the end, and closes too."""
        if self.socket is None:
            return
        try:
            self.socket.settimeout(5)
            self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(1 << 16):
                pass
        except OSError:
            pass  # the node had closed it before
        self.close()

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None


def test_mutated_frames_and_bodies_change_nothing(tmp_path: Path) -> None:
    rng = random.Random(20)
    with LocalCluster(tmp_path, 3, "--app", "tests.e2e.echo_app:create") as cluster:
        cluster.wait_converged()
        victim = cluster[0]
        corpus = bodies(victim)
        whole = [call_frame(*parts) for parts in corpus] + [INIT]
        attacker = Attacker(victim)
        _attack_with_bodies(attacker, corpus, rng, 2_000)
        _attack_with_frames(attacker, whole, rng, 2_000)
        memory_before = _memory(victim)

        _attack_with_bodies(attacker, corpus, rng, BODIES_COUNT)
        _attack_with_frames(attacker, whole, rng, FRAMES_COUNT)

        attacker.close()
        assert attacker.sent_count >= BODIES_COUNT + FRAMES_COUNT
        assert attacker.connections_count > FRAMES_COUNT / 50  # that much did break the protocol
        assert _memory(victim) - memory_before < MEMORY_GROWTH_MAX_BYTES
        alive = {victim.name, *(node.name for node in cluster.nodes[1:])}
        for node in cluster.nodes:
            ring = {owner["address"] for owner in node.admin("/admin/ring")["owners"]}
            assert alive <= ring


def _attack_with_bodies(
    attacker: Attacker,
    corpus: list[tuple[str, str, bytes, bytes, str]],
    rng: random.Random,
    count: int,
) -> None:
    """Sound frames, mutated arguments: several to a connection."""
    for _ in range(count // BATCH):
        frames = []
        for _ in range(BATCH):
            service, endpoint, arg2, arg3, scheme = rng.choice(corpus)
            arg2 = mutated(arg2, rng) if rng.random() < 0.5 else arg2
            frames.append(call_frame_fast(service, endpoint, arg2, mutated(arg3, rng), scheme))
        attacker.send(frames)


def _attack_with_frames(
    attacker: Attacker, whole: list[bytes], rng: random.Random, count: int
) -> None:
    """Frames that are wrong as such: few to a connection, for a wrong size swallows the next."""
    for _ in range(count // FRAMES_A_CONNECTION):
        attacker.send([mutated(rng.choice(whole), rng) for _ in range(FRAMES_A_CONNECTION)])
        attacker.hang_up()


def call_frame_fast(service: str, endpoint: str, arg2: bytes, arg3: bytes, scheme: str) -> bytes:
    """As `call_frame`, packed by hand; 200 ms to live."""
    text = [bytes([len(t)]) + t for t in (service.encode(), scheme.encode(), b"x")]
    payload = b"\0" + struct.pack(">I", 200) + bytes(25) + text[0] + b"\x02"
    payload += b"\x02as" + text[1] + b"\x02cn" + text[2] + b"\0"
    for arg in (endpoint.encode(), arg2, arg3):
        payload += struct.pack(">H", len(arg)) + arg
    return struct.pack(">HBBI8x", 16 + len(payload), 3, 0, next(_IDS)) + payload


def _memory(node: LocalNode) -> int:
    rss = node.admin("/admin/stats")["process"]["memory"]["rss"]
    assert isinstance(rss, int)
    return rss
