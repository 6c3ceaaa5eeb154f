"""Files with certificates that a node issues to its own processes."""

from __future__ import annotations

import datetime as dt
import stat
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from ringpop_py.base.errors import ConfigError
from ringpop_py.net.security import clock, credentials
from ringpop_py.net.security.authority import authority_of, bundle_of
from ringpop_py.net.security.certificates import LASTS_S, RETRY_S, IssuedFile
from ringpop_py.net.security.credentials import KeyCredentials
from ringpop_py.net.security.identity import Identity, Role
from ringpop_py.net.security.keys import new_key, read_secret, write_keys, write_secret
from ringpop_py.net.security.revocations import NOTHING, holders_of, revoking
from tests.logged import events_in

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_py.net.security.keys import ClusterKey

MEMBER = Identity("c", Role.MEMBER, "a")


class Wall:
    """The clock of the wall."""

    def __init__(self) -> None:
        self.now_s = clock.wall_s()

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    made = Wall()
    monkeypatch.setattr("ringpop_py.net.security.certificates.wall_s", made)
    monkeypatch.setattr(credentials, "LOOK_S", 0.0)
    return made


def member(folder: Path, *keys: ClusterKey) -> KeyCredentials:
    write_keys(folder / "cluster.key", keys, replace=True)
    return KeyCredentials(str(folder / "cluster.key"), MEMBER)


def certificates(path: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(path.read_bytes())


def test_it_names_the_process_and_holds_no_key(tmp_path: Path) -> None:
    key = new_key()
    issued = IssuedFile(tmp_path / "own.pem", member(tmp_path, key), Role.SHUFFLES)

    own, authority = certificates(issued.path)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["ringpop://c/shuffles/a"]
    assert authority.subject == authority_of(key).subject
    assert stat.S_IMODE(issued.path.stat().st_mode) == 0o600
    assert key.line not in issued.path.read_text()
    assert KeyCredentials(str(issued.path), MEMBER).key_ids == ()  # it is of use


def test_it_is_renewed_by_the_clock_when_half_of_its_time_is_over(
    tmp_path: Path, wall: Wall
) -> None:
    issued = IssuedFile(tmp_path / "own.pem", member(tmp_path, new_key()), Role.SHUFFLES)
    for later_s, renewed in ((LASTS_S / 2 - 1, False), (1, True), (1, False), (-3_600, True)):
        before, wall.now_s = issued.path.read_bytes(), wall.now_s + later_s
        issued.keep_fresh()
        assert (issued.path.read_bytes() != before) is renewed


def test_it_follows_the_keys_of_its_node(tmp_path: Path, wall: Wall) -> None:
    old, new = new_key(), new_key()
    issued = IssuedFile(tmp_path / "own.pem", member(tmp_path, old), Role.SHUFFLES)
    for keys in ((old, new), (new, old), (new,)):
        wall.now_s += RETRY_S
        write_keys(tmp_path / "cluster.key", keys, replace=True)
        issued.keep_fresh()
        own, *trusted = certificates(issued.path)
        assert own.issuer == authority_of(keys[0]).subject
        assert [each.subject for each in trusted] == [authority_of(key).subject for key in keys]


def test_it_says_what_is_revoked_as_soon_as_its_node_knows(tmp_path: Path, wall: Wall) -> None:
    key = new_key()
    issued = IssuedFile(tmp_path / "own.pem", member(tmp_path, key), Role.SHUFFLES)
    process = KeyCredentials(str(issued.path), MEMBER)
    revoked = revoking(NOTHING, holders_of("a job", None), wall.now_s)
    for now in (revoked, NOTHING):
        write_keys(tmp_path / "cluster.key", (key,), replace=True, revoked=now)
        issued.keep_fresh()
        before = issued.path.read_bytes()
        assert process.revoked() == now
        issued.keep_fresh()
        assert issued.path.read_bytes() == before


def test_one_that_cannot_be_written_stays_and_is_tried_again(
    tmp_path: Path, wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    issued = IssuedFile(folder / "own.pem", member(tmp_path, new_key()), Role.SHUFFLES)
    folder.rename(tmp_path / "away")
    wall.now_s += LASTS_S / 2
    for _ in range(3):  # the node goes on, and does not fill its log
        issued.keep_fresh()
    assert len(events_in(caplog, "certificate-not-renewed")) == 1

    (tmp_path / "away").rename(folder)
    before, wall.now_s = issued.path.read_bytes(), wall.now_s + RETRY_S
    issued.keep_fresh()
    assert issued.path.read_bytes() != before


def test_a_node_without_a_key_issues_none(tmp_path: Path, wall: Wall) -> None:
    key, bundle = new_key(), tmp_path / "member.pem"
    issued = IssuedFile(tmp_path / "own.pem", member(tmp_path, key), Role.SHUFFLES)
    write_secret(bundle, bundle_of([key], MEMBER, dt.timedelta(days=1)), replace=True)
    with pytest.raises(ConfigError, match="can issue none"):
        IssuedFile(tmp_path / "other.pem", KeyCredentials(str(bundle), MEMBER), Role.SHUFFLES)

    write_secret(tmp_path / "cluster.key", read_secret(bundle), replace=True)
    before, wall.now_s = issued.path.read_bytes(), wall.now_s + LASTS_S
    issued.keep_fresh()
    assert issued.path.read_bytes() == before
