"""The Lease that shows who leads, against a small double of the API of Kubernetes."""

from __future__ import annotations

import json
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from ringpop_py import PRESETS, Config, open_ringpop
from ringpop_py.base.errors import ConfigError
from ringpop_py.member.discovery.lease import URL_VARIABLE, LeaseMirror, parse_lease, renewed
from ringpop_py.net.security.authority import authority_of
from ringpop_py.net.security.identity import Identity, Role
from ringpop_py.net.security.keys import new_key
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATH = "/apis/coordination.k8s.io/v1/namespaces/prod/leases"
NOON = datetime(2026, 11, 26, 12, 0, 0, 250_000, tzinfo=UTC)


class Api:
    """Leases with resource versions, as Kubernetes keeps them: a write needs the present one."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.tokens: list[str | None] = []
        self.refuses = 0
        self.conflicts = 0
        self.version = 100
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*api.get(self.path, self.headers.get("authorization")))

            def do_POST(self) -> None:
                self._answer(*api.create(self.path, self._body()))

            def do_PUT(self) -> None:
                self._answer(*api.replace(self.path, self._body()))

            def _body(self) -> dict[str, Any]:
                body: dict[str, Any] = json.loads(
                    self.rfile.read(int(self.headers["content-length"]))
                )
                return body

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def serve_tls(self, folder: Path) -> bytes:
        """Speak TLS from now on; return the certificate of the authority that vouches for it."""
        authority = authority_of(new_key())
        identity = Identity("any", Role.MEMBER, "api")
        issued = authority.issue(identity, timedelta(days=1), ["127.0.0.1"])
        bundle = folder / "bundle.pem"
        bundle.write_bytes(issued.certificate + issued.private_key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(bundle)
        # The handshake belongs to the thread of the connection: the others are served meanwhile.
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = self.url.replace("http:", "https:")
        return authority.certificate

    def get(self, path: str, token: str | None) -> tuple[int, dict[str, Any]]:
        self.tokens.append(token)
        if self.refuses:
            return self.refuses, {"message": "no"}
        found = self.leases.get(path)
        return (404, {}) if found is None else (200, found)

    def create(self, path: str, lease: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        path = f"{path}/{lease['metadata']['name']}"
        return (409, {}) if path in self.leases else self._keep(path, lease, 201)

    def replace(self, path: str, lease: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        there = self.leases[path]["metadata"]["resourceVersion"]
        if lease["metadata"].get("resourceVersion") != there:
            self.conflicts += 1
            return 409, {}
        return self._keep(path, lease, 200)

    def _keep(self, path: str, lease: dict[str, Any], status: int) -> tuple[int, dict[str, Any]]:
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.leases[path] = lease
        return status, lease

    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.leases[f"{PATH}/words"]["spec"]
        return found


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    thread = threading.Thread(target=api.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield api
    api.server.shutdown()
    thread.join()
    api.server.server_close()


def a_mirror(api: Api, me: str, folder: Path, leader: str = "a") -> LeaseMirror:
    return LeaseMirror(
        "prod/words", me, lambda: leader, environment={URL_VARIABLE: api.url}, account=folder
    )


async def test_a_lease_is_made_renewed_and_taken_over(api: Api, tmp_path: Path) -> None:
    async with httpx.AsyncClient(base_url=api.url, trust_env=False) as client:
        assert await a_mirror(api, "a", tmp_path).renew(client) == ""
        first = dict(api.spec())
        assert (first["holderIdentity"], first["leaseTransitions"]) == ("a", 0)
        (tmp_path / "token").write_text("secret\n")
        await a_mirror(api, "a", tmp_path).renew(client)
        again = dict(api.spec())
        assert again["acquireTime"] == first["acquireTime"]
        assert again["renewTime"] > first["renewTime"]
        await a_mirror(api, "b", tmp_path).renew(client)
        assert (api.spec()["holderIdentity"], api.spec()["leaseTransitions"]) == ("b", 1)
    assert api.tokens == [None, "Bearer secret", "Bearer secret"]


async def test_of_two_writers_at_once_one_is_refused_and_nothing_is_lost(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with httpx.AsyncClient(base_url=api.url, trust_env=False) as client:
        await a_mirror(api, "a", tmp_path).renew(client)
        seen = json.loads(json.dumps(api.leases[f"{PATH}/words"]))
        api.version += 1
        api.leases[f"{PATH}/words"]["metadata"]["resourceVersion"] = str(api.version)

        monkeypatch.setattr(api, "get", lambda *_: (200, seen))
        assert await a_mirror(api, "b", tmp_path).renew(client) == ""
    assert api.conflicts == 1
    assert api.spec()["holderIdentity"] == "a"


async def test_a_refusal_of_kubernetes_is_reported(api: Api, tmp_path: Path) -> None:
    api.refuses = 403
    async with httpx.AsyncClient(base_url=api.url, trust_env=False) as client:
        assert "403" in await a_mirror(api, "a", tmp_path).renew(client)


async def test_the_leader_alone_writes(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringpop_py.member.discovery.lease.RENEW_S", 0.02)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(a_mirror(api, "b", tmp_path).run)
        await trio.sleep(0.2)
        assert api.leases == {}
        nursery.start_soon(a_mirror(api, "a", tmp_path).run)
        with trio.fail_after(20):
            while not api.leases:
                await trio.sleep(0.02)
        nursery.cancel_scope.cancel()
    assert api.spec()["holderIdentity"] == "a"


@pytest.mark.parametrize("trusted", ["its own", "another's", "none"])
async def test_the_api_is_told_nothing_unless_its_certificate_can_be_checked(
    api: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trusted: str,
) -> None:
    """Any process that answers in the API's place would get the token of the pod."""
    monkeypatch.setattr("ringpop_py.member.discovery.lease.RENEW_S", 0.02)
    monkeypatch.setattr(api.server, "handle_error", lambda *_: None)  # handshakes that fail
    authority = api.serve_tls(tmp_path)
    (tmp_path / "token").write_text("secret")
    if trusted != "none":
        mine = authority if trusted == "its own" else authority_of(new_key()).certificate
        (tmp_path / "ca.crt").write_bytes(mine)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(a_mirror(api, "a", tmp_path).run)
        with trio.fail_after(20):
            while not (api.leases or events_in(caplog, "lease-not-mirrored")):
                await trio.sleep(0.02)
        nursery.cancel_scope.cancel()

    if trusted == "its own":
        assert api.spec()["holderIdentity"] == "a"
        return
    assert api.tokens == []
    (told,) = events_in(caplog, "lease-not-mirrored")
    assert "CERTIFICATE_VERIFY_FAILED" in str(told.fields["text"])


async def test_a_node_mirrors_the_owner_of_the_key(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, api.url)
    config = Config(name="alone", lease="prod/words", gossip=PRESETS["local"])
    async with open_ringpop(config):
        with trio.fail_after(20):
            while not api.leases:
                await trio.sleep(0.02)
    assert api.spec()["holderIdentity"] == "alone"


async def test_without_an_api_the_node_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="this is not a pod"):
        async with open_ringpop(Config(name="alone", lease="prod/words")):
            pass


def test_the_api_of_a_pod_is_found() -> None:
    for host, url in (("10.0.0.1", "https://10.0.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")):
        environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "6443"}
        mirror = LeaseMirror("prod/words", "a", lambda: "a", environment=environment)
        assert mirror._url == url


@pytest.mark.parametrize("text", ["", "words", "prod/", "/words", "Prod/words", "a/b/c", "a/-b"])
def test_a_malformed_name_of_a_lease_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="NAMESPACE/NAME"):
        parse_lease(text)


def test_fields_that_others_have_written_into_a_lease_stay() -> None:
    spec = renewed({"holderIdentity": "a", "strategy": "x", "leaseTransitions": 4}, "a", NOON)
    assert spec == {
        "holderIdentity": "a",
        "strategy": "x",
        "leaseTransitions": 4,
        "leaseDurationSeconds": 15,
        "renewTime": "2026-11-26T12:00:00.250000Z",
    }
