"""Partitions of several megabytes in a real store that takes values of about one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import trio

from ringpop_py import Config, open_ringpop
from ringpop_py.base.address import Address
from ringpop_py.state.stores.etcd import VALUE_BYTES_MAX
from tests.state.stores.servers import etcd_server

if TYPE_CHECKING:
    from pathlib import Path

VALUES_COUNT = 24
VALUE_BYTES = 400_000
OPEN_S = 60.0


async def test_a_partition_of_ten_megabytes_lives_in_etcd(tmp_path: Path) -> None:
    rng = random.Random(0)
    values = {f"k{n}": rng.randbytes(VALUE_BYTES // 2).hex() for n in range(VALUES_COUNT)}
    with etcd_server(tmp_path) as at, trio.fail_after(OPEN_S):
        config = Config(
            listen=Address("127.0.0.1", 0), store=f"etcd://{at}/ringpop", create_store=True
        )
        async with open_ringpop(config) as node:
            keyspace = await node.open_keyspace("large", partitions=1, checkpoint_interval_s=3_600)
            # One record of 2.4 MB and one of the rest.
            names = [*values]
            for some in (names[:6], names[6:]):
                await keyspace.update_many([(key, "put", values[key]) for key in some])
            host = node.keyspaces.durable_host("large")
            (partition,) = host.driver.online()
            slot = await host.checkpointer.write(partition)
            await host.writer.trim()

            assert slot is not None
            assert host.checkpointer.trouble == ""
            assert host.checkpointer.counts.bytes_count > 4 * VALUE_BYTES_MAX
            journal = host.keys.journal(host.writer.journal.name)
            assert journal.slot(1) not in host.store.list(host.keys.root)

        async with open_ringpop(config) as successor:
            keyspace = await successor.open_keyspace("large")
            assert await keyspace.get_many(values, timeout_s=20) == values
