"""The demonstration from start to end, as a process; and what it says when it cannot start."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringpop_py.demo.run import main

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(180)]

needs_java = pytest.mark.skipif(
    shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="Java is not installed"
)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "ringpop_py.demo.run", *arguments],
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


@needs_java
def test_the_demonstration_ends_well_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with start(tmp_path, "--nodes", "3", "--rows", "20000") as demo:
        out, err = demo.communicate(timeout=150)

    assert demo.returncode == 0, out + err
    assert "20,000 flights, 19 columns each" in out
    assert ", different 0, at two nodes 0" in out
    assert "EQUAL" in out
    assert out.count("(says node-") == 3
    assert "all others know it is faulty after" in out
    assert "keys of other nodes that changed owner: 0" in out
    assert err == ""
    assert "\x1b" not in out
    assert processes_of(tmp_path) == []
    assert list(tmp_path.glob("ringpop-demo-*")) == []


@needs_java
@pytest.mark.parametrize(
    ("how", "after_s"), [(signal.SIGINT, 2), (signal.SIGTERM, 2), (signal.SIGINT, 6)]
)
def test_an_interrupted_demonstration_leaves_nothing_behind(
    tmp_path: Path, how: signal.Signals, after_s: float
) -> None:
    with start(tmp_path, "--nodes", "3", "--rows", "1000") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "starting Spark" in line:
                break
        time.sleep(after_s)  # somewhere in the middle of it
        demo.send_signal(how)
        _, err = demo.communicate(timeout=60)

    assert demo.returncode == 130
    assert "interrupted; all nodes have ended" in err
    assert "Traceback" not in err
    assert processes_of(tmp_path) == []


def test_without_java_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    assert main([]) == 2

    assert "install openjdk-17-jre-headless" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--nodes", "1"], ["--rows", "0"], ["--bogus"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2
