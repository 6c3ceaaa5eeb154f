"""Broken variants of what a checker checks: patches, each hunted in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ringpop_py
import ringpop_sim
from tests.sim.planted.patching import planted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

PACKAGES: Final = {
    "ringpop_py": Path(ringpop_py.__file__).parent,
    "ringpop_sim": Path(ringpop_sim.__file__).parent,
}
HUNT: Final = Path(__file__).parent / "hunt.py"
SCHEDULES: Final = 3000
"""A variant that so many schedules do not find, from its first one on, is not found."""
HUNTERS: Final = 1 if "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count()
"""The hunts at a time: the other cores are at work if several tests run at a time."""
HUNT_S_MAX: Final = 120
ENVIRONMENT: Final = dict(os.environ)
"""Of now: pytest changes it while threads would read it."""

Prey = Future[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Variant:
    """A bug: in *path*, an old text that occurs once, and a new one.

    Attributes:
        found_by: the invariants of which at least one breaks.
        first: the seed at which the hunt begins. Schedules that show a rare bug are far from 0.
        scene: the directed schedule that shows it, if chance seldom does.
        run: the function of the checker's module `schedule` that runs a random schedule.
        also: more texts of the same module, and what replaces them.
    """

    name: str
    path: str
    old: str
    new: str
    found_by: str
    first: int = 0
    scene: str = ""
    run: str = "run_schedule"
    also: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def run_with(variant: Variant, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with *arguments*, where *variant* is what is imported."""
    package, path = variant.path.split("/", 1)
    copy = planted(PACKAGES[package], path, [(variant.old, variant.new), *variant.also], folder)
    paths = [str(copy), *(str(root.parent) for root in PACKAGES.values())]
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,  # where modules are looked for first
            env={
                **ENVIRONMENT,
                "PYTHONPATH": os.pathsep.join(paths),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            timeout=HUNT_S_MAX,
            check=False,
        )
    finally:
        shutil.rmtree(folder)


def _hunted(variant: Variant, checker: str, folder: Path) -> dict[str, Any]:
    random = (variant.run, str(variant.first), str(SCHEDULES))
    where = (variant.scene,) if variant.scene else random
    done = run_with(variant, folder, str(HUNT), checker, *where)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def hunting(
    checker: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Prey]]:
    """Hunt all variants that the module of *request* was asked for, several at once."""
    items = [item for item in request.session.items if item.path == request.path]
    specs = [getattr(item, "callspec", None) for item in items]
    wanted = [spec.params["variant"] for spec in specs if spec and "variant" in spec.params]
    with ThreadPoolExecutor(HUNTERS) as pool:
        yield {
            variant.name: pool.submit(_hunted, variant, checker, tmp_path_factory.mktemp("variant"))
            for variant in wanted
        }
        pool.shutdown(cancel_futures=True)
