"""The tests' own surroundings."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path


def test_a_process_of_a_test_ends_on_sigint() -> None:
    with subprocess.Popen(["sleep", "30"]) as process:
        process.send_signal(signal.SIGINT)

        assert process.wait(10) == -signal.SIGINT


def test_it_does_so_where_whoever_started_the_tests_ignores_sigint() -> None:
    inner = f"{Path(__file__).name}::{test_a_process_of_a_test_ends_on_sigint.__name__}"
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", inner]

    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *tests],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
