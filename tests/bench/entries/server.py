"""The application that is measured, as a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import httpx

if TYPE_CHECKING:
    from ringpop_py.base.address import Address

HERE: Final = Path(__file__).parent
START_S: Final = 20.0
END_S: Final = 10.0


def wait_for(address: Address) -> None:
    """Return when something answers at *address*."""
    end = time.monotonic() + START_S
    while True:
        try:
            httpx.get(f"http://{address}/", timeout=1)
        except httpx.HTTPError:
            assert time.monotonic() < end, f"no answer from {address}"
            time.sleep(0.1)
        else:
            return


class Server:
    """`app` under uvicorn at *address*, with *environment*; a context manager that ends it."""

    def __init__(self, address: Address, **environment: str) -> None:
        self.address = address
        self._command = [sys.executable, "-m", "uvicorn", "app:app", "--no-access-log"]
        self._command += ["--log-level", "warning"]
        self._command += ["--host", address.host, "--port", str(address.port)]
        paths = os.pathsep.join([str(HERE), *filter(None, sys.path)])
        self._environment = {**os.environ, **environment, "PYTHONPATH": paths}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(self._command, env=self._environment)
        wait_for(self.address)

    def end(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(END_S)
            self._process = None
