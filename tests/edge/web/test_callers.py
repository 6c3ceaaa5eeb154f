"""HTTP of a cluster with keys: which callers get an answer, and what they may do."""

from __future__ import annotations

import base64
import datetime as dt
import socket
import ssl
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import httpx
import jwt
import pytest
import trio
from starlette.requests import Request

from ringpop_py import Address, Config, ConfigError, open_ringpop
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.edge.web import server
from ringpop_py.edge.web.callers import SHOWN, Callers, Shown
from ringpop_py.edge.web.overview import Overview
from ringpop_py.edge.web.refusals import HttpRefusal
from ringpop_py.edge.web.routes import HttpRoutes
from ringpop_py.edge.web.shuffles import ShuffleRoutes
from ringpop_py.net.security.authority import authority_of
from ringpop_py.net.security.clock import wall_s
from ringpop_py.net.security.credentials import member_credentials
from ringpop_py.net.security.identity import Identity, Role
from ringpop_py.net.security.keys import new_key, write_keys
from ringpop_py.net.security.permits import NEWCOMERS_MAX
from ringpop_py.net.security.proof import Proof
from ringpop_py.net.security.revocations import NOTHING, holders_of, revoking
from ringpop_py.net.security.tokens import (
    AUDIENCE,
    TokenRefused,
    _secret_of,
    identity_in_token,
    issue_token,
    token_in,
)
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.stores.memory import MemoryStore
from tests.logged import events_in
from tests.net.security.sites import Site, a_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ringpop_py.node.ringpop import Ringpop

KEY, NEXT, OTHER = new_key(), new_key(), new_key()
HOUR = dt.timedelta(hours=1)
ANY_PORT = Address("127.0.0.1", 0)


def token(role: Role = Role.CLIENT, cluster: str = "", key: Any = KEY) -> str:  # noqa: ANN401
    return issue_token(key, Identity(cluster, role, "ann"), HOUR)


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@asynccontextmanager
async def serving(folder: Path, *keys: Any, **settings: Any) -> AsyncIterator[Ringpop]:  # noqa: ANN401
    path = folder / "cluster.key"
    write_keys(path, keys or (KEY, NEXT), replace=True)
    config = Config(http=ANY_PORT, cluster="c", cluster_key=str(path), **settings)
    async with open_ringpop(config, store=MemoryStore()) as node:
        await node.open_keyspace("k", partitions=4)
        yield node


def trusting(*own: bytes) -> ssl.SSLContext:
    """What a caller trusts; *own* is what it shows of itself."""
    context = ssl.create_default_context(cadata=authority_of(KEY).certificate.decode())
    for file in own:
        context.load_cert_chain(file.decode())
    return context


def certificate_of(folder: Path, holder: Identity, key: Any = KEY) -> str:  # noqa: ANN401
    """A file with a certificate of *holder* and its private key."""
    issued = authority_of(key).issue(holder, HOUR)
    own = folder / "own.pem"
    own.write_bytes(issued.certificate + issued.private_key)
    return str(own)


def caller(node: Ringpop, scheme: str = "http", **options: Any) -> httpx.AsyncClient:  # noqa: ANN401
    assert node.http_address is not None
    return httpx.AsyncClient(base_url=f"{scheme}://{node.http_address}", **options)


async def test_an_anonymous_caller_learns_how_the_node_is_and_no_more(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as node, caller(node) as http:
        assert (await http.get("/alive")).status_code == 200
        assert (await http.get("/ready")).status_code == 200
        for path in ("/health", "/streams", "/keyspaces", "/keyspaces/k/keys/x", "/shuffles"):
            refused = await http.get(path)
            assert (refused.status_code, refused.json()["error"]) == (401, "Unauthorized")
        assert refused.headers["www-authenticate"] == 'Basic realm="ringpop_py", Bearer'
        assert (await http.put("/keyspaces/k/keys/x", json=1)).status_code == 401


OWN = "/keyspaces/~shuffles"
DOORS: Any = (
    ("GET", OWN, {}),
    ("PUT", OWN, {"json": {"partitions": 1}}),
    ("GET", f"{OWN}/owners", {}),
    ("GET", f"{OWN}/keys", {}),
    ("GET", f"{OWN}/changes", {"params": {"after": "no position"}}),  # others have no end
    ("POST", f"{OWN}/get-many", {"json": {"keys": ["x"]}}),
    ("POST", f"{OWN}/update-many", {"json": {"changes": [{"key": "x", "operation": "put"}]}}),
    ("PUT", f"{OWN}/keys/x", {"json": 1}),
    ("PUT", f"{OWN}/keys/x", {"json": 2, "headers": {"if-none-match": "*"}}),
    ("GET", f"{OWN}/keys/x", {}),
    ("DELETE", f"{OWN}/keys/x", {}),
    ("POST", f"{OWN}/keys/x/add", {"json": 1}),
    ("DELETE", OWN, {"params": {"confirm": "~shuffles"}}),
)
"""Each door over HTTP to the rows of a keyspace, and to the keyspace itself; the last drops it."""


async def test_each_door_to_a_keyspace_is_tried(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        routes = HttpRoutes(node, Overview(node)).all(lambda endpoint: endpoint)
    served = {
        (method, route.path)
        for route in routes
        if route.path.startswith("/keyspaces/")
        for method in (route.methods or set()) - {"HEAD"}
    }
    named = [(method, path.replace("~shuffles", "{keyspace}")) for method, path, _ in DOORS]
    tried = {
        (method, path.replace("x/add", "x/{operation}").replace("keys/x", "keys/{key}"))
        for method, path in named
    }
    assert tried == served


@pytest.mark.parametrize("role", [Role.CLIENT, Role.ADMIN])
async def test_keyspaces_of_the_cluster_are_for_admins(tmp_path: Path, role: Role) -> None:
    async with serving(tmp_path) as node, caller(node) as http:
        own = Definition(name="~shuffles", partitions=1)
        keyspace = await node.keyspaces.open(own, is_own=True)
        statuses = {}
        for method, path, how in DOORS:
            headers = {**how.get("headers", {}), **bearer(token(role))}
            answer = await http.request(method, path, **{**how, "headers": headers})
            kind = answer.json()["error"] if answer.status_code >= 400 else ""
            statuses[method, path, kind] = answer.status_code
        left = await keyspace.get("x") if role is Role.CLIENT else None

    refused = {door for door, status in statuses.items() if status == 403}
    forbidden = {door for door in refused if door[2] in {"KeyspaceForbidden", "Forbidden"}}
    assert forbidden == refused
    assert len(refused) == (len({each[:2] for each in DOORS}) if role is Role.CLIENT else 0)
    assert left is None


LOOKS = {
    *("/alive", "/ready", "/health", "/metrics", "/streams", "/keyspaces"),
    *("/", "/ui", "/ui/state", "/ui/events", "/ui/lookup", "/ui/found", "/ui/member"),
    *("/ui/console.css", "/ui/console.js", "/ui/pictures.css", "/ui/pictures.js"),
    *("/keyspaces/{keyspace}", "/keyspaces/{keyspace}/owners", "/keyspaces/{keyspace}/keys"),
    "/keyspaces/{keyspace}/changes",
    *("/keyspaces/{keyspace}/keys/{key}", "/shuffles", "/shuffles/{shuffle}"),
}
"""The paths that a reader may GET."""
ENDLESS = {("GET", "/ui/events"), ("GET", "/keyspaces/{keyspace}/changes")}
FOR_READERS = {("GET", path) for path in LOOKS} | {("POST", "/keyspaces/{keyspace}/get-many")}
NOT_FOR_READERS = {
    ("PUT", "/keyspaces/{keyspace}"),
    ("DELETE", "/keyspaces/{keyspace}"),
    ("POST", "/keyspaces/{keyspace}/update-many"),
    ("PUT", "/keyspaces/{keyspace}/keys/{key}"),
    ("DELETE", "/keyspaces/{keyspace}/keys/{key}"),
    ("POST", "/keyspaces/{keyspace}/keys/{key}/{operation}"),
    ("PUT", "/shuffles/{shuffle}"),
    ("DELETE", "/shuffles/{shuffle}"),
    ("POST", "/shuffles/{shuffle}/attempts"),
    ("PUT", "/shuffles/{shuffle}/attempts/{attempt}/{frame}"),
    ("POST", "/shuffles/{shuffle}/attempts/{attempt}/finish"),
    ("POST", "/shuffles/{shuffle}/end"),
    ("GET", "/shuffles/{shuffle}/intervals/{interval}"),
    ("POST", "/ui/act"),
}


async def test_a_reader_looks_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each route stands in one of the two lists above: of a new one, say whether readers may."""
    refused: set[tuple[str, str]] = set()
    admitted: set[tuple[str, str]] = set()
    rita = Identity("c", Role.READER, "rita")
    monkeypatch.setattr(ShuffleRoutes, "_run", AsyncMock(return_value=[]))
    async with serving(tmp_path) as node, caller(node) as http:
        http.headers.update(bearer(issue_token(KEY, rita, HOUR)))
        await (await node.keyspaces.get("k")).put("x", 1)
        routes = HttpRoutes(node, Overview(node)).all(lambda endpoint: endpoint)
        served = {
            (method, route.path)
            for route in routes
            for method in (route.methods or set()) - {"HEAD"}
        }
        for method, path in served - ENDLESS:
            url = path.format_map(defaultdict(lambda: "x", keyspace="k", operation="add"))
            answer = await http.request(method, url)
            forbidden = answer.status_code == 403 and "not ringpop://c/reader/rita" in answer.text
            (refused if forbidden else admitted).add((method, path))
        events = await http.head("/ui/events")
        changes = await http.head("/keyspaces/k/changes")
        got = await http.post("/keyspaces/k/get-many", json={"keys": ["x"]})
        left = await (await node.keyspaces.get("k")).get("x")

    assert served == FOR_READERS | NOT_FOR_READERS
    assert refused == NOT_FOR_READERS
    assert admitted == FOR_READERS - ENDLESS
    assert events.is_success
    assert changes.is_success
    assert got.json()["values"] == {"x": 1} == {"x": left}


async def test_who_has_some_keyspaces_is_refused_others_at_each_door(tmp_path: Path) -> None:
    kinds = {}
    some = Identity("c", Role.CLIENT, "ann", ("orders", "carts/*"))
    async with serving(tmp_path) as node, caller(node) as http:
        http.headers.update(bearer(issue_token(KEY, some, HOUR)))
        for name in ("orders", "carts%2F1"):
            made = await http.put(f"/keyspaces/{name}", json={"partitions": 1})
            assert made.status_code == 201
            assert (await http.put(f"/keyspaces/{name}/keys/x", json=1)).is_success
        for method, path, how in DOORS:
            answer = await http.request(method, path.replace("~shuffles", "k"), **how)
            kinds[method, path] = answer.json()["error"], answer.status_code
    last = kinds.pop(("DELETE", OWN))
    assert last[1] == 400  # its confirmation names another keyspace; only admins drop one
    assert set(kinds.values()) == {("KeyspaceForbidden", 403)}


async def test_a_caller_that_has_had_what_it_may_gets_429(tmp_path: Path) -> None:
    limits = WireLimits(client_bytes_max=100)
    async with serving(tmp_path, wire=limits) as node, caller(node) as http:
        statuses = []
        http.headers.update(bearer(token()))
        for body in ("x" * 150, "x" * 150, "x"):
            answer = await http.put("/keyspaces/k/keys/x", json=body)
            statuses.append(answer.status_code)
        asked = await http.get("/alive")
        admins = await http.get("/keyspaces", headers=bearer(token(Role.ADMIN)))
        text = node.channel.handlers.refused

    assert statuses == [204, 204, 429]
    assert answer.json()["error"] == "Busy"
    assert "100 bytes a second" in answer.json()["message"]
    assert answer.headers["retry-after"] == "1"
    assert asked.is_success
    assert admins.is_success
    assert text == {"limit": 1}


async def test_a_token_is_a_bearer_or_a_password(tmp_path: Path) -> None:
    async with serving(tmp_path) as node, caller(node) as http:
        assert (await http.put("/keyspaces/k/keys/x", json=1, headers=bearer(token()))).is_success
        got = await http.get("/keyspaces/k/keys/x", auth=("anybody", token(cluster="c")))
        assert got.json() == 1
        by_next = await http.get("/keyspaces", headers=bearer(token(key=NEXT)))
        assert by_next.is_success  # it is trusted, though another one is used


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (f"Bearer {token(key=OTHER)}", "not signed by a key that is trusted"),
        (f"Bearer {token(cluster='d')}", "of another cluster"),
        (f"Bearer {token(Role.SHUFFLES, 'c')}", "of a role that is not for HTTP"),
        (f"Bearer {issue_token(KEY, Identity('', Role.CLIENT, 'ann'), -HOUR)}", "has expired"),
        (f"Bearer {token()[:-3]}abc", "not a token of the cluster"),
        (f"Bearer {'x' * 5_000}", "too long"),
        ("Bearer x", "not a token of the cluster"),
        ("Basic %%%", "not a user and a password"),
        ("Digest x", "say who you are"),
    ],
    # Tokens are made anew in each process, and several run these tests.
    ids=("key", "cluster", "role", "time", "signature", "length", "form", "password", "scheme"),
)
async def test_no_other_token_will_do(tmp_path: Path, header: str, why: str) -> None:
    async with serving(tmp_path) as node, caller(node) as http:
        refused = await http.get("/keyspaces", headers={"Authorization": header})
        assert refused.status_code == 401
        assert why in refused.json()["message"]


@pytest.mark.filterwarnings("ignore:The HMAC key")  # it is short for HS512
@pytest.mark.parametrize("algorithm", ["none", "HS512"])
def test_a_token_is_signed_by_the_one_algorithm(algorithm: str) -> None:
    claims = jwt.decode(token(), options={"verify_signature": False})
    secret = "" if algorithm == "none" else _secret_of(KEY)
    forged = jwt.encode(claims, secret, algorithm, {"kid": KEY.id})
    with pytest.raises(TokenRefused):
        identity_in_token(forged, [KEY])


def test_a_token_that_never_ends_is_none() -> None:
    claims = {"sub": "ringpop:///admin/x", "aud": AUDIENCE, "exp": 1 << 33}
    for left_out in ("", "sub", "exp", "aud"):
        given = {name: value for name, value in claims.items() if name != left_out}
        made = jwt.encode(given, _secret_of(KEY), "HS256", {"kid": KEY.id})
        if not left_out:
            assert identity_in_token(made, [KEY]).role is Role.ADMIN
            continue
        with pytest.raises(TokenRefused):
            identity_in_token(made, [KEY])


async def test_dropping_is_for_admins_and_the_log_says_who_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ringpop")
    async with serving(tmp_path) as node, caller(node) as http:
        path = "/keyspaces/k?confirm=k"
        refused = await http.delete(path, headers=bearer(token()))
        assert (refused.status_code, refused.json()["error"]) == (403, "Forbidden")
        assert (await http.delete(path, headers=bearer(token(Role.ADMIN)))).is_success
    told = [event.fields for event in events_in(caplog, "change-asked")]
    assert [fields["identity"] for fields in told] == ["ringpop:///admin/ann"]


async def test_the_port_speaks_tls_to_whom_begins_so(tmp_path: Path) -> None:
    async with serving(tmp_path, http_hosts=("node.example",)) as node:
        async with caller(node, "https", verify=trusting()) as http:
            assert (await http.get("/keyspaces", headers=bearer(token()))).is_success
            assert (await http.get("/keyspaces")).status_code == 401
        with pytest.raises(httpx.ConnectError):
            async with caller(node, "https") as http:  # trusts another authority
                await http.get("/alive")
        # The certificate names the host that was given.
        assert node.http_address is not None
        stream = await trio.open_tcp_stream(*node.http_address)
        secured = trio.SSLStream(stream, trusting(), server_hostname="node.example")
        await secured.do_handshake()
        await trio.aclose_forcefully(secured)


@pytest.mark.parametrize(
    ("role", "cluster", "status"),
    [(Role.CLIENT, "", 403), (Role.ADMIN, "c", 200), (Role.MEMBER, "c", 200)],
)
async def test_a_certificate_does_as_well(
    tmp_path: Path, role: Role, cluster: str, status: int
) -> None:
    own = certificate_of(tmp_path, Identity(cluster, role, "bob"))
    context = trusting(own.encode())
    async with serving(tmp_path) as node, caller(node, "https", verify=context) as http:
        assert (await http.get("/keyspaces")).is_success
        assert (await http.delete("/keyspaces/k?confirm=k")).status_code == status


async def test_a_node_with_a_certificate_in_place_of_a_key_takes_certificates(
    tmp_path: Path,
) -> None:
    authority = authority_of(KEY)
    member = authority.issue(Identity("c", Role.MEMBER, "n"), HOUR, ["127.0.0.1"])
    file = tmp_path / "member.pem"
    file.touch(0o600)
    file.write_bytes(member.certificate + member.private_key + authority.certificate)
    config = Config(http=ANY_PORT, cluster="c", name="n", cluster_key=str(file))
    async with open_ringpop(config) as node:
        async with caller(node, "https", verify=trusting(str(file).encode())) as http:
            assert (await http.get("/keyspaces")).is_success
        async with caller(node) as http:
            refused = await http.get("/keyspaces", headers=bearer(token()))
            assert "accepts no tokens" in refused.json()["message"]


async def test_while_keys_are_rolled_out_nobody_has_to_say_who_they_are(tmp_path: Path) -> None:
    async with serving(tmp_path, accept_plain=True) as node, caller(node) as http:
        assert (await http.get("/keyspaces")).is_success
        assert (await http.delete("/keyspaces/k?confirm=k")).is_success


async def test_connections_that_say_nothing_or_break_off_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._Config, "keep_alive_timeout", 0.3)
    async with serving(tmp_path) as node:
        assert node.http_address is not None
        for said in (b"", b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x00" * 100):
            with socket.create_connection(node.http_address) as sock:
                sock.sendall(said)
        for said in (b"", b"\x16"):  # and these stay open, until the node closes them
            stream = await trio.open_tcp_stream(*node.http_address)
            await stream.send_all(said)
            with trio.fail_after(5):
                assert await stream.receive_some() == b""
            await stream.aclose()
        async with caller(node) as http:
            assert (await http.get("/alive")).is_success


async def test_handshakes_of_strangers_are_limited_over_http_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "is_this_machine", lambda _host: False)
    async with serving(tmp_path) as node, AsyncExitStack() as streams:
        assert node.http_address is not None
        links = node.channel.links
        for number in range(NEWCOMERS_MAX // 2 + 1):
            stream = await trio.open_tcp_stream(*node.http_address)
            await streams.enter_async_context(stream)
            await stream.send_all(b"\x16")
            with trio.fail_after(5):
                while len(links.newcomers) + links.refused_count <= number:
                    await trio.sleep(0.01)
        with pytest.raises(trio.BrokenResourceError):  # a host leaves as many places as it takes
            await stream.receive_some()
        assert (len(links.newcomers), links.refused_count) == (NEWCOMERS_MAX // 2, 1)
    assert not links.newcomers


async def test_a_path_in_host_opens_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as node, caller(node) as http:
        for host in ("x/alive?", "x/alive#", "127.0.0.1/ready?"):
            refused = await http.get("/keyspaces", headers={"Host": host})
            assert refused.status_code in (401, 421)


async def test_a_node_that_admits_all_over_http_has_to_say_so(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    write_keys(path, (KEY,), replace=False)
    config = Config(http=Address("0.0.0.0", 0), cluster_key=str(path), accept_plain=True)  # noqa: S104
    with pytest.raises(ConfigError, match="--insecure"):
        async with open_ringpop(config):
            pass


def test_a_user_has_any_name() -> None:
    for user in ("anybody", "jörg", ""):
        pair = base64.b64encode(f"{user}:{token()}".encode()).decode()
        assert token_in(f"Basic  {pair}") == token()


async def test_without_keys_nobody_is_asked() -> None:
    async with open_ringpop(Config(http=ANY_PORT)) as node, caller(node) as http:
        basic = base64.b64encode(b"a:b").decode()
        for headers in ({}, bearer("x"), {"Authorization": f"Basic {basic}"}):
            assert (await http.get("/keyspaces", headers=headers)).is_success


def test_where_others_may_reach_the_port_nobody_is_served_without_tls(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    write_keys(path, (KEY,), replace=False)
    credentials = member_credentials(str(path), "c", "n")
    headers = [(b"authorization", f"Bearer {token()}".encode())]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": headers})
    far = Callers(credentials, "c", plain=False, anybody=False)
    near = Callers(credentials, "c", plain=True, anybody=False)

    SHOWN.set(Shown(is_secure=False))
    assert near.identify(request) == Identity("", Role.CLIENT, "ann")
    with pytest.raises(HttpRefusal) as refusal:
        far.identify(request)
    assert (refusal.value.status, refusal.value.kind) == (403, "TlsNeeded")
    SHOWN.set(Shown(is_secure=True))
    assert far.identify(request) == Identity("", Role.CLIENT, "ann")


@pytest.mark.parametrize("role", [Role.CLIENT, Role.ADMIN])
@pytest.mark.parametrize("door", ["token", "certificate", "old token"])
async def test_a_revoked_caller_is_refused_and_an_open_page_of_theirs_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role, door: str
) -> None:
    monkeypatch.setattr("ringpop_py.net.security.credentials.LOOK_S", 0.0)
    monkeypatch.setattr("ringpop_py.edge.web.overview.PERIOD_S", 0.01)
    ann = Identity("c", role, "ann")
    own = certificate_of(tmp_path, ann)
    context = trusting(*[own.encode()] if door == "certificate" else ())
    shown = {"certificate": {}, "token": bearer(token(role)), "old token": bearer(untimed(ann))}
    revoked = revoking(NOTHING, holders_of("ann", None), wall_s())
    async with serving(tmp_path) as node, caller(node, "https", verify=context) as http:
        http.headers.update(shown[door])
        changes = http.stream("GET", "/keyspaces/k/changes")
        async with http.stream("GET", "/ui/events") as page, changes as stream:
            assert page.is_success
            assert stream.is_success
            write_keys(tmp_path / "cluster.key", (KEY,), replace=True, revoked=revoked)
            with trio.fail_after(20):
                await page.aread()
                await stream.aread()
        refused = await http.get("/keyspaces")
        assert refused.status_code == 401
        assert "is revoked" in refused.json()["message"]
        new = issue_token(KEY, ann, HOUR, revoked)
        assert (await http.get("/keyspaces", headers=bearer(new))).is_success


def untimed(identity: Identity) -> str:
    """Return a token that does not say when it was issued."""
    claims = {"sub": str(identity), "aud": AUDIENCE, "exp": 1 << 33}
    return jwt.encode(claims, _secret_of(KEY), "HS256", {"kid": KEY.id})


def test_a_connection_proves_nothing_when_its_certificate_has_ended() -> None:
    callers: Any = Callers(object(), "c", plain=False, anybody=False)  # type: ignore[arg-type]
    request: Any = SimpleNamespace(headers={})
    bob = Identity("c", Role.ADMIN, "bob")
    SHOWN.set(Shown(is_secure=True, proof=Proof(bob, wall_s() + 60)))
    assert callers.identify(request) == bob
    SHOWN.set(Shown(is_secure=True, proof=Proof(bob, wall_s() - 1)))
    with pytest.raises(HttpRefusal, match="has expired"):
        callers.identify(request)


# With a certificate of another authority.


def knowing(site: Site, *own: str) -> ssl.SSLContext:
    """What a caller that knows only *site* trusts; *own* is what it shows of itself."""
    context = ssl.create_default_context(cadata=site.certificate.decode())
    for file in own:
        context.load_cert_chain(file)
    return context


async def test_callers_that_do_not_know_the_cluster_are_asked_who_they_are(tmp_path: Path) -> None:
    site = a_site()
    certificate, private_key = site.write(tmp_path)
    own = certificate_of(tmp_path, Identity("c", Role.CLIENT, "bob"))
    async with serving(tmp_path, http_cert=certificate, http_key=private_key) as node:
        async with caller(node, "https", verify=knowing(site)) as http:
            assert (await http.get("/alive")).is_success
            assert (await http.get("/keyspaces")).status_code == 401
            assert (await http.get("/keyspaces", headers=bearer(token()))).is_success
        async with caller(node, "https", verify=knowing(site, own)) as http:
            assert (await http.get("/keyspaces")).is_success
            assert (await http.delete("/keyspaces/k?confirm=k")).status_code == 403
        for other in (Identity("d", Role.CLIENT, "bob"), Identity("c", Role.SHUFFLES, "bob")):
            own = certificate_of(tmp_path, other)
            async with caller(node, "https", verify=knowing(site, own)) as http:
                with pytest.raises(httpx.TransportError):
                    await http.get("/alive")


async def test_a_certificate_of_the_same_authority_as_the_nodes_is_no_identity(
    tmp_path: Path,
) -> None:
    site = a_site()  # signed by itself: so it is an authority as well
    certificate, private_key = site.write(tmp_path)
    async with (
        serving(tmp_path, http_cert=certificate, http_key=private_key) as node,
        caller(node, "https", verify=knowing(site, str(both(tmp_path, site)))) as http,
    ):
        with pytest.raises(httpx.TransportError):
            await http.get("/keyspaces")


def both(folder: Path, site: Site) -> Path:
    """A file with the certificate of *site* and its private key."""
    file = folder / "both.pem"
    file.write_bytes(site.certificate + site.private_key)
    return file


async def test_another_certificate_is_shown_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringpop_py.net.security.site.LOOK_S", 0.0)
    first, second = a_site(), a_site()
    certificate, private_key = first.write(tmp_path)
    async with serving(tmp_path, http_cert=certificate, http_key=private_key) as node:
        async with caller(node, "https", verify=knowing(first)) as http:
            assert (await http.get("/alive")).is_success
            second.write(tmp_path)
            async with caller(node, "https", verify=knowing(second)) as another:
                assert (await another.get("/alive")).is_success
            assert (await http.get("/alive")).is_success  # over the connection that it has
        write_keys(tmp_path / "cluster.key", (NEXT, KEY), replace=True)
        assert node.credentials is not None
        node.credentials.read_again()
        own = certificate_of(tmp_path, Identity("c", Role.CLIENT, "bob"), NEXT)
        async with caller(node, "https", verify=knowing(second, own)) as http:
            assert (await http.get("/keyspaces")).is_success


@pytest.mark.parametrize("has_key", [True, False])
async def test_a_certificate_does_not_say_who_calls(tmp_path: Path, *, has_key: bool) -> None:
    site = a_site()
    certificate, private_key = site.write(tmp_path)
    key = tmp_path / "cluster.key"
    write_keys(key, (KEY,), replace=False)
    config = Config(
        http=Address("0.0.0.0", 0),  # noqa: S104 - where other machines reach it
        http_cert=certificate,
        http_key=private_key,
        cluster_key=str(key) if has_key else None,
    )
    if not has_key:
        with pytest.raises(ConfigError, match=r"could change keyspaces: give the cluster keys"):
            async with open_ringpop(config):
                pass
        return
    async with open_ringpop(config) as node:
        assert node.http_address is not None
        url = f"127.0.0.1:{node.http_address.port}"
        async with httpx.AsyncClient(verify=knowing(site)) as http:
            headers = bearer(token())
            assert (await http.get(f"https://{url}/keyspaces", headers=headers)).is_success
            refused = await http.get(f"http://{url}/keyspaces", headers=headers)
            assert (refused.status_code, refused.json()["error"]) == (403, "TlsNeeded")


async def test_a_certificate_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    certificate, private_key = a_site(ends=-dt.timedelta(hours=1)).write(tmp_path)
    with pytest.raises(ConfigError, match=rf"^--http-cert {certificate}: .* expired on .*$"):
        async with open_ringpop(Config(http=ANY_PORT, http_cert=certificate, http_key=private_key)):
            pass
    with pytest.raises(ConfigError, match="--http-cert needs --http HOST:PORT"):
        async with open_ringpop(Config(http_cert=certificate, http_key=private_key)):
            pass
