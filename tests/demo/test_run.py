"""The demonstration from start to end, as a process; and what it says when it cannot start."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringpop_demo.run import main

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(360)]

needs_java = pytest.mark.skipif(
    shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="Java is not installed"
)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "ringpop_demo.command", *arguments],
        env=os.environ | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that were started for the demonstration in *folder*."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended
        if str(folder) in command:
            found.append(command)
    return found


def until(text: str, lines: Iterable[str]) -> Iterator[str]:
    """*lines* up to the one with *text*; all, if there is none."""
    for line in lines:
        yield line
        if text in line:
            return


@needs_java
def test_the_demonstration_ends_well_and_leaves_nothing_behind(tmp_path: Path) -> None:
    plot = tmp_path / "plot.html"
    with start(tmp_path, "--nodes", "3", "--rows", "20000", "--plot", str(plot)) as demo:
        out, err = demo.communicate(timeout=150)

    assert demo.returncode == 0, out + err
    assert "20,000 flights, 19 columns each" in out
    # Rows that were routed, a batch, and a stream in the middle of which a node died.
    assert out.count(", different 0, at two nodes 0") == 3
    assert out.count("\nEQUAL\n") == 3
    assert "aircraft: done in " in out
    assert "traffic: done in " in out
    assert "  batches   6\n" in out
    assert out.count("(says node-") == 3
    assert "all others know it is faulty after" in out
    assert "keys of other nodes that changed owner: 0" in out
    assert f"plot: {plot}" in out
    assert re.search(r"look at them: http://127\.0\.0\.1:\d+/\n", out)
    assert "bin/demo --stay" in out
    assert "kill -9 node-" in plot.read_text("utf-8")
    assert err == ""
    assert "\x1b" not in out
    assert processes_of(tmp_path) == []
    assert list(tmp_path.glob("ringpop-demo-*")) == []


# Of each phase a line that is written while it lasts, or just before; in the last one the
# demonstration waits, so that it never ends before the signal comes.
@needs_java
@pytest.mark.parametrize(
    ("line", "signals"),
    [
        pytest.param("3 ringpopd processes", [signal.SIGTERM], id="nodes-start"),
        pytest.param("starting Spark", [signal.SIGINT], id="spark-starts"),
        pytest.param("  arrived ", [signal.SIGTERM, signal.SIGINT, signal.SIGTERM], id="job-runs"),
        pytest.param("  kill -9", [signal.SIGINT, signal.SIGINT], id="node-killed"),
    ],
)
def test_an_interrupted_demonstration_leaves_nothing_behind(
    tmp_path: Path, line: str, signals: list[signal.Signals]
) -> None:
    options = ["--nodes", "3", "--rows", "1000", "--plot", str(tmp_path / "plot.html"), "--stay"]
    with start(tmp_path, *options) as demo:
        assert demo.stdout is not None
        seen = list(until(line, demo.stdout))
        for number in signals:
            demo.send_signal(number)
        out, err = demo.communicate(timeout=120)

    everything = f"{''.join(seen)}{out}\nstandard error:\n{err}"
    assert demo.returncode == 130, everything
    assert err == "\ninterrupted; all nodes have ended\n", everything
    assert processes_of(tmp_path) == []
    assert list(tmp_path.glob("ringpop-demo-*")) == []


def test_without_java_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    assert main([]) == 2

    assert "install openjdk-17-jre-headless" in capsys.readouterr().err


def test_a_plot_that_cannot_be_written_is_told_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    assert main(["--plot", str(tmp_path)]) == 2

    assert capsys.readouterr().err == f"ringpop-demo: --plot {tmp_path}: Is a directory\n"


@pytest.mark.parametrize("arguments", [["--nodes", "1"], ["--rows", "0"], ["--bogus"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2
