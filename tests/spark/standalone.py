"""Spark's own cluster for tests: a master and workers as processes, from the jars of pyspark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pyspark

from ringpop_demo.cluster import free_ports

if TYPE_CHECKING:
    from types import TracebackType

HOME: Final = Path(pyspark.__file__).parent
ROOT: Final = Path(__file__).parents[2]
HOSTS: Final = ("127.0.0.1", "localhost")
"""Two names of one place: Spark repeats a slow task at another host only."""
START_S: Final = 60.0
POLL_S: Final = 0.05
ENVIRONMENT: Final = {
    **os.environ,
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    # Processes of seconds: their JVMs are spared the second compiler.
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "PYTHONPATH": os.pathsep.join(map(str, [ROOT, ROOT / "sim", ROOT / "demo"])),
}


class Standalone:
    """A master and workers of one core each, which end with the block."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._port, *self._ports = free_ports(1 + 2 * workers)
        self._count = workers
        self.workers: list[subprocess.Popen[bytes]] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start("master.Master", HOSTS[0], "--port", str(self._port))
            self._wait_for("master-0.log", "New state: ALIVE")
            for _ in range(self._count):
                self.add_worker()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._end()

    def add_worker(self) -> None:
        """Start one more, and wait until the master knows it."""
        number = len(self._processes)
        folder = self._folder / f"worker-{number}"
        options = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder)]
        host = HOSTS[number % len(HOSTS)]
        self.workers.append(self._start("worker.Worker", host, *options, self.master))
        self._wait_for(f"worker-{number}.log", "Successfully registered with master")

    def kill_worker(self) -> None:
        """Kill the first one and its executor, as if its machine were gone."""
        _kill(self.workers.pop(0))

    def submit(
        self, program: str, *arguments: str, conf: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        """Begin *program*, with a driver of its own; its output is that of `said`."""
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.master]
        for name, value in conf.items():
            command += ["--conf", f"{name}={value}"]
        return self._begin("program", [*command, program, *arguments])

    def said(self) -> str:
        """What the programs have printed."""
        logs = sorted(self._folder.glob("program-*.log"))
        return "".join(log.read_text("utf-8", "replace") for log in logs)

    def _start(self, kind: str, host: str, *options: str) -> subprocess.Popen[bytes]:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        command += ["--host", host, "--webui-port", "0", *options]
        return self._begin(kind.partition(".")[0], command)

    def _begin(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}-{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=ENVIRONMENT,
                cwd=self._folder,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _wait_for(self, log: str, text: str) -> None:
        until = time.monotonic() + START_S
        while text not in (said := (self._folder / log).read_text("utf-8", "replace")):
            assert time.monotonic() < until, f"{log} does not say {text!r}:\n{said}"
            time.sleep(POLL_S)

    def _end(self) -> None:
        for process in self._processes:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    # With its group: executors are children of their worker.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
