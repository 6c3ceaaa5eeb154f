"""The certificate a process presents, and the keys it trusts: contexts for TLS 1.3 only.

Certificates are short-lived and renewed; a file of keys is read again when it has changed.
Connections go on with what they have shown, and end when that does.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import re
import ssl
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.base.errors import ConfigError
from ringpop_py.net.security.clock import EARLIER_S, EXPIRED, wall_s
from ringpop_py.net.security.identity import Identity, Issued, Role, identity_in
from ringpop_py.net.security.keys import keys_in, read_secret
from ringpop_py.net.security.proof import Proof
from ringpop_py.net.security.revocations import NOTHING, revoked_in, revoked_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ringpop_py.net.security.keys import ClusterKey
    from ringpop_py.net.security.revocations import Revoked

LASTS_S: Final = 7 * 24 * 3600
"""How long a certificate that a process issues to itself is valid, in seconds."""
RENEWED_S: Final = 24 * 3600
"""The age, in seconds, at which a process replaces its own certificate."""
LOOK_S: Final = 5.0
"""The seconds between two checks whether the file of keys has changed."""
HANDSHAKE: Final = 0x16
"""The first byte of TLS. A frame of TChannel that begins with it would have 5,632 bytes or more,
but the first one, which introduces the peer, is shorter."""
_SIDES: Final = (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
_FOR_NOW: Final = (ConfigError, OSError, ValueError)
"""The errors that make a file unusable or keep a certificate from being issued; the process then
goes on with what it has."""
PEM: Final = "-----BEGIN "
_BLOCK: Final = re.compile(r"-----BEGIN [A-Z ]+-----[^-]+-----END [A-Z ]+-----")
BUNDLE_MIN: Final = 2
NEEDS: Final = "--cluster-key needs cryptography: pip install 'ringpop_py[tls]'"


PLAIN: Final = "it speaks without TLS: give both the same keys (--cluster-key)"
_REASONS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not of a key that is trusted here",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the key that is used here",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "for it, the certificate that is used here has expired: "
    "compare the clocks, or get another certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "for it, the certificate that is used here is not valid, "
    "perhaps not yet: compare the clocks",
    "WRONG_VERSION_NUMBER": PLAIN,
}


_BY_THE_CLOCK: Final = {  # by OpenSSL's number of an error of verification
    9: "its certificate is not yet valid: compare the clocks",
    10: EXPIRED,
}
UNTRUSTED: Final = frozenset(_REASONS) - {"WRONG_VERSION_NUMBER"}
"""The reasons of errors of TLS that mean that one end does not trust the other's certificate."""


def explained(error: ssl.SSLError) -> str:
    """Return why TLS failed, in a sentence about the peer."""
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _BY_THE_CLOCK:
        return _BY_THE_CLOCK[error.verify_code]
    reason = error.reason or str(error)
    return _REASONS.get(reason, f"TLS failed: {reason.lower().replace('_', ' ')}")


def end_of(certificate: Mapping[str, Any] | None) -> float:
    """Return when *certificate*, as from `getpeercert`, ends, as `wall_s` counts; inf without."""
    return ssl.cert_time_to_seconds(certificate["notAfter"]) if certificate else math.inf


class _Contexts(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext
    web: ssl.SSLContext
    trusted: bytes
    made_at_s: float


class KeyCredentials:
    """The keys in a file, and certificates that they issue to this process.

    Threads may share it. In place of keys the file may hold an issued certificate,
    its private key, and the certificates of the authorities that are trusted, in PEM and in this
    order. Then it says who this process is. Both may be followed by what is revoked.

    Args:
        path: the file, see `security.keys`.
        identity: whom the certificates name. An empty cluster means that of the peer.
        hosts: names and addresses of this machine, for callers over HTTP.

    Attributes:
        key_ids: the ids of the keys, the one in use first; empty for a certificate.

    Raises:
        ConfigError: the file cannot be used, or cryptography is missing.
    """

    def __init__(self, path: str, identity: Identity, hosts: Sequence[str] = ()) -> None:
        self.path = str(Path(path).absolute())
        self.identity = identity
        self._hosts = tuple(hosts)
        self._lock = threading.Lock()
        self._looked_at_s = time.monotonic()
        self._keys: tuple[ClusterKey, ...] = ()
        self._revoked: Revoked = NOTHING
        self._version = version_of(self.path)
        self._read()

    @property
    def key_ids(self) -> tuple[str, ...]:
        """See the class."""
        return tuple(key.id for key in self._keys)

    def rename(self, name: str) -> None:
        """Put *name* into certificates from now on. Those issued before keep their name."""
        with self._lock:
            self.identity = self.identity._replace(name=name)
            if self._keys:
                self._use(self._keys)

    def context(self, *, server: bool) -> ssl.SSLContext:
        """Return the context for a new connection, as its *server* or its client."""
        with self._lock:
            self._refresh()
            return self._contexts.server if server else self._contexts.client

    def web_context(self) -> ssl.SSLContext:
        """Return the context for a connection over HTTP, whose caller may have no certificate."""
        with self._lock:
            self._refresh()
            return self._contexts.web

    def trusted(self) -> bytes:
        """Return the certificates of the authorities that are trusted now, in PEM."""
        with self._lock:
            self._refresh()
            return self._contexts.trusted

    def keys(self) -> tuple[ClusterKey, ...]:
        """Return the keys that are trusted now; none if the file holds a certificate."""
        with self._lock:
            self._refresh()
            return self._keys

    def revoked(self) -> Revoked:
        """Return what is revoked now."""
        with self._lock:
            self._refresh()
            return self._revoked

    def proof_in(self, certificate: Mapping[str, Any] | None) -> Proof:
        """Return what *certificate*, as from `getpeercert`, proves; it may be revoked later."""
        identity = identity_in(certificate)
        if certificate is None or identity is None:
            return Proof(identity, end_of(certificate))
        issued_at = ssl.cert_time_to_seconds(certificate["notBefore"]) + EARLIER_S
        return Proof(
            identity,
            end_of(certificate),
            lambda: issued_at <= revoked_until(self.revoked(), identity),
        )

    def _refresh(self) -> None:
        """Check the file and the age of the certificate, once in `LOOK_S`."""
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= LOOK_S:
            self._looked_at_s = now_s
            self._look()
        # By the clock that others judge it by: it may have been set since.
        if self._keys and not 0 <= wall_s() - self._contexts.made_at_s < RENEWED_S:
            with suppress(*_FOR_NOW):
                self._use(self._keys)

    def read_again(self) -> tuple[str, ...]:
        """Use the file's present content; return the ids of its keys.

        Raises:
            ConfigError: it cannot be used, so nothing has changed.
        """
        with self._lock:
            self._version = version_of(self.path)
            try:
                self._read()
            except ConfigError:
                raise
            except (OSError, ValueError) as error:  # for example without a free descriptor
                raise ConfigError(f"cluster key {self.path}: {error}") from None
        return self.key_ids

    def _look(self) -> None:
        version = version_of(self.path)
        if version != self._version:
            # A file that is being changed by hand may be wrong for a moment: the keys stay.
            with suppress(*_FOR_NOW):
                self._read()
                self._version = version

    def _read(self) -> None:
        text = read_secret(self.path)
        if not text.lstrip().startswith(PEM):
            keys, self._revoked = keys_in(text, self.path), revoked_in(text, self.path)
            self._use(keys)
            return
        issued, trusted = _bundle_in(text, self.path)
        try:
            self._contexts = _contexts_of(issued, trusted)
        except ssl.SSLError as error:
            raise ConfigError(f"cluster key {self.path}: {error.reason or error}") from None
        self._keys, self._revoked = (), revoked_in(text, self.path)

    def _use(self, keys: tuple[ClusterKey, ...]) -> None:
        try:
            from ringpop_py.net.security.authority import authority_of  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise ConfigError(NEEDS) from None
        authorities = [authority_of(key) for key in keys]
        lasts = dt.timedelta(seconds=LASTS_S)
        issued = authorities[0].issue(self.identity, lasts, self._hosts, self._revoked)
        trusted = b"".join(authority.certificate for authority in authorities)
        self._contexts = _contexts_of(issued, trusted)
        self._keys = keys


def _bundle_in(text: str, path: str) -> tuple[Issued, bytes]:
    """Return the certificate with its key, and those of authorities, in *text*."""
    blocks = _BLOCK.findall(text)
    certificates = [block for block in blocks if block.startswith(f"{PEM}CERTIFICATE")]
    others = [block for block in blocks if block not in certificates]
    if len(certificates) < BUNDLE_MIN or len(others) != 1 or not text.isascii():
        raise ConfigError(
            f"cluster key {path}: a certificate, its private key, and the certificates of the "
            "authorities that are trusted are expected, in PEM"
        )
    own, *authorities = (block.encode("ascii") + b"\n" for block in certificates)
    return Issued(own, others[0].encode("ascii") + b"\n"), b"".join(authorities)


def version_of(path: str) -> tuple[int, int, int]:
    """Return what is different once the file at *path* has changed; zeros if there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def _contexts_of(issued: Issued, trusted: bytes) -> _Contexts:
    server, client = (_context(kind, issued, trusted) for kind in _SIDES)
    server.num_tickets = 0  # each connection shows its certificate
    return _Contexts(server, client, web_context_of(issued, trusted), trusted, wall_s())


def web_context_of(issued: Issued, trusted: bytes) -> ssl.SSLContext:
    """Return the context of a port for HTTP, whose callers may show a certificate of *trusted*."""
    web = _context(ssl.PROTOCOL_TLS_SERVER, issued, trusted)
    web.num_tickets = 0
    web.verify_mode = ssl.CERT_OPTIONAL if trusted else ssl.CERT_NONE
    return web


def _context(kind: int, issued: Issued, trusted: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the names in our certificates are not those of hosts
    context.verify_mode = ssl.CERT_REQUIRED
    if trusted:
        context.load_verify_locations(cadata=trusted.decode("ascii"))
    with _as_file(issued.certificate + issued.private_key) as path:
        context.load_cert_chain(path, password=lambda: b"")  # no question at a terminal
    return context


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Yield the path of a file that holds *data*: in memory if the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ringpop", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:  # 0600
            file.write(data)
            file.flush()
            yield file.name


def member_credentials(
    path: str, cluster: str, name: str, hosts: Sequence[str] = ()
) -> KeyCredentials:
    """Return the credentials of the member *name*; see `KeyCredentials`. Raises ConfigError."""
    return KeyCredentials(path, Identity(cluster, Role.MEMBER, name), hosts)
