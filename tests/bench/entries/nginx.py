"""nginx with its consistent hashing of keys, before applications, as a process."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.bench.entries.server import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ringpop_py.base.address import Address

CONFIG = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream owners {{
    hash $uri consistent;
    {servers}
    keepalive 64;
    keepalive_requests 1000000000;
  }}
  server {{
    listen {at};
    keepalive_requests 1000000000;
    location / {{
      proxy_pass http://owners;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
}}
"""


def program() -> str | None:
    """Return where nginx is; None if it is not installed."""
    return shutil.which("nginx") or shutil.which("/usr/sbin/nginx")


@contextmanager
def nginx(folder: Path, at: Address, apps: Sequence[Address]) -> Iterator[None]:
    """Serve at *at*: requests go to *apps* by the consistent hash of their path."""
    found = program()
    assert found is not None
    file = folder / "nginx.conf"
    servers = " ".join(f"server {app};" for app in apps)
    file.write_text(CONFIG.format(folder=folder, at=at, servers=servers))
    process = subprocess.Popen([found, "-c", str(file), "-p", str(folder)])
    try:
        wait_for(at)
        yield
    finally:
        process.terminate()
        process.wait(10)
