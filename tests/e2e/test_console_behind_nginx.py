"""The console behind nginx, under a path of nginx's own: all links lead back to the node."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

import httpx
import pytest

from tests.e2e.local_cluster import LocalCluster, free_addresses, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ringpop_py.base.address import Address

NGINX: Final = shutil.which("nginx")
KINDS: Final = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(NGINX is None, reason="there is no nginx (apt-get install nginx-light)"),
]


@contextmanager
def nginx(folder: Path, door: Address, node: Address) -> Iterator[None]:
    """Run it with as little said as possible: it replaces `Host` by the address of the node."""
    assert NGINX is not None
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in KINDS)
    named = "proxy_set_header X-Forwarded-Host $http_host;"
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {temporary} server {{ listen {door};\n"
        f"location /ops/n1/ {{ proxy_pass http://{node}/; }}\n"
        f"location /named/n1/ {{ proxy_pass http://{node}/; {named} }} }} }}\n"
    )
    with (folder / "log").open("w") as log:
        command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")]
        process = subprocess.Popen(command, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)
            print((folder / "log").read_text())  # shown if a test fails


def test_the_page_its_files_its_events_and_its_acts_are_reached(tmp_path: Path) -> None:
    http, door = free_addresses(2)
    cluster = LocalCluster(tmp_path / "nodes", 1)
    cluster[0].command += ["--http", str(http)]
    (tmp_path / "nginx").mkdir()
    with (
        cluster,
        nginx(tmp_path / "nginx", door, http),
        httpx.Client(follow_redirects=True, timeout=20) as client,
    ):

        def is_ready() -> bool:
            try:
                return client.get(f"http://{door}/ops/n1/ready").is_success
            except httpx.TransportError:
                return False

        wait_until(is_ready, 30, "nginx and the node")
        page = client.get(f"http://{door}/ops/n1")
        assert str(page.url) == f"http://{door}/ops/n1/ui"
        links = re.findall(r'(?:href|src|action)="((?!data:|#).*?)"', page.text)
        assert {"ui", "ui/console.css", "ui/console.js"} < set(links)
        for link in links:
            assert client.get(urljoin(str(page.url), link)).is_success, link
        with client.stream("GET", urljoin(str(page.url), "ui/events")) as events:
            lines = events.iter_lines()
            assert "event: beat" in lines  # which nginx does not keep back

        def act(path: str, **headers: str) -> int:
            asked = {"act": "undrain"}
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            return client.post(
                f"http://{door}{path}/ui/act", json=asked, headers=headers
            ).status_code

        own, foreign = f"http://{door}", "http://elsewhere.example"
        assert act("/ops/n1", Origin=own, Sec_Fetch_Site="same-origin") == 200
        assert act("/ops/n1", Origin=own) == 403  # it could be any page
        assert act("/named/n1", Origin=own) == 200
        assert act("/named/n1", Origin=foreign) == 403
        assert act("/ops/n1", Origin=foreign, Sec_Fetch_Site="cross-site") == 403
