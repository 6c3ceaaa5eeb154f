"""Hosts: a daemon and a web application on each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from tests.e2e.local_cluster import LocalCluster, free_addresses, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.base.address import Address

APPS: Final = Path(__file__).parent / "apps"
SERVERS: Final = {
    "fastapi": ("uvicorn", "with_fastapi:app", "--host", "{host}", "--port", "{port}"),
    "starlette": ("hypercorn", "with_starlette:app", "-k", "trio", "-b", "{host}:{port}"),
    "flask": ("gunicorn", "with_flask:app", "-w", "2", "--threads", "2", "-b", "{host}:{port}"),
    "django": ("gunicorn", "with_django:app", "--threads", "4", "-b", "{host}:{port}"),
    "django-asgi": ("uvicorn", "with_django:asgi", "--host", "{host}", "--port", "{port}"),
    "streams": ("uvicorn", "with_streams:app", "--host", "{host}", "--port", "{port}"),
    "differences": (
        *("uvicorn", "with_differences:behind", "--http", "h11", "--lifespan", "off"),
        *("--host", "{host}", "--port", "{port}"),
    ),
    "streams-behind": ("uvicorn", "with_streams:behind", "--host", "{host}", "--port", "{port}"),
}
FRAMEWORKS: Final = ("fastapi", "starlette", "flask", "django")
"""Each framework, as its users start it."""
PLAIN: Final = (str(APPS / "plain.py"), "{host}", "{port}")
START_S: Final = 30.0
END_S: Final = 10.0


class Hosts(LocalCluster):
    """*count* hosts, each with a daemon and an application of *kind*."""

    def __init__(self, folder: Path, count: int, kind: str, *flags: str) -> None:
        super().__init__(folder, count, *flags)
        self.apps = free_addresses(count)
        self._folder = folder
        self._kind = kind
        self._servers: list[subprocess.Popen[bytes]] = []
        for node, app in zip(self.nodes, self.apps, strict=True):
            node.command += ["--app-url", f"http://{app}"]

    def start_apps(self, *, settles: bool = True) -> None:
        """Start them, and wait until they answer; if it *settles*, until members know that."""
        for node, app in zip(self.nodes, self.apps, strict=True):
            self._servers.append(self._started(node.name, app))
        for app in self.apps:
            wait_until(lambda app=app: _answers(app), START_S, f"the application at {app}")  # type: ignore[misc]
        if settles:
            self.wait_applications()

    def end_app(self, place: int) -> None:
        """Kill the application at *place*, as a crash does."""
        self._servers[place].kill()
        self._servers[place].wait(END_S)

    def start_app(self, place: int) -> None:
        """Start the application at *place* again."""
        self._servers[place] = self._started(self[place].name, self.apps[place])

    def _started(self, daemon: str, app: Address) -> subprocess.Popen[bytes]:
        module, *arguments = SERVERS.get(self._kind, PLAIN)
        command = [sys.executable, *([module] if module.endswith(".py") else ["-m", module])]
        if self._kind == "node":
            command = ["node", str(APPS / "with_node.js")]
        command += [each.format(host=app.host, port=app.port) for each in arguments]
        paths = [str(APPS), *sys.path]
        environment = {
            **os.environ,
            "HOST_NAME": daemon,
            "DAEMON": daemon,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        with (self._folder / f"app-{app.port}.log").open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=self._folder
            )

    def close(self) -> None:
        for server in self._servers:
            server.terminate()
        for server in self._servers:
            try:
                server.wait(END_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(END_S)
        super().close()

    def keys_of(self, place: int, count: int) -> Sequence[str]:
        """Keys that the host at *place* owns."""
        name, found = self[place].name, list[str]()
        for number in range(10_000):
            if self[0].admin("/admin/lookup", {"key": f"k{number}"})["dest"] == name:
                found.append(f"k{number}")
                if len(found) == count:
                    break
        return found

    def ring_of(self, place: int) -> set[str]:
        """The members that own keys, according to the daemon at *place*."""
        owners = self[place].admin("/admin/ring")["owners"]
        return {owner["name"] for owner in owners}

    def app_logs(self) -> str:
        logs = sorted(self._folder.glob("app-*.log"))
        return "\n".join(log.read_text()[-3000:] for log in logs)


def _answers(app: Address) -> bool:
    try:
        return httpx.get(f"http://{app}/who", timeout=2).is_success
    except httpx.HTTPError:
        return False
