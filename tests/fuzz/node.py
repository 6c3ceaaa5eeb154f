"""A node in memory that is sent spoilt frames and bodies, and what is looked for in it."""

from __future__ import annotations

import random
import resource
import traceback
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import BadRequest, CallError
from ringpop_py.base.values.declared import replace
from ringpop_py.base.values.requests import KeyspaceRequest
from ringpop_py.edge.admin import keyspaces as admin_keyspaces
from ringpop_py.edge.admin.endpoints import CHANGES
from ringpop_py.member.swim.member import Status
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.net.wire.connection import Connection
from ringpop_py.net.wire.init import NO_LISTENER
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.testing import MemoryNetwork
from tests.fuzz.mutations import spoilt, with_another_number
from tests.golden.samples import KINDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.net.transport.network import Stream
    from ringpop_py.node.ringpop import Ringpop

VICTIM, OTHER = Address("10.0.0.1", 3000), Address("10.0.0.2", 3000)
FITS: Final = 0.8
"""The share of calls that begin as something that the endpoint can read."""
SOUND: Final = 0.3
"""The share of calls that ask for what is there, but for a number."""
A_CONNECTION: Final = 8
"""How many calls come on one connection, unless the node closes it before."""
ENDS_ITSELF: Final = frozenset(CHANGES | admin_keyspaces.CHANGES) - {"/admin/config/set"}
"""What changes the node if it is understood: that would be no fault."""


class Found(NamedTuple):
    """What came of a run.

    Attributes:
        calls: how many were sent, by endpoint.
        bugs: what handlers raised that they should not, with their endpoints.
        grown_bytes: by how much the process has grown since a tenth of the calls.
    """

    calls: Counter[str]
    bugs: list[str]
    grown_bytes: int
    healthy: bool


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[Ringpop, Ringpop, MemoryNetwork]]:
    """A node that is attacked, with a keyspace in each mode, and one that watches it."""
    network, store = MemoryNetwork(), MemoryStore()
    hosts = (VICTIM, OTHER)
    victim_config = Config(listen=VICTIM, hosts=hosts)
    async with (
        open_ringpop(victim_config, network=network, store=store) as victim,
        open_ringpop(Config(listen=OTHER, hosts=hosts), network=network, store=store) as other,
    ):
        await victim.open_keyspace("k", partitions=4)
        await victim.open_keyspace("m", mode="memory", partitions=4)
        await other.wait_until(lambda ringpop: len(ringpop.ring) == len(hosts))
        yield victim, other, network


async def attack(count: int, seed: int, *, spoils_frames: float = 0.3) -> Found:
    """Send *count* calls to a node: with spoilt bodies, or with frames that are spoilt as such."""
    rng = random.Random(seed)
    bodies = [kind.encode(sample) for kind in KINDS.values() for sample in kind.samples.values()]
    calls: Counter[str] = Counter()
    bugs: list[str] = []
    grown_from = 0
    async with two_nodes() as (victim, other, network):
        victim.channel.on_handler_error = lambda endpoint, error: bugs.append(
            f"{endpoint}: {type(error).__name__}: {error}: {_place(error)}"
        )
        served = [
            (service, endpoint)
            for service, endpoint in victim.channel.handlers.served
            if endpoint not in ENDS_ITSELF
        ]
        fitting = await _fitting(victim, network, served, bodies)
        of_keyspaces = [each for each in served if each[1].startswith("/keyspace/")]
        sound = await _fitting(victim, network, of_keyspaces, _sound_bodies(victim))
        of_keyspaces = [each for each in of_keyspaces if sound[each[1]]]
        while calls.total() < count:
            if not grown_from and calls.total() >= count // 10:
                grown_from = peak_bytes()
            stream = await network.connect(VICTIM, origin=None)
            connection = Connection(
                host_port=NO_LISTENER, process_name="fuzz", initiates=True, limits=WireLimits()
            )
            for number in range(A_CONNECTION):
                is_sound = rng.random() < SOUND
                service, endpoint = rng.choice(of_keyspaces if is_sound else served)
                calls[endpoint] += 1
                if is_sound:
                    body = with_another_number(rng.choice(sound[endpoint]), rng)
                    frame = _as_frame(Call(service, endpoint, body, body, ttl_s=0.05))
                else:
                    chosen = fitting[endpoint] if rng.random() < FITS else []
                    frame = _frame(service, endpoint, rng.choice(chosen or bodies), rng)
                frame = frame[:4] + (number + 2).to_bytes(4, "big") + frame[8:]  # its id
                if not is_sound and rng.random() < spoils_frames:
                    frame = spoilt(frame, rng)
                if not await _sent(stream, connection.take_outgoing() + frame):
                    break
            stream.close()
            await trio.lowlevel.checkpoint()
        await trio.sleep(0.1)
        row = other.node.members.get(victim.name)
        healthy = victim.ready and row is not None and row.status is Status.ALIVE
        return Found(calls, bugs, peak_bytes() - grown_from, healthy)


async def _fitting(
    victim: Ringpop, network: MemoryNetwork, served: list[tuple[str, str]], bodies: list[bytes]
) -> dict[str, list[bytes]]:
    """Return, for each endpoint, which of *bodies* it can read."""
    channel = Channel(process_name="fuzz", network=network)
    fitting: dict[str, list[bytes]] = {endpoint: [] for _, endpoint in served}
    async with trio.open_nursery() as nursery:
        await nursery.start(channel.run)
        for service, endpoint in served:
            for body in bodies:
                try:
                    await channel.call(VICTIM, Call(service, endpoint, body, body, ttl_s=0.05))
                except BadRequest:
                    continue
                except CallError:
                    pass
                fitting[endpoint].append(body)
        nursery.cancel_scope.cancel()
    assert victim.ready
    return fitting


def _sound_bodies(victim: Ringpop) -> list[bytes]:
    """Return all requests to keyspaces, as requests to those of *victim*; also of one part each."""
    generations = {name: victim.keyspaces.here(name).host.generation for name in ("k", "m")}
    found: list[bytes] = []
    for kind in KINDS.values():
        for sample in kind.samples.values():
            if not isinstance(sample, KeyspaceRequest):
                continue
            for name, generation in generations.items():
                request = replace(sample, keyspace=name, generation=generation)
                found.append(kind.encode(request))
                found += [
                    kind.encode(replace(request, **{field: getattr(request, field)[:1]}))
                    for field in ("parts", "partitions")
                    if hasattr(request, field)
                ]
    return found


def _frame(service: str, endpoint: str, body: bytes, rng: random.Random) -> bytes:
    """Return a call whose arguments are spoilt, in frames that are right."""
    arg2 = spoilt(body, rng) if rng.random() < 0.2 else b""
    scheme = "json" if service == NODE_SERVICE and rng.random() < 0.1 else "msgpack"
    return _as_frame(
        Call(service, endpoint, arg2[:1_000], spoilt(body, rng), ttl_s=0.05, scheme=scheme)
    )


def _as_frame(call: Call) -> bytes:
    """Return *call* as it is sent first on a connection."""
    limits = WireLimits()
    ends = [
        Connection(host_port=NO_LISTENER, process_name="x", initiates=first, limits=limits)
        for first in (True, False)
    ]
    ends[1].receive(ends[0].take_outgoing())
    ends[0].receive(ends[1].take_outgoing())
    ends[0].send_call(call)
    return ends[0].take_outgoing()


async def _sent(stream: Stream, data: bytes) -> bool:
    try:
        await stream.send_some(memoryview(data))
        with trio.move_on_after(0):
            return bool(await stream.receive())
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return False
    return True


def _place(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno} {last.name}"


def peak_bytes() -> int:
    """Return the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
