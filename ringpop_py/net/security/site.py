"""The certificate of any authority that ports for HTTP present (`--http-cert`, `--http-key`).

It says who the node is, to callers that do not trust the cluster's own authority. Who a caller is,
it never says.
"""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.logs import log
from ringpop_py.net.security.clock import wall_s
from ringpop_py.net.security.credentials import LOOK_S, version_of, web_context_of
from ringpop_py.net.security.identity import Issued
from ringpop_py.net.security.keys import read_secret

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

    from ringpop_py.net.security.credentials import KeyCredentials

CERT_FLAG: Final = "--http-cert"
KEY_FLAG: Final = "--http-key"
NEEDS: Final = f"{CERT_FLAG} needs cryptography: pip install 'ringpop_py[tls]'"
KEPT: Final = "the certificate that was read before is used until it ends"
CONTEXTS_MAX: Final = 2
"""Of one port that asks for certificates of the cluster, and of one that does not."""


class _Read(NamedTuple):
    issued: Issued
    ends_at: float


class SiteCertificate:
    """A certificate with those of its authorities, and its private key, in two files.

    The files are read again when they have changed. If they cannot be used then, as when one is
    replaced before the other, what was read before stays.

    Raises:
        ConfigError: the files cannot be used, or cryptography is missing.
    """

    def __init__(self, certificate: str, private_key: str) -> None:
        self._paths = str(Path(certificate).absolute()), str(Path(private_key).absolute())
        self._looked_at_s = time.monotonic()
        self._trouble = ""
        self.read_again()

    def context(self, trusted: bytes = b"") -> ssl.SSLContext:
        """Return the context for a new connection.

        Args:
            trusted: the authorities, in PEM, whose certificates callers may show; they are not
                asked for one if it is empty.
        """
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= LOOK_S:
            self._looked_at_s = now_s
            self._look()
        if trusted not in self._contexts:
            if len(self._contexts) == CONTEXTS_MAX:  # the cluster's keys have changed
                self._contexts.clear()
            self._contexts[trusted] = web_context_of(self._read.issued, trusted)
        return self._contexts[trusted]

    def read_again(self) -> tuple[str, ...]:
        """Use the present content of the files; return until when it is valid, for people.

        Raises:
            ConfigError: it cannot be used, so nothing has changed.
        """
        version = self._found()  # before they are read: they may change meanwhile
        read = _read_files(*self._paths)
        try:
            contexts = {b"": web_context_of(read.issued, b"")}
        except (OSError, ValueError) as error:  # for example a key that OpenSSL finds too short
            reason = getattr(error, "reason", None) or error
            raise ConfigError(f"{CERT_FLAG} {self._paths[0]}: {reason}") from None
        self._version, self._read, self._contexts = version, read, contexts
        return (f"until {_day(read.ends_at)}",)

    def _found(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(version_of(path) for path in self._paths)

    def _look(self) -> None:
        trouble = ""
        if self._found() != self._version:
            try:
                self.read_again()
            except ConfigError as error:
                trouble = f"{error}; {KEPT}"
        if not trouble and wall_s() >= self._read.ends_at:
            trouble = _outside(self._paths[0], f"expired on {_day(self._read.ends_at)}")
        if trouble and trouble != self._trouble:
            log.warning("http-certificate-trouble", text=trouble)
        self._trouble = trouble


def site_of(certificate: str | None, private_key: str | None, *, has_port: bool) -> SiteCertificate:
    """Return the certificate in two files that are configured.

    Args:
        has_port: whether there is a port that presents it.

    Raises:
        ConfigError: see `SiteCertificate`; or something that belongs to it is missing.
    """
    if certificate is None or private_key is None:
        given, missing = (CERT_FLAG, KEY_FLAG) if private_key is None else (KEY_FLAG, CERT_FLAG)
        raise ConfigError(f"{given} needs {missing} FILE as well")
    if not has_port:
        raise ConfigError(f"{CERT_FLAG} needs --http HOST:PORT or --http-in HOST:PORT")
    return SiteCertificate(certificate, private_key)


def contexts_of(
    keys: KeyCredentials | None, site: SiteCertificate | None
) -> Callable[[], ssl.SSLContext] | None:
    """Return what gives a new connection over HTTP its context; None if there is no TLS."""
    if site is None:
        return None if keys is None else keys.web_context
    return lambda: site.context(b"" if keys is None else keys.trusted())


def _read_files(certificate: str, private_key: str) -> _Read:
    try:
        text = Path(certificate).read_bytes()
    except OSError as error:
        raise ConfigError(f"{CERT_FLAG} {certificate}: {error.strerror}") from None
    secret = read_secret(private_key, KEY_FLAG).encode()
    own, key = _certificate_in(text, certificate), _private_key_in(secret, private_key)
    if own.public_key() != key.public_key():
        raise ConfigError(
            f"{CERT_FLAG} {certificate} and {KEY_FLAG} {private_key} do not fit together: the "
            "first certificate is for another private key (those of its authorities follow it)"
        )
    begins_at, ends_at = own.not_valid_before_utc.timestamp(), own.not_valid_after_utc.timestamp()
    if wall_s() >= ends_at:
        raise ConfigError(_outside(certificate, f"expired on {_day(ends_at)}"))
    if wall_s() < begins_at:
        raise ConfigError(_outside(certificate, f"is not valid before {_day(begins_at)}"))
    return _Read(Issued(text.rstrip() + b"\n", secret), ends_at)


def _certificate_in(text: bytes, path: str) -> x509.Certificate:
    try:
        from cryptography import x509  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise ConfigError(NEEDS) from None
    try:
        return x509.load_pem_x509_certificates(text)[0]
    except ValueError:
        raise ConfigError(f"{CERT_FLAG} {path}: no certificate in PEM is in it") from None


def _private_key_in(text: bytes, path: str) -> PrivateKeyTypes:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        load_pem_private_key,
    )

    try:
        return load_pem_private_key(text, None)
    except TypeError:
        why = "its private key is encrypted: write it without a passphrase"
    except (ValueError, UnsupportedAlgorithm):
        why = "no private key in PEM is in it"  # never what is in it
    raise ConfigError(f"{KEY_FLAG} {path}: {why}")


def _outside(path: str, why: str) -> str:
    return f"{CERT_FLAG} {path}: the certificate {why}: give it another one, or compare the clocks"


def _day(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%d %H:%M} UTC"
