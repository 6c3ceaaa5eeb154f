"""A checker is as good as what it finds: each broken variant of the slot log has to be found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import ringpop_py
import ringpop_sim
from tests.sim.planted.patching import planted
from tests.sim.slotlog.variants import VARIANTS, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES: Final = {
    "ringpop_py": Path(ringpop_py.__file__).parent,
    "ringpop_sim": Path(ringpop_sim.__file__).parent,
}
HUNT: Final = Path(__file__).parent / "hunt.py"
SCHEDULES: Final = 3000
"""As many as every run of the tests goes through unbroken."""
HUNT_S_MAX: Final = 120

Prey = Future[dict[str, Any]]


def run_with(variant: Variant, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with *arguments*, where *variant* is what is imported."""
    package, path = variant.path.split("/", 1)
    copy = planted(PACKAGES[package], path, [(variant.old, variant.new)], folder)
    paths = [str(copy), *(str(root.parent) for root in PACKAGES.values())]
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,  # where modules are looked for first
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            timeout=HUNT_S_MAX,
            check=False,
        )
    finally:
        shutil.rmtree(folder)


def hunted(variant: Variant, folder: Path) -> dict[str, Any]:
    done = run_with(variant, folder, str(HUNT), str(variant.first), str(SCHEDULES))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def hunts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Prey]]:
    """All hunts that were asked for, on all cores at once."""
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    params = [spec.params.get("variant") for spec in specs if spec is not None]
    wanted = [variant for variant in params if isinstance(variant, Variant)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {
            variant.name: pool.submit(hunted, variant, tmp_path_factory.mktemp("variant"))
            for variant in wanted
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_broken_variant_is_found(variant: Variant, hunts: dict[str, Prey]) -> None:
    found = hunts[variant.name].result()

    print(found)
    assert found.get("invariant") in variant.found_by.split(), found or "nothing broke"


def test_the_command_says_what_broke_how_to_see_it_again_and_how_it_came_about(
    tmp_path: Path,
) -> None:
    command = ("-m", "ringpop_sim.cli", "slotlog", "--schedules", "3")
    [variant] = [variant for variant in VARIANTS if variant.name == "claims are deleted"]

    done = run_with(variant, tmp_path / "copy", *command)

    assert done.returncode == 1
    assert "schedules, violated: neither a claim" in done.stdout
    assert "replay: bin/ringpop-sim slotlog --schedules 1 --first " in done.stderr
    assert "Checkpointed(slot=Slot(" in done.stderr
