"""npm's tchannel as a peer: installed once into the user's cache, driven by `rpc_npm.js`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.bench.sides import Side, output

INSTALL_S: Final = 120.0
SCRIPT: Final = Path(__file__).with_name("rpc_npm.js")
STUBS: Final = ("metrics", "farmhash", "sse4_crc32")
"""Dependencies of npm's tchannel that no longer install everywhere; without checksums (and
outside its own tests) it does not use them, so empty ones take their places."""


def npm_side(home: Path) -> Side:
    """The tchannel of npm that is installed in *home*."""
    start = ("node", str(SCRIPT))
    return Side((*start, "server"), (*start, "client"), {"TCHANNEL_HOME": str(home)})


def npm_call(
    home: Path, port: int, body: str, checksum_type: int, *service_and_key: str
) -> dict[str, object]:
    """What npm's tchannel gets for a call of ``/echo``, of the service ``bench`` by default."""
    command = ["node", str(SCRIPT), "call", f"127.0.0.1:{port}", body, str(checksum_type)]
    command += service_and_key
    answer: dict[str, object] = json.loads(output(command, {"TCHANNEL_HOME": str(home)}))
    return answer


def npm_tchannel() -> Path | None:
    """Where npm's tchannel is installed, in the user's cache; None if it cannot be."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "ringpop_py" / "npm-tchannel"
    if not (home / "node_modules" / "tchannel" / "package.json").exists():
        try:
            _install(home)
        except (OSError, subprocess.SubprocessError):
            return None
    return home


def _install(home: Path) -> None:
    for name in STUBS:
        stub = home / "stubs" / name
        stub.mkdir(parents=True, exist_ok=True)
        stub.joinpath("package.json").write_text(json.dumps({"name": name, "version": "99.0.0"}))
        stub.joinpath("index.js").write_text("module.exports = {};\n")
    package = {
        "private": True,
        "dependencies": {"tchannel": "4"},
        "overrides": {name: f"file:./stubs/{name}" for name in STUBS},
    }
    home.joinpath("package.json").write_text(json.dumps(package))
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(command, cwd=home, check=True, capture_output=True, timeout=INSTALL_S)
