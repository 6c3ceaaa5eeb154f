"""The certificate that ports for HTTP present: what is refused, and what is read again."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest

from ringpop_py.base.errors import ConfigError
from ringpop_py.net.security import site as module
from ringpop_py.net.security.clock import wall_s
from ringpop_py.net.security.site import SiteCertificate, site_of
from tests.logged import events_in
from tests.net.security.sites import DAY, Site, a_site

ONE, OTHER = a_site(), a_site()


def shown(site: SiteCertificate) -> bytes:
    """The certificate of the context for a new connection, in PEM."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    client = trusting.wrap_bio(incoming, outgoing)
    server = site.context().wrap_bio(outgoing, incoming, server_side=True)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return ssl.DER_cert_to_PEM_cert(client.getpeercert(binary_form=True) or b"").encode()


def test_the_certificate_that_was_read_is_shown(tmp_path: Path) -> None:
    files = Site(ONE.certificate + OTHER.certificate, ONE.private_key, 0).write(tmp_path)

    assert shown(SiteCertificate(*files)) == ONE.certificate  # those of authorities follow it


def test_one_file_may_hold_both(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.touch(0o600)
    for parts in ((ONE.certificate, ONE.private_key), (ONE.private_key, ONE.certificate)):
        both.write_bytes(b"".join(parts))
        assert shown(SiteCertificate(str(both), str(both))) == ONE.certificate


@pytest.mark.parametrize(
    ("site", "why"),
    [
        (Site(ONE.certificate, OTHER.private_key, 0), "do not fit together: the first"),
        (Site(OTHER.certificate + ONE.certificate, ONE.private_key, 0), "do not fit together"),
        (a_site(ends=-DAY / 2), r"expired on \d{4}-\d\d-\d\d \d\d:\d\d UTC: give it another"),
        (a_site(begins=DAY / 2), "is not valid before .* compare the clocks"),
        (a_site(password=b"x"), "--http-key .*: its private key is encrypted"),
        (Site(b"", ONE.private_key, 0), "--http-cert .*: no certificate in PEM"),
        (Site(ONE.private_key, ONE.private_key, 0), "--http-cert .*: no certificate in PEM"),
        (Site(ONE.certificate, b"\xff\x00secret", 0), "--http-key .*: no private key in PEM"),
        (Site(ONE.certificate, ONE.certificate, 0), "--http-key .*: no private key in PEM"),
    ],
    ids=("key", "order", "past", "future", "password", "empty", "no cert", "bytes", "no key"),
)
def test_a_certificate_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, site: Site, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        SiteCertificate(*site.write(tmp_path))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("flag", ["--http-cert", "--http-key"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, flag: str) -> None:
    files = ONE.write(tmp_path)
    gone = Path(files[flag == "--http-key"])
    gone.unlink()

    with pytest.raises(ConfigError, match=re.escape(f"{flag} {gone}: No such file")):
        SiteCertificate(*files)


def test_a_private_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    files = ONE.write(tmp_path)
    Path(files[1]).chmod(0o644)

    with pytest.raises(ConfigError, match=f"--http-key {files[1]}: .*chmod 600"):
        SiteCertificate(*files)


@pytest.mark.parametrize(
    ("files", "has_port", "why"),
    [
        (("x", None), True, "--http-cert needs --http-key FILE"),
        ((None, "x"), True, "--http-key needs --http-cert FILE"),
        (("x", "x"), False, "--http-cert needs --http HOST:PORT or --http-in HOST:PORT"),
    ],
)
def test_a_flag_that_is_missing_beside_another_is_named(
    files: tuple[str | None, str | None], *, has_port: bool, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        site_of(*files, has_port=has_port)


def test_files_that_have_changed_are_read_again_once_they_fit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    certificate, _ = files = ONE.write(tmp_path)
    site = SiteCertificate(*files)

    Path(certificate).write_bytes(OTHER.certificate)
    for _ in range(3):
        assert shown(site) == ONE.certificate
    [told] = events_in(caplog, "http-certificate-trouble")
    assert "do not fit together" in str(told.fields["text"])
    assert "was read before is used until it ends" in str(told.fields["text"])
    OTHER.write(tmp_path)
    assert shown(site) == OTHER.certificate


def test_the_log_says_once_that_what_is_shown_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    site = SiteCertificate(*ONE.write(tmp_path))
    now_s = wall_s()
    monkeypatch.setattr(module, "wall_s", lambda: now_s + DAY.total_seconds())

    for _ in range(3):
        site.context()
    [told] = events_in(caplog, "http-certificate-trouble")
    assert "expired on" in str(told.fields["text"])


def test_when_asked_it_is_read_at_once_and_an_error_changes_nothing(tmp_path: Path) -> None:
    files = ONE.write(tmp_path)
    site = SiteCertificate(*files)
    Path(files[1]).write_bytes(OTHER.private_key)
    with pytest.raises(ConfigError, match="do not fit together"):
        site.read_again()
    assert shown(site) == ONE.certificate

    OTHER.write(tmp_path)
    [until] = site.read_again()
    assert until.startswith("until 2")
    assert shown(site) == OTHER.certificate


def test_other_authorities_of_callers_need_another_context(tmp_path: Path) -> None:
    site = SiteCertificate(*ONE.write(tmp_path))
    trusted = [ONE.certificate, OTHER.certificate, a_site().certificate]

    contexts = [site.context(each) for each in trusted]

    assert [context.verify_mode for context in contexts] == [ssl.CERT_OPTIONAL] * 3
    assert site.context(trusted[2]) is contexts[2]
    assert site.context().verify_mode is ssl.CERT_NONE
