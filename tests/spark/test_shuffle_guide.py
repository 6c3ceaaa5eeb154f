"""What docs/shuffle.md shows is run as it stands, but for the addresses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base import errors
from ringpop_py.base.errors import ShuffleError
from ringpop_py.flow.shuffle.client.client import ShuffleClient
from tests.e2e.shuffle.cluster import ShuffleCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parents[2] / "docs" / "shuffle.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_the_guide_runs_as_it_stands(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = PYTHON.findall(GUIDE.read_text())
    names: dict[str, Any] = {"spark": spark}

    with ShuffleCluster(tmp_path, 3) as cluster:
        cluster.wait_ready(3)
        for block in blocks:
            exec(block.replace("127.0.0.1:3000", cluster[0].name), names)  # noqa: S102 - ours
        ShuffleClient.open(cluster.addresses, "clicks").close()

    said = capsys.readouterr().out
    assert len(blocks) == 4
    assert "1,000,000 rows" in said
    assert said.splitlines()[-1] == str(
        [{"user": 1, "time": 10}, {"user": 2, "time": 20}, {"user": 3, "time": 30}]
    )


def test_the_guide_lists_all_errors_with_their_attributes() -> None:
    _, _, section = GUIDE.read_text().partition("\n## Errors\n")
    rows = [line.split(" | ")[:5] for line in section.splitlines() if line.startswith("| `")]

    there = [
        [
            f"| `{kind.__name__}`",
            f"`{kind.code}`",
            str(kind.http_status),
            kind.took_effect,
            "yes" if kind.passes else "no",
        ]
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, ShuffleError)
    ]
    assert sorted(rows) == sorted(there)
