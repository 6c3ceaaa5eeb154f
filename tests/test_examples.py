"""The examples are run as they stand; each checks its own outcome and tells a story."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
ENDS = {
    "carts": "were ordered, none lost, none twice",
    "ripple": "the counts are those of a run in which nobody died",
    "fixed_partitions": "none lost, none twice",
    "shop/run": "the books, the dashboard and the shelves agree with all of them",
    "training": "the losses are the same as without the kill",
    "volley": "none lost, none twice, nobody restarted",
}
TOLD = {
    "carts": [
        "the cart of user-7 is at",
        "byblos is killed, with the carts that it has",
        "corinth is paused for 4 s",
        "athens is restarted",
        "no request failed",
    ],
    "ripple": ["w2 dies", "goes on at record"],
    "fixed_partitions": [
        "athens     serves [0, 3, 6]",
        "this was a dry run",
        "partition 6: athens -> ephesus",
        "ephesus    serves [6, 7]",
    ],
    "shop/run": ["kill 3: ", "is paused for 3 s", "the clock of", "the dashboard is killed"],
    "training": ["327,346 flights are at 3 nodes", "epoch 2, batch 40: a node is killed"],
    "volley": [
        "volley-2 gained [171,256), lost nothing",
        "volley-1 has [86,171)",
        "volley-1 gained [171,256), lost [86,128)",
        "volley-0 has [0,86), volley-1 has [86,171), volley-2 has [171,256)",
    ],
}

OPTIONS = {"shop/run": ["--kills", "3", "--for", "18"]}


def test_every_example_is_tested() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py") if "__main__" in path.read_text("utf-8")}
    scripts |= {f"{path.parent.name}/run" for path in EXAMPLES.glob("*/run.py")}

    assert scripts == set(ENDS) == set(TOLD)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(ENDS))
def test_an_example_ends_as_its_story_should(name: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *OPTIONS.get(name, [])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(ENDS[name])
    assert all(line in done.stdout for line in TOLD[name])
    assert done.stderr == ""
