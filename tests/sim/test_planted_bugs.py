"""Oracles are as good as what they find: each bug that is planted in the core has to be found.

A bug is a patch of a copy of the product's source, and is hunted in a process of its own, in
scenarios and theory that are meant to show it. A patch that fits no more fails its test, too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import ringpop_py
import ringpop_sim
from tests.sim.hunting.variant import HUNTERS
from tests.sim.planted.bugs import BUGS, Bug
from tests.sim.planted.dataflows import DATAFLOW_BUGS
from tests.sim.planted.drivers import DRIVER_BUGS
from tests.sim.planted.entries import ENTRY_BUGS
from tests.sim.planted.expiry import EXPIRY_BUGS
from tests.sim.planted.hunt import UNIT, broken_by
from tests.sim.planted.keyspaces import KEYSPACE_BUGS
from tests.sim.planted.lines import LINE_BUGS
from tests.sim.planted.logs import LOG_BUGS
from tests.sim.planted.patching import planted
from tests.sim.planted.shuffles import SHUFFLE_BUGS
from tests.sim.planted.streams import STREAM_BUGS
from tests.sim.planted.watch import WATCH_BUGS

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCT: Final = Path(ringpop_py.__file__).parent
SIMULATOR: Final = Path(ringpop_sim.__file__).parent.parent
WHOLE_BUGS: Final = (
    *KEYSPACE_BUGS,
    *DRIVER_BUGS,
    *LOG_BUGS,
    *LINE_BUGS,
    *ENTRY_BUGS,
    *EXPIRY_BUGS,
    *SHUFFLE_BUGS,
    *WATCH_BUGS,
)
ALL_BUGS: Final = (*BUGS, *WHOLE_BUGS, *STREAM_BUGS, *DATAFLOW_BUGS)
ENVIRONMENT: Final = dict(os.environ)
"""Of now: pytest changes it while threads would read it."""
HUNT: Final = Path(__file__).parent / "planted" / "hunt.py"
HUNT_S_MAX: Final = 50

Prey = Future[dict[str, str]]


def _hunt(bug: Bug, folder: Path) -> dict[str, str]:
    """What breaks in the first of the bug's hunts in which anything does, by invariant."""
    product = planted(PRODUCT, bug.path, bug.patches, folder)
    paths = os.pathsep.join([str(product), str(SIMULATOR)])
    done = subprocess.run(
        [sys.executable, HUNT, bug.found_by, *bug.hunts],
        env={**ENVIRONMENT, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=HUNT_S_MAX,
        check=False,
    )
    shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def hunts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Prey]]:
    """All hunts that were asked for; on all cores at once if they have those for themselves."""
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = [spec.params["bug"] for spec in specs if spec is not None and "bug" in spec.params]
    with ThreadPoolExecutor(HUNTERS) as pool:
        yield {
            bug.name: pool.submit(_hunt, bug, tmp_path_factory.mktemp("planted")) for bug in wanted
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", ALL_BUGS, ids=str)
def test_a_planted_bug_is_found(bug: Bug, hunts: dict[str, Prey]) -> None:
    hunted = hunts[bug.name].result()

    print(json.dumps(hunted, indent=2))
    assert set(hunted) & set(bug.found_by.split()), f"{bug.name}: {hunted or 'nothing broke'}"


def _is_run_elsewhere(hunt: str) -> bool:
    """Return whether *hunt* is run without a bug by the tests of scenarios, or is such a test."""
    return hunt.startswith(f"{UNIT}:") or hunt.endswith(":0:1")


@pytest.mark.parametrize(
    "hunt",
    sorted({h for bug in WHOLE_BUGS for h in bug.hunts if not _is_run_elsewhere(h)}),
)
def test_a_hunt_finds_nothing_where_no_bug_is_planted(hunt: str) -> None:
    assert broken_by(hunt) == {}
