"""``ringpopctl shuffle``: what an operator sees and does."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.errors import ShuffleUnavailable
from ringpop_py.edge.ctl.ringpopctl import main
from ringpop_py.flow.shuffle.client.client import ShuffleClient
from ringpop_py.flow.shuffle.client.cluster import NONE_S
from tests.e2e.local_cluster import LocalCluster, free_addresses, wait_until
from tests.e2e.shuffle.cluster import until
from tests.e2e.shuffle.test_rows import ROWS, SCHEMA, put, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.shuffle.cluster import ShuffleCluster


def test_a_shuffle_is_listed_shown_ended_and_deleted(
    cluster: ShuffleCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str, code: int = 0) -> Any:  # noqa: ANN401 - a plain value
        assert main(["--peer", cluster[0].name, "--format", "json", *arguments]) == code
        said = capsys.readouterr()
        return json.loads(said.out or said.err)

    def text_of(*arguments: str) -> str:
        assert main(["--peer", cluster[1].name, *arguments]) == 0
        return capsys.readouterr().out

    addresses = set(cluster.addresses)
    assert run("shuffle", "list") == {"shuffles": []}
    assert "there is no shuffle 'mine'" in run("shuffle", "show", "mine", code=1)["error"]
    with ShuffleClient(cluster.addresses, "mine") as client:
        client.create(SCHEMA, ["key"], intervals=8)
        receipts = [put(client, rows(1)), put(client, rows(2))]
        client.attempt().put(rows(3))

    shown = run("shuffle", "show", "mine")
    assert (shown["state"], shown["attempts"]) == ("put", 3)
    assert 3 * ROWS <= shown["rows"] < 4 * ROWS  # a frame that was sent twice counts twice so far
    # A process whose label was not known at the creation joins a moment later.
    until(lambda: {n["node"] for n in run("shuffle", "show", "mine")["nodes"]} == addresses)
    assert "rows by key, version " in text_of("shuffle", "show", "mine")
    page = tmp_path / "page.html"
    refused = run("shuffle", "show", "mine", "--plot", str(page), code=2)
    assert "shows the intervals of a shuffle that has ended" in refused["error"]
    assert "pass --yes" in run("shuffle", "end", "mine", code=2)["error"]
    wrong = run("shuffle", "end", "mine", "--attempt", "99", "--yes", code=2)
    assert "attempts that are not finished: [99]; finished are: 0, 1" in wrong["error"]

    number = str(receipts[1].number)
    assert run("shuffle", "end", "mine", "--attempt", number, "--yes")["rows"] == ROWS
    assert run("shuffle", "list")["shuffles"] == [
        {"name": "mine", "state": "get", "rows": ROWS, "intervals": 8, "nodes": 3}
    ]
    text = text_of("shuffle", "show", "mine", "--plot", str(page))
    assert "8 intervals, the busiest has 1.0" in text
    assert page.read_text().count("<rect") == 8
    assert page.read_text().count("<td>3</td>") == 2
    assert run("shuffle", "delete", "mine", "--yes") == {"name": "mine", "deleted": True}
    assert "there are no shuffles" in text_of("shuffle", "list")


def test_a_node_that_is_away_or_a_cluster_without_shuffles_is_said_immediately(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [nobody] = free_addresses(1)
    assert main(["--peer", str(nobody), "shuffle", "list"]) == 4
    assert "Connection refused" in capsys.readouterr().err
    with LocalCluster(tmp_path, 1) as cluster:
        wait_until(cluster.converged, 20, "one node")
        for command in (["list"], ["show", "mine"], ["delete", "mine", "--yes"]):
            assert main(["--peer", cluster[0].name, "shuffle", *command]) == 4
            assert "start nodes with --shuffle-folder" in capsys.readouterr().err
        began = time.monotonic()
        with pytest.raises(ShuffleUnavailable, match="was started with --shuffle-folder"):
            ShuffleClient(cluster[0].name, "mine").create(SCHEMA, ["key"])
        assert NONE_S < time.monotonic() - began < NONE_S + 5, "which is far below the time-out"
