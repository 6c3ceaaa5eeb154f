"""Shuffles on processes that are paused, killed alone, or without room or a folder."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ShuffleDamaged, ShuffleFull
from ringpop_py.flow.shuffle.client.client import ShuffleClient
from ringpop_py.flow.shuffle.server.framestore import name_in_files
from ringpop_py.flow.shuffle.server.process import DATA
from tests.e2e.commands import run
from tests.e2e.local_cluster import free_addresses
from tests.e2e.shuffle.cluster import ShuffleCluster, child_of, until
from tests.e2e.shuffle.test_rows import SCHEMA, keys_of, put, refreshed, rows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(240)
def test_a_node_that_stops_for_long_and_goes_on_serves_nothing_old(cluster: ShuffleCluster) -> None:
    tables = [rows(seed) for seed in range(3)]
    with ShuffleClient(cluster.addresses, "paused") as client:
        client.create(SCHEMA, ["key"], intervals=8)
        receipts = [put(client, tables[0])]
        child = child_of(cluster[1])
        cluster[1].signal(signal.SIGSTOP)
        os.kill(child, signal.SIGSTOP)
        receipts.append(put(client, tables[1]))
        client.refresh()
        until(lambda: len(refreshed_members(client)) == 2, cluster.logs)
        os.kill(child, signal.SIGCONT)
        cluster[1].signal(signal.SIGCONT)
        receipts.append(put(client, tables[2]))
        client.end(receipts)

        assert client.reader().read_all().column("key").to_pylist() == keys_of(*tables)
        until(lambda: len(refreshed_members(client)) == 3, cluster.logs)
        until(lambda: all(each.replica for each in refreshed(client)), cluster.logs)
        client.delete()


def refreshed_members(client: ShuffleClient) -> list[str]:
    return [member.host for member in client.refresh().members]


@pytest.mark.timeout(240)
def test_a_process_that_is_killed_alone_is_started_again_with_empty_hands(
    cluster: ShuffleCluster,
) -> None:
    tables = [rows(seed) for seed in range(3)]
    with ShuffleClient(cluster.addresses, "killed alone") as client:
        client.create(SCHEMA, ["key"], intervals=8)
        receipts = [put(client, tables[0])]
        before = {member.host: member.incarnation for member in client.refresh().members}
        os.kill(child_of(cluster[2]), signal.SIGKILL)
        receipts.append(put(client, tables[1]))
        name = cluster[2].name

        def is_back() -> bool:
            there = {member.host: member.incarnation for member in client.refresh().members}
            return there.get(name, 0) > before[name]

        until(is_back, cluster.logs)
        receipts.append(put(client, tables[2]))
        client.end(receipts)

        assert client.reader().read_all().column("key").to_pylist() == keys_of(*tables)
        client.delete()


def test_a_shuffle_that_has_ended_can_be_read_though_there_is_no_room_for_more(
    tmp_path: Path,
) -> None:
    with ShuffleCluster(tmp_path, 2, "--shuffle-disk", "20MB") as cluster:
        cluster.wait_ready(2)
        with ShuffleClient(cluster.addresses, "small", timeout_s=20) as client:
            client.create(SCHEMA, ["key"], intervals=4)
            client.end([put(client, rows(1))])
        with ShuffleClient(cluster.addresses, "large", timeout_s=20) as client:
            client.create(SCHEMA, ["key"], intervals=4)
            with pytest.raises(ShuffleFull, match="--shuffle-disk"):
                put_many(client)
            client.delete()
        with ShuffleClient.open(cluster.addresses, "small") as client:
            assert client.reader().read_all().column("key").to_pylist() == keys_of(rows(1))
        # What was deleted makes room.
        with ShuffleClient(cluster.addresses, "another", timeout_s=20) as client:
            client.create(SCHEMA, ["key"], intervals=4)
            end = time.monotonic() + 20
            while True:
                try:
                    receipt = put(client, rows(2))
                    break
                except ShuffleFull:
                    assert time.monotonic() < end
                    time.sleep(0.2)
            client.end([receipt])
            assert client.reader().read_all().num_rows == rows(2).num_rows


def put_many(client: ShuffleClient) -> None:
    for seed in range(40):
        put(client, rows(seed))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--shuffle-folder", "{folder}/new"), "--shuffle-folder needs --store"),
        (("--store", "memory:", "--shuffle-folder", "{file}"), "cannot be written: "),
        (("--shuffle-memory", "much"), "a size such as 500MB or 2GiB, not 'much'"),
        (("--shuffle-memory", "1MB"), "memory_bytes is a whole number from 67,108,864 to"),
    ],
    ids=["no-store", "a-file", "no-size", "too-small"],
)
def test_wrong_flags_are_refused_at_the_start(
    tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    [address] = free_addresses(1)
    given = [flag.format(folder=tmp_path, file=file) for flag in flags]

    done = run("ringpopd", "--listen", str(address), *given)

    assert done.returncode == 2
    assert said in done.stderr


def test_two_nodes_cannot_have_one_folder(cluster: ShuffleCluster, tmp_path: Path) -> None:
    [address] = free_addresses(1)
    flags = [
        "--store",
        str(tmp_path),
        "--create-store",
        "--shuffle-folder",
        str(cluster.folders[0]),
    ]

    done = run("ringpopd", "--listen", str(address), *flags)

    assert done.returncode == 2
    assert "is in use by another process" in done.stderr


def test_a_damaged_file_is_not_served_and_its_replica_is(cluster: ShuffleCluster) -> None:
    with ShuffleClient(cluster.addresses, "damaged", timeout_s=10) as client:
        client.create(SCHEMA, ["key"], intervals=6)
        client.end([put(client, rows(1))])
        owner, replica = client.intervals[0].owner, client.intervals[0].replica
        files = {node.name: path for node, path in zip(cluster.nodes, cluster.folders, strict=True)}
        assert owner is not None
        assert replica is not None
        (file,) = folder_of("damaged", files[owner]).rglob("intervals/0")
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        assert client.reader().read_all().column("key").to_pylist() == keys_of(rows(1))

        (file,) = folder_of("damaged", files[replica]).rglob("intervals/0")
        os.truncate(file, file.stat().st_size // 2)
        with pytest.raises(ShuffleDamaged, match=r"interval 0 .* is damaged at .* and "):
            client.interval(0)
        assert client.interval(1).num_rows == client.intervals[1].rows
        client.delete()


def folder_of(name: str, of_node: Path) -> Path:
    """Where a node keeps one shuffle. Those deleted before may be there for some seconds."""
    return of_node / DATA / name_in_files(name)
