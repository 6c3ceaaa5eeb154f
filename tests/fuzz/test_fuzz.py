"""Some thousand spoilt calls, records of TLS, requests of HTTP, batches and files; more by hand.

``python -m tests.fuzz --count 1000000`` sends as many as you like.
"""

from __future__ import annotations

import logging
import random
import ssl
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

import pytest
import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.errors import BadRequest, BodyError, StateDamaged
from ringpop_py.base.logs import NAME
from ringpop_py.net.security.keys import new_key, write_keys
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.testing import MemoryNetwork
from tests.fuzz.answers import ask_for_spoilt, read_spoilt
from tests.fuzz.arrow import bombs_of, doors_of, refusal, spoil, table_of
from tests.fuzz.mutations import spoilt
from tests.fuzz.node import attack
from tests.golden.samples import KINDS
from tests.logged import events_in

if TYPE_CHECKING:
    from pathlib import Path

GROWN_BYTES_MAX: Final = 64 << 20
LINES_MAX: Final = 200
BOMB_BYTES: Final = 200 << 20


@pytest.mark.parametrize("seed", range(2))
async def test_spoilt_calls_find_no_bug_and_leave_the_node_well(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    found = await attack(3_000, seed)

    assert found.bugs == []
    assert found.healthy
    assert found.grown_bytes < GROWN_BYTES_MAX
    assert len(found.calls) > 40  # endpoints
    assert len(events_in(caplog)) < LINES_MAX
    assert [r for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info] == []


async def test_spoilt_records_of_tls_leave_the_node_well(tmp_path: Path) -> None:
    key = str(tmp_path / "key")
    write_keys(key, (new_key(),), replace=False)
    at, network, rng = Address("10.0.0.1", 3000), MemoryNetwork(), random.Random(1)
    hello = _hello()
    async with open_ringpop(Config(listen=at, cluster_key=key), network=network) as node:
        for _ in range(300):
            stream = await network.connect(at, origin=None)
            try:
                await stream.send_some(memoryview(spoilt(hello, rng) or b"\x16"))
                with trio.move_on_after(0.002):
                    await stream.receive()
                await stream.send_some(memoryview(rng.randbytes(rng.randint(1, 300))))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            stream.close()
        await trio.sleep(0.05)
        assert node.ready
        assert len(node.channel.links) == 0


def _hello() -> bytes:
    """The first records of a client."""
    back, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(back, there).do_handshake()
    return there.read()


HOST: Final = b"Host: localhost\r\n"
REQUESTS: Final = (
    b"GET /keyspaces/k/keys?prefix=a&limit=2 HTTP/1.1\r\n%bAccept: */*\r\n\r\n" % HOST,
    b"PUT /keyspaces/k/keys/x HTTP/1.1\r\n%bContent-Length: 2\r\n\r\n[]" % HOST,
    b"POST /keyspaces/k/update-many HTTP/1.1\r\n%bContent-Type: application/json\r\n"
    b'Content-Length: 43\r\n\r\n{"changes":[{"key":"a","operation":"count"}]}' % HOST,
    b"POST /keyspaces/k/get-many HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n"
    b'e\r\n{"keys":["a"]}\r\n0\r\n\r\n' % HOST,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
)


async def test_spoilt_requests_of_http_leave_the_node_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rng = random.Random(1)
    async with open_ringpop(Config(http=Address("127.0.0.1", 0)), store=MemoryStore()) as node:
        await node.open_keyspace("k", partitions=4)
        assert node.http_address is not None
        for _ in range(400):
            async with await trio.open_tcp_stream(*node.http_address) as stream:
                try:
                    await stream.send_all(spoilt(rng.choice(REQUESTS), rng) or b"\0")
                    with trio.move_on_after(0.01):
                        await stream.receive_some()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    continue
        async with await trio.open_tcp_stream(*node.http_address) as stream:
            await stream.send_all(b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")

    assert [r for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info] == []


@pytest.mark.parametrize("name", list(KINDS))
def test_spoilt_bytes_are_read_or_refused(name: str) -> None:
    kind, rng = KINDS[name], random.Random(name)
    sound = [kind.encode(sample) for sample in kind.samples.values()]

    for _ in range(100):
        try:
            kind.decode(spoilt(rng.choice(sound), rng))
        except (
            kind.refusal,
            BodyError,
            StateDamaged,
            ValueError,
        ):  # ValueError: whoever reads it makes it one
            continue


def test_spoilt_answers_of_http_are_refused_or_the_same_to_another_parser() -> None:
    found = read_spoilt(3_000, 1)

    assert found.bugs == {}
    assert found.accepted.total() > 300
    assert found.refused.total() > 300


async def test_after_a_spoilt_answer_the_next_request_has_its_own() -> None:
    found = await ask_for_spoilt(500, 1)

    assert found.bugs == {}
    assert min(found.accepted.total(), found.refused.total()) > 50


def test_spoilt_arrow_is_refused_or_sound_at_each_door() -> None:
    # In a process of its own: what is not refused in time ends it.
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        found = processes.submit(spoil, 5_000, 1).result()

    assert found.bugs == {}
    assert min(found.refused[name] for name in doors_of(table_of(3))) > 100
    assert min(found.accepted[name] for name in doors_of(table_of(3))) > 10


@pytest.mark.parametrize("name", list(bombs_of(1)))
def test_a_bomb_is_refused_at_each_door_before_it_is_unpacked(name: str) -> None:
    bomb = bombs_of(BOMB_BYTES)[name]
    assert len(bomb) < 50_000

    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        error, grown_bytes = processes.submit(refusal, name, bomb).result()

    assert "compressed batches are not accepted" in error
    assert grown_bytes < 50 << 20


async def test_the_log_of_an_attack_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    at, network = Address("10.0.0.1", 3000), MemoryNetwork()
    caplog.set_level(logging.INFO, NAME)
    channel = Channel(process_name="fuzz", network=network)
    async with trio.open_nursery() as nursery, open_ringpop(Config(listen=at), network=network):
        await nursery.start(channel.run)
        for number in range(2_000):
            body = f"{number}".encode()
            with pytest.raises(BadRequest):
                await channel.call(at, Call(NODE_SERVICE, "/protocol/ping", b"", body, ttl_s=1.0))
        nursery.cancel_scope.cancel()

    assert len(events_in(caplog)) < LINES_MAX
