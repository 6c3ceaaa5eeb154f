"""Commands as a person runs them, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from ringpop_py.client.lines.trust import KEY_VARIABLE

if TYPE_CHECKING:
    from tests.e2e.local_cluster import LocalCluster


def command_of(module: str, *arguments: str) -> list[str]:
    package = "ctl" if module == "ringpopctl" else "cli"
    return [sys.executable, "-m", f"ringpop_py.edge.{package}.{module}", *arguments]


def run(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Without any key of this process's environment, unless *environment* has one."""
    others = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
    return subprocess.run(
        command_of(module, *arguments),
        env={**others, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def ctl(cluster: LocalCluster, *arguments: str, node: int = 0) -> subprocess.CompletedProcess[str]:
    return run("ringpopctl", "--peer", cluster[node].name, *arguments)


def ctl_json(cluster: LocalCluster, *arguments: str, node: int = 0) -> Any:  # noqa: ANN401 - plain
    done = ctl(cluster, *arguments, "--format", "json", node=node)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
