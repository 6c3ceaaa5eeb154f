"""A cluster of processes whose nodes hold rows of shuffles."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ringpop_py.base.errors import RingpopError
from ringpop_py.flow.shuffle.client.cluster import Cluster
from tests.e2e.local_cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.local_cluster import LocalNode

READY_S = 30.0


class ShuffleCluster(LocalCluster):
    """A `LocalCluster` with a store, and a folder of shuffles for each node."""

    def __init__(self, folder: Path, count: int, *flags: str) -> None:
        super().__init__(folder, count, "--store", str(folder / "store"), *flags)
        self.folders = [folder / f"shuffles-{place}" for place in range(count)]
        for node, path in zip(self.nodes, self.folders, strict=True):
            node.command += ["--shuffle-folder", str(path)]

    def wait_ready(self, count: int) -> None:
        """Wait until there are *count* processes for shuffles, in the eyes of all live nodes."""
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                until(lambda node=node: self._seen_by(node.name) == count, self.logs)  # type: ignore[misc]

    def _seen_by(self, address: str) -> int:
        cluster = Cluster([address], 2.0)
        try:
            cluster.look()
        except RingpopError:
            return 0
        return len(cluster.addresses)


def child_of(node: LocalNode) -> int:
    """The process for shuffles of *node*."""
    assert node.process is not None
    tasks = Path(f"/proc/{node.process.pid}/task").iterdir()  # any thread may have started it
    [child] = [pid for task in tasks for pid in (task / "children").read_text().split()]
    return int(child)


def until(
    condition: Callable[[], bool], told: Callable[[], str] = lambda: "", seconds: float = READY_S
) -> None:
    """Wait until *condition* holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, told() or "it did not become true in time"
        time.sleep(0.05)
