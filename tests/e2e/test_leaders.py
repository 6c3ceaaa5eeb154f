"""``ringpopd --run-as-leader``, as processes: one command runs, and another takes over."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.e2e.commands import ctl, ctl_json, run
from tests.e2e.local_cluster import LocalCluster, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_a_command_runs_at_one_node_and_then_at_another_with_a_higher_term(tmp_path: Path) -> None:
    terms = tmp_path / "terms"
    terms.touch()

    def lines() -> list[str]:
        return terms.read_text().split()

    # `cat` ends with its input, so with a daemon that is killed.
    script = f'trap "echo ended >> {terms}" TERM; echo "$RINGPOP_TERM" >> {terms}; cat'
    flags = ("--store", str(tmp_path / "store"), "--create-store", "--preset=lan")
    leads = ("--run-as-leader", "mailer", "--", "sh", "-c", script)
    with LocalCluster(tmp_path, 3, *flags, *leads) as cluster:
        by_name = {node.name: node for node in cluster.nodes}
        wait_until(lambda: lines() == ["1"], 60, "one holds the name")
        cluster.wait_converged()
        (row,) = ctl_json(cluster, "leaders")["leaders"]

        killed = by_name.pop(row["holder"])
        killed.signal(signal.SIGKILL)
        seconds = wait_until(lambda: lines() == ["1", "2"], 60, "another one holds it")
        print(f"taken over {seconds:.2f} s after a kill")

        node = cluster.nodes.index(next(iter(by_name.values())))
        done = ctl(cluster, "leader", "mailer", "--resign", "--yes", node=node)
        assert done.returncode == 0, done.stderr
        # The next one need not wait until this one knows.
        wait_until(lambda: sorted(lines()) == ["1", "2", "3", "ended"], 60, "another one holds it")

        (row,) = ctl_json(cluster, "leaders", node=node)["leaders"]
        by_name[row["holder"]].signal(signal.SIGTERM)
        wait_until(lambda: lines()[-2:] == ["ended", "4"], 60, "it was ended, then released")


def test_a_name_needs_a_command_and_a_store(tmp_path: Path) -> None:
    alone = run("ringpopd", "--run-as-leader", "mailer")
    listen = ("--listen", "127.0.0.1:0", "--hosts", "")
    storeless = run("ringpopd", *listen[:2], "--run-as-leader", "mailer", "--", "true")

    assert (alone.returncode, storeless.returncode) == (2, 2)
    assert "need each other" in alone.stderr
    assert "no store" in storeless.stderr
    assert tmp_path.exists()
