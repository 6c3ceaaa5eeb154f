"""Real daemons on loopback: start to one checksum on all, and kill -9 until all know.

Measured against goals in seconds, not against a peer's program: the ratio is goal over figure.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from tests.bench.report import against_goal
from tests.e2e.local_cluster import LocalCluster, LocalNode, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.report import Row

GOALS_S: Final = {5: 1.0, 30: 2.0}
SUSPECT_GOAL_S: Final = {5: 0.5, 30: None}
ROUNDS: Final = {5: 5, 30: 3}
TIMEOUT_S: Final = 120.0


def run() -> Iterator[Row]:
    """Five and thirty daemons, in several rounds; medians and the worst."""
    for count, goal_s in GOALS_S.items():
        converged, suspect, faulty = [], [], []
        for _ in range(ROUNDS[count]):
            one, two, three = _round(count)
            converged.append(one)
            suspect.append(two)
            faulty.append(three)
        yield against_goal(f"converge.start.{count}.median", median(converged), "s", goal_s)
        yield against_goal(f"converge.start.{count}.max", max(converged), "s", goal_s)
        yield against_goal(
            f"converge.suspect.{count}.median", median(suspect), "s", SUSPECT_GOAL_S[count]
        )
        yield against_goal(
            f"converge.suspect.{count}.max", max(suspect), "s", SUSPECT_GOAL_S[count]
        )
        yield against_goal(f"converge.faulty.{count}.median", median(faulty), "s", None)


def _round(count: int) -> tuple[float, float, float]:
    """Seconds: last one listens to one checksum; kill to all suspect; kill to all faulty."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(Path(folder), count) as cluster,
    ):
        wait_until(lambda: all(_listens(node) for node in cluster.nodes), TIMEOUT_S, "listening")
        started = time.monotonic()
        wait_until(lambda: _one_checksum(cluster.nodes), TIMEOUT_S, "one checksum")
        converged_s = time.monotonic() - started
        victim, *others = cluster.nodes
        time.sleep(1.0)  # the measured system settles; nothing is waited for
        victim.kill()
        killed = time.monotonic()
        cluster.wait_status(victim, {"suspect", "faulty"}, *others, timeout_s=TIMEOUT_S)
        suspect_s = time.monotonic() - killed
        cluster.wait_status(victim, {"faulty"}, *others, timeout_s=TIMEOUT_S)
        return converged_s, suspect_s, time.monotonic() - killed


def _listens(node: LocalNode) -> bool:
    """Once it has, it is not asked again: the asking would be measured."""
    return "listening" in node.log.read_text()


def _one_checksum(nodes: list[LocalNode]) -> bool:
    """Whether all say the same checksum, and that of a list of all."""
    infos = [node.ask("/admin/node") for node in nodes]
    if None in infos or len({info["checksum"] for info in infos}) != 1:
        return False
    return len(nodes[0].statuses()) == len(nodes)
