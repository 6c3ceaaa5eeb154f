"""Bugs to plant in what carries out a dataflow: workers, their channels, the leader, the sink."""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import bug

CHECKPOINTS: Final = "flow/dataflow/checkpoints.py"
DATAFLOW: Final = "flow/dataflow/dataflow.py"
PART: Final = "flow/dataflow/part.py"
RUN: Final = "flow/exchange/run.py"
SINKS: Final = "flow/dataflow/sinks.py"
ROTATED: Final = ("logs-rotated:0:1",)


LINE_BUGS: Final = (
    bug(
        "a worker reads on in a file whose copy another worker has read",
        RUN,
        "            self._known[former] = _Split(MARK_CLOSED, None)\n",
        "            self._known.pop(former, None)\n",
        "K14",
        *ROTATED,
    ),
    bug(
        "the elements of a former run are taken",
        DATAFLOW,
        "part.record.run == hop.run and not part.failure",
        "not part.failure",
        "K14 K15 X",
        *ROTATED,
    ),
    bug(
        "a worker goes on from a state that is ahead of the record",
        DATAFLOW,
        "if former is not None and former.clean_at == record.cut else None",
        "if former is not None else None",
        "K14",
        *ROTATED,
    ),
    bug(
        "workers deliver only the results that a worker of their number has left",
        PART,
        "mine = [each for each in record.outputs if each.number % workers == self._number]",
        "mine = []",
        "K14 K15",
        *ROTATED,
    ),
    bug(
        "an epoch ends before the results of the one before have arrived",
        PART,
        "if self._delivered == epoch - 1 else (0, None)",
        "if True else (0, None)",
        "K14 K15 X",
        "logs-rotated:0:8",
    ),
    bug(
        "results are told apart by where they are in their epoch alone",
        SINKS,
        "        first = sent.epoch * ROWS_MAX + 1\n",
        "        first = 1\n",
        "K14 K15",
        *ROTATED,
    ),
    bug(
        "objects of the newest record are tidied away",
        CHECKPOINTS,
        "        kept = [self._read(key) for key in keys if key not in old]\n",
        "        kept = [self._read(key) for key in keys[:1]]\n",
        "K14 K15 X",
        *ROTATED,
    ),
)
