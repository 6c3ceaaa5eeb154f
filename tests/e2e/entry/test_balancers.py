"""The examples of docs/web.md: nginx, Caddy and haproxy before the doors of two hosts."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx
import pytest
from wsproto.events import TextMessage

from tests.e2e.entry.test_streams import StreamHosts, Websocket
from tests.e2e.local_cluster import free_addresses, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringpop_py.base.address import Address

GUIDE: Final = Path(__file__).parents[3] / "docs" / "web.md"
NAME: Final = "shop.example.com"
CALLER: Final = "127.0.0.2"
"""Where callers are: another address than that of the balancer, and no trusted one for uvicorn."""
START_S: Final = 20.0


class Program(NamedTuple):
    """A balancer: the Debian package, the command, and the example as it can run here."""

    package: str
    command: tuple[str, ...]
    whole: Callable[[str, Path, Address], str]


def _nginx(block: str, folder: Path, door: Address) -> str:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    block = block.replace("listen 443 ssl", f"listen {door} ssl")
    return (
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\nevents {{}}\n"
        f"http {{ access_log off;\n{temporary}{block}}}\n"
    )


def _caddy(block: str, _: Path, door: Address) -> str:
    block = block.replace(f"{NAME} {{", f"{NAME}:{door.port} {{\n    bind {door.host}")
    return f"{{\n    admin off\n    auto_https disable_redirects\n}}\n{block}"


def _haproxy(block: str, _: Path, door: Address) -> str:
    return block.replace("bind :443", f"bind {door}")


PROGRAMS: Final = {
    "nginx": Program("nginx-light", ("nginx", "-p", "{folder}", "-c", "{file}"), _nginx),
    "caddy": Program(
        "caddy", ("caddy", "run", "--adapter", "caddyfile", "--config", "{file}"), _caddy
    ),
    "haproxy": Program("haproxy", ("haproxy", "-db", "-f", "{file}"), _haproxy),
}


class Balanced(StreamHosts):
    """Two hosts with doors, at two addresses and the same ports; a balancer is at *public*."""

    http_port: int
    public: Address
    context: ssl.SSLContext


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balanced]:
    """Two hosts, for all balancers."""
    hosts = Balanced(tmp_path_factory.mktemp("hosts"), 2, "streams")
    entry, http = free_addresses(2)
    hosts.entries = [entry._replace(host=host) for host in ("127.0.0.1", "127.0.0.3")]
    hosts.http_port = http.port
    for node, entry in zip(hosts.nodes, hosts.entries, strict=True):
        node.command += ["--http-in", str(entry), "--key", "path:/*/{key}"]
        node.command += ["--http", f"{entry.host}:{http.port}"]
    with hosts:
        hosts.wait_converged()
        hosts.start_apps()
        yield hosts
        print(hosts.logs(), hosts.app_logs())  # shown if a test fails


@pytest.fixture(scope="module", params=PROGRAMS)
def balanced(
    request: pytest.FixtureRequest, hosts: Balanced, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Balanced]:
    name: str = request.param
    program, folder = PROGRAMS[name], tmp_path_factory.mktemp(name)
    found = shutil.which(program.command[0])
    if found is None:
        pytest.skip(f"there is no {name} (apt-get install {program.package})")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={NAME}"]
    made += ["-addext", f"subjectAltName=DNS:{NAME}", "-out", f"{folder}/shop.crt"]
    subprocess.run([*made, "-keyout", f"{folder}/shop.key"], check=True, capture_output=True)
    both = (folder / "shop.crt").read_text() + (folder / "shop.key").read_text()
    (folder / "shop.pem").write_text(both)
    [hosts.public] = free_addresses(1)
    [block] = re.findall(rf"```{name}\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    for guides, entry in zip(("10.0.0.1:8080", "10.0.0.2:8080"), hosts.entries, strict=True):
        block = block.replace(guides, str(entry))
    block = block.replace("port 3001", f"port {hosts.http_port}")
    block = block.replace(f"/etc/{name}/", f"{folder}/")
    file = folder / "config"
    file.write_text(program.whole(block, folder, hosts.public))
    command = [each.format(folder=folder, file=file) for each in program.command]
    with (folder / "log").open("w") as log:
        environment = {"HOME": str(folder), "PATH": "/usr/bin:/usr/sbin"}
        process = subprocess.Popen(
            [found, *command[1:]], stdout=log, stderr=log, env=environment, cwd=folder
        )
        try:
            hosts.context = ssl.create_default_context(cafile=str(folder / "shop.crt"))
            yield hosts
        finally:
            process.terminate()
            process.wait(20)
            print((folder / "log").read_text())  # shown if a test fails


class Web(httpx.Client):
    """A caller of the public name."""

    def __init__(self, hosts: Balanced) -> None:
        super().__init__(
            base_url=f"https://{hosts.public}",
            transport=httpx.HTTPTransport(verify=hosts.context, local_address=CALLER),
            headers={"Host": NAME},
            timeout=START_S,
        )

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:  # noqa: ANN401
        request.extensions = {**request.extensions, "sni_hostname": NAME}
        return super().send(request, **options)

    def status(self, path: str) -> int:
        try:
            return self.get(path).status_code
        except httpx.TransportError:
            return 0


@pytest.fixture
def web(balanced: Balanced) -> Iterator[Web]:
    with Web(balanced) as web:
        wait_until(lambda: web.status("/who") == 200, START_S, "the balancer")
        yield web


FORGED: Final = {
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Proto": "http",
    "X-Forwarded-Host": "evil.example",
    "Forwarded": "for=203.0.113.9;host=evil.example;proto=http",
}


@pytest.mark.parametrize("forged", [{}, FORGED])
def test_the_application_sees_the_caller_and_redirects_to_the_public_name(
    balanced: Balanced, web: Web, forged: dict[str, str]
) -> None:
    for key in (*balanced.keys_of(0, 2), *balanced.keys_of(1, 2)):
        said = web.get(f"/asked/{key}", headers=forged).json()
        assert (said["client"], said["url"]) == (CALLER, f"https://{NAME}/asked/{key}")
        assert said["headers"]["forwarded"].startswith(f"for={CALLER}, for=127.0.0.1;")
        assert "evil" not in str(said)
        sent_on = web.get(f"/asked/{key}?login", headers=forged)
        assert sent_on.headers["location"] == f"https://{NAME}/who"


def test_an_event_arrives_although_no_other_one_follows(balanced: Balanced, web: Web) -> None:
    for key in (*balanced.keys_of(0, 1), *balanced.keys_of(1, 1)):
        with web.stream("GET", f"/events/{key}?alone") as answer:
            assert next(answer.iter_lines()).endswith(" 0")


@pytest.mark.usefixtures("web")
def test_a_websocket_is_opened(balanced: Balanced) -> None:
    for key in (*balanced.keys_of(0, 1), *balanced.keys_of(1, 1)):
        url = f"ws://{balanced.public}/ws/{key}"
        with closing(Websocket(url, public=(NAME, balanced.context))) as ws:
            ws.next()
            ws.message()
            ws.send(TextMessage("hello"))
            assert ws.message() == "hello"


@pytest.mark.timeout(120)
def test_a_daemon_that_is_killed_fails_no_get(balanced: Balanced, web: Web) -> None:
    [key] = balanced.keys_of(0, 1)
    statuses = [web.status(f"/asked/{key}") for _ in range(10)]
    balanced[1].kill()
    statuses += [web.status(f"/asked/{key}") for _ in range(100)]
    balanced[1].start()
    balanced.wait_converged()
    balanced.wait_applications()
    assert statuses == [200] * 110
