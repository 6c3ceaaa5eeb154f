"""Nodes with a store: in this process, or each in one of its own (``python -m … NAME …``)."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_demo.cluster import free_ports
from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.config.settings import StateConfig
from ringpop_py.base.logs import NAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.stores.store import Store

KEYSPACE: Final = "bench"
ROOT: Final = Path(__file__).parents[3]
WHOLE_S: Final = 60.0
POLL_S: Final = 0.005


def hush() -> None:
    """Let only errors be logged: figures go to standard output."""
    logging.getLogger(NAME).setLevel(logging.ERROR)


def stores_in(folder: Path) -> dict[str, str]:
    """A store of each kind that keeps its values on a disk: the name of the kind, and the URL."""
    return {"folder": str(folder / "store"), "sqlite": f"sqlite://{folder.absolute()}/store.db"}


@asynccontextmanager
async def a_node(
    place: Path | str,
    name: str = "a",
    *,
    listen: Address | None = None,
    hosts: Sequence[Address] = (),
    store: Store | None = None,
    state: StateConfig | None = None,
    signals: bool = False,
) -> AsyncIterator[Ringpop]:
    """A node of this process, whose store is in the folder *place* or at that URL."""
    listen = listen or Address("127.0.0.1", 0)
    config = Config(
        name=name,
        listen=listen,
        hosts=tuple(hosts),
        store=str(place),
        create_store=True,
        state=state or StateConfig(),
    )
    async with open_ringpop(config, store=store, signals=signals) as node:
        yield node


@asynccontextmanager
async def a_keyspace(
    place: Path | str,
    partitions: int,
    *,
    store: Store | None = None,
    state: StateConfig | None = None,
    checkpoint_interval_s: float = 3600.0,
) -> AsyncIterator[Keyspace]:
    """A keyspace on one node of this process, all of whose partitions are online."""
    async with a_node(place, store=store, state=state) as node:
        keyspace = await node.open_keyspace(
            KEYSPACE, partitions=partitions, checkpoint_interval_s=checkpoint_interval_s
        )
        await whole(keyspace, [node.name])
        yield keyspace


async def whole(keyspace: Keyspace, names: Sequence[str]) -> None:
    """Return when *names*, each of them and nobody else, serve all partitions."""
    with trio.fail_after(WHOLE_S):
        while not is_whole(keyspace, names):
            await trio.sleep(POLL_S)


def is_whole(keyspace: Keyspace, names: Sequence[str]) -> bool:
    """Whether *names*, each of them and nobody else, serve all partitions."""
    table = keyspace.table
    online = table.statuses().get("online", 0) == len(table)
    return online and not table.moving and set(table.counts()) == set(names)


def keys_of(keyspace: Keyspace, number: int, count: int) -> list[str]:
    """*count* keys of the partition *number*."""
    keys: list[str] = []
    index = 0
    while len(keys) < count:
        key = f"key-{index}"
        if keyspace.partition_of(key) == number:
            keys.append(key)
        index += 1
    return keys


@dataclass(frozen=True, slots=True)
class Process:
    """A node in a process of its own."""

    name: str
    address: Address
    process: subprocess.Popen[str]

    def next_said(self) -> dict[str, Any]:
        """What it says next."""
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said


@contextmanager
def processes(
    place: Path | str, names: Sequence[str], *, partitions: int, hosts: Sequence[Address] = ()
) -> Iterator[list[Process]]:
    """Nodes in processes of their own, started at once; killed at the end. SIGTERM is a leave."""
    addresses = [Address("127.0.0.1", port) for port in free_ports(len(names))]
    started: list[Process] = []
    try:
        for name, address in zip(names, addresses, strict=True):
            command = [sys.executable, "-m", __spec__.name, name, str(address), str(place)]
            command += [str(partitions), ",".join(map(str, [*hosts, *addresses]))]
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            started.append(Process(name, address, process))
        yield started
    finally:
        for one in started:
            one.process.kill()
        for one in started:
            one.process.communicate()


def resident_bytes(pid: int | str = "self") -> int:
    """The memory that a process has, shared pages included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError


def tell(**said: object) -> None:
    """Say something to whoever started this process."""
    print(json.dumps(said), flush=True)


async def _serve(name: str, listen: str, place: str, partitions: str, hosts: str) -> None:
    """Be a node; say when it listens, when its partitions are online, and what it takes."""
    seeds = [Address.parse(host) for host in hosts.split(",")]
    async with AsyncExitStack() as stack:
        a = a_node(place, name, listen=Address.parse(listen), hosts=seeds, signals=True)
        node = await stack.enter_async_context(a)
        tell(listening_at=time.time(), resident_bytes=resident_bytes())
        keyspace = await node.open_keyspace(KEYSPACE, partitions=int(partitions))
        names = [member.name for member in node.members]
        while not is_whole(keyspace, names):
            await trio.sleep(POLL_S)
            names = [member.name for member in node.members]
        tell(whole_at=time.time(), resident_bytes=resident_bytes())
        await trio.sleep_forever()


if __name__ == "__main__":
    hush()
    _name, _listen, _place, _partitions, _hosts = sys.argv[1:]
    trio.run(_serve, _name, _listen, _place, _partitions, _hosts)
