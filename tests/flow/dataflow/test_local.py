"""A dataflow in one process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import RecordRefused
from ringpop_py.dataflow import Tumbling, run_alone
from ringpop_py.streams import BadRecord, Files, Record
from tests.flow.dataflow.test_dataflow import Clicks, count

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import sys
from ringpop_py.dataflow import run_alone
from ringpop_py.streams import Files
import socket
socket.socket = None
state, _ = run_alone(Files("*.jsonl", key="user"), lambda state, rows, context: len(rows))
print(len(state), *sorted(name for name in sys.modules if name.startswith("ringpop_py")))
"""


def test_it_counts_what_there_is_and_ends_all_windows(tmp_path: Path) -> None:
    clicks = Clicks(tmp_path)
    clicks.add(5_000)

    state, sent = run_alone(clicks.source(), count)
    assert state == clicks.counts
    assert Counter(dict(sent)) == clicks.counts
    state, sent = run_alone(
        clicks.source(), Tumbling(60, lambda total, _: (total or 0) + 1), time="at"
    )
    assert state == {}
    assert {(key, row["start"]): row["value"] for key, row in sent} == clicks.windows


def test_an_unusable_record_is_handed_out_or_raised(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"user": "u"}\nrubbish\n{"user": "u"}\n')
    source = Files(f"{tmp_path}/*.jsonl", key="user")
    with pytest.raises(RecordRefused, match="at position 22: not a json value"):
        run_alone(source, count)
    refused: list[Record | BadRecord] = []
    state, _ = run_alone(source, count, refused=lambda record, _: refused.append(record))
    assert state == {"u": 2}
    assert [record.position for record in refused] == [22]


def test_it_loads_nothing_distributed_and_opens_no_socket(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"user": "u"}) + "\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    keys, *loaded = done.stdout.split()
    assert keys == "1"
    packages = {name.split(".")[1] for name in loaded if "." in name}
    far = {"transport", "swim", "node", "daemon", "keyspaces", "wire", "shares", "stores"}
    assert packages & far == set()
