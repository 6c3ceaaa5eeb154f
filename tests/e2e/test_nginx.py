"""The example of docs/security.md: nginx before the HTTP port of a node with keys."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from tests.e2e.local_cluster import LocalCluster, free_addresses, wait_until
from tests.e2e.test_keys import ctl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.base.address import Address

NGINX: Final = shutil.which("nginx")
HOST: Final = "keyspaces.example.com"
GUIDE: Final = Path(__file__).parents[2] / "docs" / "security.md"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(NGINX is None, reason="there is no nginx (apt-get install nginx-light)"),
]


def example(folder: Path, door: Address, node: Address) -> str:
    """The example, with other ports and paths."""
    [block] = re.findall(r"```nginx\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    block = block.replace("listen 443 ssl", f"listen {door} ssl")
    block = block.replace("/etc/nginx/", f"{folder}/").replace("    server 10.0.0.2:3001;\n", "")
    block = block.replace("10.0.0.1:3001", str(node))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    return (
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\nevents {{}}\n"
        f"http {{ access_log off;\n{temporary}{block}}}\n"
    )


@contextmanager
def nginx(folder: Path, door: Address, node: Address) -> Iterator[None]:
    """Run it, with a certificate of its own."""
    assert NGINX is not None
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={HOST}"]
    made += ["-addext", f"subjectAltName=DNS:{HOST}", "-out", f"{folder}/keyspaces.crt"]
    subprocess.run([*made, "-keyout", f"{folder}/keyspaces.key"], check=True, capture_output=True)
    (folder / "nginx.conf").write_text(example(folder, door, node))
    with (folder / "log").open("w") as log:
        command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")]
        process = subprocess.Popen(command, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)
            print((folder / "log").read_text())  # shown if a test fails


def test_the_example_passes_callers_on_and_the_node_judges_them(tmp_path: Path) -> None:
    key, folder = str(tmp_path / "cluster.key"), tmp_path / "nginx"
    folder.mkdir()
    assert ctl("keygen", key).returncode == 0
    (folder / "authority.pem").write_text(ctl("keys", "authority", key).stdout)
    token = ctl("keys", "token", key, "--name", "ann", "--days", "1").stdout.strip()
    http, door = free_addresses(2)
    cluster = LocalCluster(tmp_path / "nodes", 1, "--cluster-key", key)
    cluster[0].command += ["--http", str(http), "--http-host", HOST]
    trusted = ssl.create_default_context()
    with cluster, nginx(folder, door, http):
        trusted.load_verify_locations(folder / "keyspaces.crt")
        with httpx.Client(
            base_url=f"https://{door}", verify=trusted, headers={"Host": HOST}
        ) as client:

            def status(path: str, **headers: str) -> int:
                try:
                    extensions = {"sni_hostname": HOST}
                    return client.get(path, headers=headers, extensions=extensions).status_code
                except httpx.TransportError:
                    return 0

            wait_until(lambda: status("/ready") == 200, 30, "nginx and the node")
            assert status("/health") == 401
            assert status("/health", Authorization=f"Bearer {token}") == 200
