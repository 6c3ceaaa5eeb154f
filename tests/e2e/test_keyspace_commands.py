"""ringpopd --store and the commands of ringpopctl about keyspaces, on real processes."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.e2e.commands import command_of, ctl, ctl_json, run
from tests.e2e.local_cluster import LocalCluster, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("keyspaces")
    with LocalCluster(folder, 3, "--preset", "local", "--store", str(folder / "store")) as three:
        three.wait_converged()
        yield three


def test_the_life_of_a_keyspace(cluster: LocalCluster) -> None:
    created = ctl(cluster, "keyspace", "create", "counts", "--partitions", "12")
    waited = ctl(cluster, "wait", "--for", "partitions", "--members", "3", node=1)
    found = ctl_json(cluster, "partitions", "--keyspace", "counts", "--all", node=2)
    looked_up = ctl_json(cluster, "lookup", "k", "--keyspace", "counts", node=1)
    shown = ctl(cluster, "keyspace", "show", "counts")
    listed = ctl_json(cluster, "keyspace", "list", node=2)
    unconfirmed = ctl(cluster, "keyspace", "drop", "counts")
    dropped = ctl(cluster, "keyspace", "drop", "counts", "--yes")
    gone = ctl(cluster, "keyspace", "show", "counts", node=1)

    assert created.stdout == (
        "keyspace counts was created: 12 partitions, durable, balanced, generation 1\n"
    )
    assert waited.returncode == 0, waited.stderr
    (counts,) = found["keyspaces"]
    assert [member["partitions"] for member in counts["members"]] == [4, 4, 4]
    assert [row["partition"] for row in counts["rows"]] == list(range(12))
    assert all(row["settled"] for row in counts["rows"])
    assert sorted(counts["here"]) == sorted(node.name for node in cluster.nodes)
    assert looked_up["owner"] == counts["rows"][looked_up["partition"]]["owner"]
    assert "checkpoint_interval_s" in shown.stdout
    assert [keyspace["name"] for keyspace in listed["keyspaces"]] == ["counts"]
    assert (unconfirmed.returncode, "--yes" in unconfirmed.stderr) == (2, True)
    assert "its data stay in the store" in dropped.stdout.lower()
    assert (gone.returncode, gone.stderr) == (
        1,
        "ringpopctl: no keyspace 'counts' in cluster 'default'\n",
    )


@pytest.mark.parametrize("node", range(3))
def test_any_node_answers_any_control_request(cluster: LocalCluster, node: int) -> None:
    """R2."""
    name = f"asked {node}"
    created = ctl(cluster, "keyspace", "create", name, "--partitions", "3", node=node)
    waited = ctl(cluster, "wait", "--for", "partitions", "--members", "3", node=node)
    members = ctl_json(cluster, "members", node=node)
    listed = ctl_json(cluster, "keyspace", "list", node=node)
    shown = ctl(cluster, "keyspace", "show", name, node=node)
    found = ctl_json(cluster, "partitions", "--keyspace", name, "--all", node=node)
    looked_up = ctl_json(cluster, "lookup", "k", "--keyspace", name, node=node)
    dropped = ctl(cluster, "keyspace", "drop", name, "--yes", node=node)

    codes = [each.returncode for each in (created, waited, shown, dropped)]
    assert codes == [0, 0, 0, 0], created.stderr + waited.stderr + shown.stderr + dropped.stderr
    assert len(members["members"]) == 3
    assert name in [keyspace["name"] for keyspace in listed["keyspaces"]]
    (keyspace,) = found["keyspaces"]
    assert [row["partition"] for row in keyspace["rows"]] == [0, 1, 2]
    assert looked_up["owner"] == keyspace["rows"][looked_up["partition"]]["owner"]


def test_a_checkpoint_is_restored_and_a_drop_undone(cluster: LocalCluster) -> None:
    ctl(cluster, "keyspace", "create", "kept", "--partitions", "4")
    made = ctl(cluster, "checkpoint", "now", "kept")
    listed = ctl_json(cluster, "checkpoint", "list", "kept", node=1)
    unconfirmed = ctl(cluster, "checkpoint", "restore", "kept", "latest")
    restored = ctl(cluster, "checkpoint", "restore", "kept", "epoch-1", "--into", "copy", node=2)
    dropped = ctl(cluster, "keyspace", "drop", "kept", "--yes")
    back = ctl(cluster, "keyspace", "bring-back", "kept", node=1)
    again = ctl(cluster, "checkpoint", "restore", "kept", "latest", "--yes")
    settled = ctl(cluster, "wait", "--for", "partitions", node=2)
    for name in ("kept", "copy"):
        ctl(cluster, "keyspace", "drop", name, "--yes")

    assert made.stdout == "epoch-1 of keyspace kept: 0 keys in 4 partitions, 0.0 MB\n"
    assert [checkpoint["name"] for checkpoint in listed["checkpoints"]] == ["epoch-1"]
    assert (unconfirmed.returncode, "--yes" in unconfirmed.stderr) == (2, True)
    assert restored.stdout == (
        "keyspace copy is generation 1 now, restored from epoch-1 of generation 1 of 'kept'\n"
    )
    assert "`ringpopctl keyspace bring-back kept` undoes it" in dropped.stdout
    assert back.returncode == 0, back.stderr
    assert back.stdout == (
        "keyspace kept is generation 2 now, brought back from generation 1 of 'kept'\n"
    )
    assert "kept is generation 3 now" in again.stdout
    assert settled.returncode == 0, settled.stderr


def test_partitions_that_wait_for_members_are_an_exit_code(cluster: LocalCluster) -> None:
    ctl(cluster, "keyspace", "create", "four", "--partitions", "4", "--min-cluster-size", "4")
    wait_until(lambda: "3 of the 4 members" in ctl(cluster, "partitions").stdout, 30, "the reason")
    found = ctl(cluster, "partitions", "--keyspace", "four")
    late = ctl(cluster, "wait", "--for", "partitions", "--timeout", "0.2")
    other = ctl(cluster, "keyspace", "create", "two", "--partitions", "2")
    good = ctl(cluster, "wait", "--for", "partitions", "--keyspace", "two")
    lowered = ctl(cluster, "keyspace", "set", "four", "--min-cluster-size", "3", node=1)
    served = ctl(cluster, "wait", "--for", "partitions", "--keyspace", "four")
    for name in ("four", "two"):
        ctl(cluster, "keyspace", "drop", name, "--yes")

    assert found.returncode == 3
    assert "waits: no partition was assigned yet: 3 of the 4 members" in found.stdout
    assert late.returncode == 5
    *waiting, last = late.stderr.splitlines()
    assert waiting[-1].startswith("ringpopctl: waiting: keyspace four, as ")
    assert "3 of the 4 members that the keyspace waits for (min_cluster_size)" in waiting[-1]
    assert last.startswith("ringpopctl: not settled after ")
    assert ". Start 1 more" in last
    assert (other.returncode, good.returncode) == (0, 0)
    assert lowered.stdout == "keyspace four: min_cluster_size is 3 now; it was 4\n"
    assert served.returncode == 0, served.stderr
    assert "1 keyspace" in good.stdout


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("ftp://x", "there is no 'ftp' among the stores"),
        ("/dev/null/x", "Not a directory"),
        ("sqlite:///proc/x.db", "unable to open"),
        ("etcd://127.0.0.1:1/p", "cannot be used"),
    ],
)
def test_a_store_that_cannot_be_used_ends_the_start_with_one_line(store: str, message: str) -> None:
    done = run("ringpopd", "--listen", "127.0.0.1:0", "--store", store, "--create-store")

    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("scheme", ["", "folder://", "sqlite://"])
def test_a_store_that_is_not_there_is_made_only_for_who_asks(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "mount").mkdir()  # as of a disk that is not mounted
    empty = f"{scheme}{tmp_path}/mount" + ("/x.sqlite" if scheme == "sqlite://" else "")
    gone = f"{scheme}{tmp_path}/gone/x"
    listen = ("ringpopd", "--listen", "127.0.0.1:0", "--store")

    for store in (empty, gone):
        done = run(*listen, store)

        assert done.returncode == 2
        assert "is it mounted, and is this its name?" in done.stderr
        assert done.stderr.count("\n") == 1
    assert list((tmp_path / "mount").iterdir()) == []
    assert not (tmp_path / "gone").exists()

    flags = ("--preset", "local", "--store", empty)
    with LocalCluster(tmp_path, 1, *flags) as made:  # with --create-store
        made.wait_converged()
        assert "is new: it is made for cluster 'default'" in made.logs()
        assert made[0].stop() == 0
        made[0].command.remove("--create-store")
        made[0].start()
        made.wait_converged()
        other = run(*listen, empty, "--cluster", "other")

    assert other.returncode == 2
    assert "holds nothing of cluster 'other'" in other.stderr


@pytest.mark.parametrize("scheme", ["folder://", "sqlite://"])
def test_a_node_that_cannot_write_does_not_join_and_takes_no_partitions(
    tmp_path: Path, scheme: str
) -> None:
    store = f"{scheme}{tmp_path}/store"
    with LocalCluster(tmp_path, 1, "--preset", "local", "--store", store) as cluster:
        cluster.wait_converged()
        started = command_of("ringpopd", "--listen", "127.0.0.1:0")
        started += ["--hosts", str(cluster.hosts_file), "--preset", "local", "--store", store]
        # A limit on the size of files stands for a disk that is full.
        done = subprocess.run(
            ["prlimit", "--fsize=0", *started],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        members = ctl_json(cluster, "members")["members"]

    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"the store '{store}' cannot be used: " in done.stderr
    assert len(members) == 1


def test_a_keyspace_with_hash_tags(cluster: LocalCluster) -> None:
    created = ctl(cluster, "keyspace", "create", "shop", "--hash-tags", "--partitions", "64")
    ctl(cluster, "wait", "--for", "partitions", "--keyspace", "shop", node=1)
    keys = ("{user:42}/cart", "{user:42}/orders")
    found = [ctl_json(cluster, "lookup", key, "--keyspace", "shop", node=1) for key in keys]
    shown = ctl(cluster, "keyspace", "show", "shop")
    ctl(cluster, "keyspace", "drop", "shop", "--yes")

    assert created.returncode == 0, created.stderr
    assert found[0]["partition"] == found[1]["partition"]
    assert "hash_tags" in shown.stdout
