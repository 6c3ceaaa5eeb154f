"""TLS between channels: which peers get in, and what an attacker between them can do."""

from __future__ import annotations

import datetime as dt
import os
import ssl
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest
import trio

from ringpop_py.base.address import Address
from ringpop_py.base.errors import BadRequest, CallError, ConfigError, ConnectFailed
from ringpop_py.net.security import clock
from ringpop_py.net.security import credentials as module
from ringpop_py.net.security.authority import authority_of, bundle_of
from ringpop_py.net.security.clock import EARLY_S, EXPIRED, LOOK_S
from ringpop_py.net.security.credentials import LASTS_S, PLAIN, KeyCredentials, member_credentials
from ringpop_py.net.security.identity import SHUFFLERS, Identity, Role
from ringpop_py.net.security.keys import ClusterKey, new_key, write_keys, write_secret
from ringpop_py.net.security.proof import LASTING, REVOKED
from ringpop_py.net.security.revocations import NOTHING, holders_of, revoking
from ringpop_py.net.transport.channel import Channel, IncomingCall
from ringpop_py.net.transport.tls import TlsNetwork
from ringpop_py.net.wire.calls import Answer, Call
from ringpop_py.testing import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from ringpop_py.net.security.revocations import Revoked
    from ringpop_py.net.transport.network import Listener, Network, Stream

pytestmark = pytest.mark.virtual_time

A, B = Address("a", 1), Address("b", 1)
DAY_S: Final = 24 * 3_600
KEY, OTHER = ClusterKey(bytes(32)), ClusterKey(bytes(range(32)))


def echo(incoming: IncomingCall) -> Answer:
    return Answer(ok=True, arg3=incoming.arg3)


def call(body: bytes = b"hello", endpoint: str = "/echo") -> Call:
    return Call("app", endpoint, b"", body, ttl_s=5.0)


class Keys:
    """Files of keys, and credentials of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def file(self, name: str, *keys: ClusterKey, revoked: Revoked = NOTHING) -> str:
        write_keys(self.path(name), keys, replace=True, revoked=revoked)
        return self.path(name)

    def issued(
        self, identity: Identity, *keys: ClusterKey, revoked: Revoked = NOTHING
    ) -> KeyCredentials:
        bundle = bundle_of(keys, identity, dt.timedelta(days=1), revoked)
        write_secret(self.path(identity.name), bundle, replace=True)
        return KeyCredentials(self.path(identity.name), identity)

    def of(
        self, name: str, *keys: ClusterKey, cluster: str = "c", role: Role = Role.MEMBER
    ) -> KeyCredentials:
        return KeyCredentials(self.file(name, *keys), Identity(cluster, role, name))


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def nothing() -> None:
    """In place of the renewal of a certificate."""


class Wall:
    """The clock of the wall, as our code sees it; OpenSSL sees the machine's."""

    def __init__(self) -> None:
        self.off_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.off_s


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    made = Wall()
    for path in ("credentials", "authority", "clock"):
        monkeypatch.setattr(f"ringpop_py.net.security.{path}.wall_s", made)
    return made


class Pair:
    """Two channels; *b* listens, and answers ``/echo``."""

    def __init__(self, a: Channel, b: Channel) -> None:
        self.a = a
        self.b = b
        self.told: list[str] = []
        b.on_trouble = lambda _peer, _endpoint, reason: self.told.append(reason)
        b.serve("app", "/echo", echo)
        b.serve("app", "/admin", echo, role=Role.ADMIN)
        b.serve("app", "/member", echo, role=Role.MEMBER)


@asynccontextmanager
async def pair(
    a: Callable[[Network], Network], b: Callable[[Network], Network]
) -> AsyncIterator[Pair]:
    network = MemoryNetwork()
    channels = [
        Channel(host_port=at, process_name=at.host, network=of(network))
        for at, of in ((A, a), (B, b))
    ]
    await channels[1].listen(B)
    async with trio.open_nursery() as nursery:
        for channel in channels:
            await nursery.start(channel.run)
        yield Pair(*channels)
        nursery.cancel_scope.cancel()


def plain(network: Network) -> Network:
    return network


def secured(credentials: KeyCredentials, **how: bool) -> Callable[[Network], Network]:
    return lambda network: TlsNetwork(network, credentials, **how)


async def test_two_with_one_key_talk_and_know_each_other(keys: Keys) -> None:
    async with pair(secured(keys.of("a", KEY)), secured(keys.of("b", KEY))) as both:
        for size in (0, 1, 16_384, 65_536, 3_000_000):
            body = os.urandom(size)
            assert (await both.a.call(B, call(body))).arg3 == body
        (link,) = both.b.links
        assert link.incoming.identity == Identity("c", Role.MEMBER, "a")
        assert both.a.identity_at(B) == Identity("c", Role.MEMBER, "b")
        assert both.told == []


async def test_nothing_of_a_call_can_be_read_on_its_way(keys: Keys) -> None:
    wire = Wire()
    async with pair(wire.under(keys.of("a", KEY)), secured(keys.of("b", KEY))) as both:
        await both.a.call(B, call(b"a secret" * 1_000))

    assert wire.count > 8_000
    assert b"a secret" not in wire.seen
    assert b"/echo" not in wire.seen


@pytest.mark.parametrize(
    ("of_a", "of_b", "reason"),
    [
        ((KEY,), (OTHER,), "its certificate is not of a key that is trusted here"),
        ((KEY,), (OTHER, KEY), "its certificate is not of a key that is trusted here"),
        ((OTHER, KEY), (KEY,), "closed|does not trust"),
    ],
    ids=["another key", "it is not trusted here", "it is not trusted there"],
)
async def test_a_peer_with_another_key_is_refused(
    keys: Keys, of_a: tuple[ClusterKey, ...], of_b: tuple[ClusterKey, ...], reason: str
) -> None:
    async with pair(secured(keys.of("a", *of_a)), secured(keys.of("b", *of_b))) as both:
        with pytest.raises(CallError, match=reason):
            await both.a.call(B, call())
        await trio.sleep(0.1)
        assert len(both.told) == 1


async def test_a_peer_without_a_key_is_refused(keys: Keys) -> None:
    async with pair(plain, secured(keys.of("b", KEY))) as both:
        with pytest.raises(CallError, match="closed"):
            await both.a.call(B, call())
        assert both.told == [f"the connection was closed: {PLAIN}"]


async def test_a_node_with_a_key_does_not_talk_to_one_without(keys: Keys) -> None:
    async with pair(secured(keys.of("a", KEY)), plain) as both:
        with pytest.raises(ConnectFailed):
            await both.a.call(B, call())


async def test_plain_connections_are_accepted_and_made_if_that_is_asked_for(keys: Keys) -> None:
    both_ways = {"accept_plain": True, "dial_plain": True}
    steps = [
        (plain, secured(keys.of("b", KEY), **both_ways)),
        (secured(keys.of("a", KEY), **both_ways), plain),
        (secured(keys.of("a", KEY), accept_plain=True), secured(keys.of("b", KEY), **both_ways)),
        (secured(keys.of("a", KEY), **both_ways), secured(keys.of("b", KEY), accept_plain=True)),
        (secured(keys.of("a", KEY)), secured(keys.of("b", KEY), accept_plain=True)),
    ]
    proved = []
    for a, b in steps:
        async with pair(a, b) as both:
            assert (await both.a.call(B, call())).arg3 == b"hello"
            (link,) = both.b.links
            proved.append(link.incoming.identity is not None)

    assert proved == [False, False, True, False, True]


async def test_a_certificate_of_another_cluster_is_refused_though_the_key_is_the_same(
    keys: Keys,
) -> None:
    async with pair(secured(keys.of("a", KEY, cluster="d")), secured(keys.of("b", KEY))) as both:
        with pytest.raises(CallError, match="its certificate is of another cluster"):
            await both.a.call(B, call())


async def test_a_client_is_no_member_that_could_be_called(keys: Keys) -> None:
    client = keys.of("b", KEY, role=Role.CLIENT)
    async with pair(secured(keys.of("a", KEY)), secured(client)) as both:
        with pytest.raises(ConnectFailed, match="its role is client, not member"):
            await both.a.call(B, call())


@pytest.mark.parametrize("role", Role)
async def test_a_role_may_call_what_is_for_it(keys: Keys, role: Role) -> None:
    served = {"/echo": Role.CLIENT, "/admin": Role.ADMIN, "/member": Role.MEMBER}
    cluster = "c" if role in SHUFFLERS else ""  # others need not know it
    caller = keys.of("a", KEY, role=role, cluster=cluster)
    async with pair(secured(caller), secured(keys.of("b", KEY))) as both:
        for endpoint, needed in served.items():
            if role >= needed:
                await both.a.call(B, call(endpoint=endpoint))
                continue
            text = (
                f"{endpoint} is for the role {needed.label}, not ringpop://{cluster}/{role.label}/a"
            )
            with pytest.raises(BadRequest, match=text):
                await both.a.call(B, call(endpoint=endpoint))
        assert len(both.told) == sum(role < needed for needed in served.values())


async def test_a_certificate_that_has_expired_is_refused(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LASTS_S", -3_600)
    expired = keys.of("a", KEY)
    monkeypatch.undo()
    async with pair(secured(expired), secured(keys.of("b", KEY))) as both:
        with pytest.raises(CallError):
            await both.a.call(B, call())
        assert both.told == [f"the connection was closed: {EXPIRED}"]


@pytest.mark.parametrize(
    ("off_s", "of_caller", "of_server"),
    [
        (-8 * DAY_S, "for it, .* has expired: compare the clocks", EXPIRED),
        (2 * DAY_S, "for it, .* not yet: compare the clocks", "not yet valid: compare the clocks"),
    ],
    ids=["behind", "ahead"],
)
async def test_a_clock_that_is_wrong_is_told_by_both_ends_and_set_right_without_a_restart(
    keys: Keys, wall: Wall, off_s: float, of_caller: str, of_server: str
) -> None:
    wall.off_s = off_s  # that of the caller, when it starts
    of_a = keys.of("a", KEY)
    wall.off_s = 0.0
    of_b = keys.of("b", KEY)
    wall.off_s, of_b._refresh = off_s, nothing  # type: ignore[method-assign]
    async with pair(secured(of_a), secured(of_b)) as both:
        with pytest.raises(CallError, match=of_caller):
            await both.a.call(B, call())
        assert of_server in both.told[0]

        wall.off_s = 0.0
        assert (await both.a.call(B, call())).arg3 == b"hello"


async def test_a_connection_ends_with_its_certificate_and_calls_go_on(
    keys: Keys, wall: Wall
) -> None:
    of_a, of_b = keys.of("a", KEY), keys.of("b", KEY)
    of_a._refresh = of_b._refresh = nothing  # type: ignore[method-assign]
    async with pair(secured(of_a), secured(of_b)) as both:
        await both.a.call(B, call())
        (first,) = both.b.links
        wall.off_s = LASTS_S - EARLY_S - 60
        await trio.sleep(2 * LOOK_S)
        assert [*both.b.links] == [first]

        wall.off_s = LASTS_S - EARLY_S + 1  # nothing is under way: a good moment
        await trio.sleep(2 * LOOK_S)
        assert first.over
        assert [*both.a.links] == []
        assert (await both.a.call(B, call())).arg3 == b"hello"


async def test_a_connection_that_is_busy_ends_when_its_certificate_has_expired(
    keys: Keys, wall: Wall
) -> None:
    of_a, of_b = keys.of("a", KEY), keys.of("b", KEY)
    of_a._refresh = of_b._refresh = nothing  # type: ignore[method-assign]
    async with pair(secured(of_a), secured(of_b)) as both:
        begun, ended = trio.Event(), trio.Event()

        async def wait(_incoming: IncomingCall) -> Answer:
            begun.set()
            try:
                await trio.sleep_forever()
            finally:
                ended.set()

        async def ask() -> None:
            with pytest.raises(CallError):
                await both.a.call(B, Call("app", "/wait", b"", b"", ttl_s=600.0))

        both.b.serve("app", "/wait", wait)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await begun.wait()
            wall.off_s = LASTS_S - 30  # real time goes on as well
            await trio.sleep(2 * LOOK_S)
            assert not ended.is_set()
            wall.off_s = LASTS_S + 1
            with trio.fail_after(2 * LOOK_S):
                await ended.wait()


@pytest.mark.parametrize("role", [Role.CLIENT, Role.ADMIN])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_a_connection_ends_when_its_certificate_is_revoked_and_no_other_is_made(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, role: Role, *, busy: bool
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)  # the clock of files is not virtual
    of_b = keys.of("b", KEY)
    job = Identity("", role, "job")
    of_a = keys.issued(job, KEY)
    async with pair(secured(of_a), secured(of_b)) as both, trio.open_nursery() as nursery:
        both.b.serve("app", "/wait", forever)
        await both.a.call(B, call())
        (first,) = both.b.links
        if busy:
            nursery.start_soon(fails, both.a, Call("app", "/wait", b"", b"", ttl_s=600.0))
        revoked = revoking(NOTHING, holders_of("job", None), clock.wall_s())
        keys.file("b", KEY, revoked=revoked)
        with trio.fail_after(2 * LOOK_S):
            while not first.over:
                await trio.sleep(1)
        await fails(both.a, call())
        why = f"the connection was closed: ringpop:///{role.label}/job: {REVOKED}"
        assert why in both.told

        keys.issued(job, KEY, revoked=revoked)  # into the same file
        assert (await both.a.call(B, call())).arg3 == b"hello"
        nursery.cancel_scope.cancel()


async def test_a_member_is_not_revoked_by_the_name_of_a_program(keys: Keys) -> None:
    revoked = revoking(NOTHING, holders_of("a", None), clock.wall_s() + 60)
    keys.file("b", KEY, revoked=revoked)
    of_b = KeyCredentials(keys.path("b"), Identity("c", Role.MEMBER, "b"))
    async with pair(secured(keys.of("a", KEY)), secured(of_b)) as both:
        assert (await both.a.call(B, call())).arg3 == b"hello"


async def forever(_incoming: IncomingCall) -> Answer:
    await trio.sleep_forever()
    raise AssertionError


async def fails(channel: Channel, asked: Call) -> None:
    with pytest.raises(CallError):
        await channel.call(B, asked)


async def test_a_certificate_without_a_name_of_ours_is_refused(keys: Keys) -> None:
    nobody = keys.of("a", KEY)
    issued = authority_of(KEY).issue(_Nameless(), dt.timedelta(days=1))  # type: ignore[arg-type]
    trusted = authority_of(KEY).certificate
    nobody._contexts = module._contexts_of(issued, trusted)
    async with pair(secured(nobody), secured(keys.of("b", KEY))) as both:
        with pytest.raises(CallError):
            await both.a.call(B, call())
        assert both.told[0].startswith("the connection was closed: its certificate names nobody")


class _Nameless:
    role, name = Role.MEMBER, "nobody"

    def __str__(self) -> str:
        return "http://example.org/"


def test_the_authority_of_a_key_is_the_same_everywhere() -> None:
    one, other = authority_of(KEY), authority_of(ClusterKey(bytes(32)))

    assert one.private_key.private_numbers() == other.private_key.private_numbers()
    assert authority_of(OTHER).private_key.private_numbers() != one.private_key.private_numbers()


@pytest.mark.parametrize(
    ("role", "name", "takes"),
    [
        (Role.CLIENT, "c", False),
        (Role.ADMIN, "b", False),
        (Role.MEMBER, "c", False),
        (Role.MEMBER, "b", True),
    ],
)
async def test_calls_to_an_address_go_to_whom_it_belongs_and_not_to_who_claims_it(
    keys: Keys, role: Role, name: str, *, takes: bool
) -> None:
    claimed = Address("elsewhere", 7)
    cluster = "c" if role is Role.MEMBER else ""
    claimant = KeyCredentials(keys.file("x", KEY), Identity(cluster, role, name))
    async with pair(secured(claimant), secured(keys.of("b", KEY))) as both:
        both.a.host_port = claimed  # what it says of itself
        both.b.owns = lambda member, address: (member, address) == ("b", claimed)
        await both.a.call(B, call())
        both.a.serve("app", "/echo", echo)

        if takes:
            assert (await both.b.call(claimed, call(b"secret"))).arg3 == b"secret"
        else:
            with pytest.raises(ConnectFailed):
                await both.b.call(claimed, call(b"secret"))


# Rotation.


async def test_keys_are_rotated_while_calls_go_on(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    current = KEY
    of_a, of_b = keys.of("a", current), keys.of("b", current)
    failed: list[CallError] = []
    count = 0
    async with pair(secured(of_a), secured(of_b)) as both:

        async def work() -> None:
            nonlocal count
            while True:
                try:
                    await both.a.call(B, call())
                except CallError as error:
                    failed.append(error)
                count += 1
                for link in both.a.links:  # so that each call shakes hands
                    link.stop("the test asks for another connection")
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            for _ in range(ROTATIONS):
                following = new_key()
                for trusted in ((current, following), (following, current), (following,)):
                    for name in ("a", "b"):  # one after the other, as people do
                        keys.file(name, *trusted)
                        await trio.sleep(0.05)
                current = following
            nursery.cancel_scope.cancel()

    assert of_a.key_ids == of_b.key_ids == (current.id,)
    assert count > ROTATIONS * 6
    assert failed == []


ROTATIONS: Final = 3


HALF_PEM: Final = b"".join(
    b"-----BEGIN %b-----\n\xc3\xa9A==\n-----END %b-----\n" % (kind, kind)
    for kind in (b"CERTIFICATE", b"ENCRYPTED PRIVATE KEY", b"CERTIFICATE")
)


def test_a_file_that_is_wrong_for_a_moment_changes_nothing(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    credentials = keys.of("a", KEY)
    before = credentials.context(server=True)

    for content in (b"ringpop-key-1:half", b"-----BEGIN \xff", HALF_PEM, b""):
        (tmp_path / "a").write_bytes(content)
        assert credentials.context(server=True) is before
    (tmp_path / "a").unlink()
    assert credentials.context(server=True) is before
    keys.file("a", OTHER)

    assert credentials.context(server=True) is not before
    assert credentials.key_ids == (OTHER.id,)


def test_certificates_are_issued_anew_each_day(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = member_credentials(keys.file("a", KEY), "c", "a")
    before = credentials.context(server=False)
    assert credentials.context(server=False) is before

    monkeypatch.setattr(module, "RENEWED_S", 0.0)

    assert credentials.context(server=False) is not before


def test_no_older_protocol_is_spoken(keys: Keys) -> None:
    for server in (False, True):
        context = keys.of("a", KEY).context(server=server)
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED


# Somebody between the two.


class Wire:
    """Stands between a channel and its network, and sees all that is sent."""

    def __init__(self) -> None:
        self.seen = b""
        self.count = 0

    def under(self, credentials: KeyCredentials) -> Callable[[Network], Network]:
        return lambda network: TlsNetwork(_WireNetwork(network, self), credentials)

    def carry(self, data: bytes) -> None:
        self.seen += data
        self.count += len(data)


class _WireNetwork:
    def __init__(self, inner: Network, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire

    async def listen(self, address: Address) -> list[Listener]:
        return await self._inner.listen(address)

    async def connect(self, to: Address, *, origin: Address | None) -> Stream:
        return _WireStream(await self._inner.connect(to, origin=origin), self._wire)


class _WireStream:
    def __init__(self, inner: Stream, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire
        self.remote_host = inner.remote_host
        self.identity: Identity | None = None
        self.proof = LASTING

    async def receive(self) -> bytes:
        return await self._inner.receive()

    def send_nowait(self, data: bytes) -> int:
        self._wire.carry(bytes(data))
        return self._inner.send_nowait(data)

    async def send_some(self, data: memoryview) -> int:
        self._wire.carry(bytes(data))
        return await self._inner.send_some(data)

    def end_sending(self) -> None:
        self._inner.end_sending()

    def close(self) -> None:
        self._inner.close()


def test_any_failure_to_read_a_file_again_is_one_kind_of_error(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = keys.of("a", KEY)
    before = credentials.context(server=True)

    def out_of_files(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", out_of_files)

    with pytest.raises(ConfigError, match="Too many open files"):
        credentials.read_again()
    monkeypatch.setattr(module, "RENEWED_S", 0.0)
    assert credentials.context(server=True) is before
