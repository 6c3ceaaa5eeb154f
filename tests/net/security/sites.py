"""Certificates of an authority that no cluster knows, for ports for HTTP."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

DAY = dt.timedelta(days=1)


class Site(NamedTuple):
    """A certificate for 127.0.0.1 that signs itself, so that callers can trust it."""

    certificate: bytes
    private_key: bytes
    serial: int

    def write(self, folder: Path) -> tuple[str, str]:
        """Write both files, and return their paths."""
        files = folder / "site.crt", folder / "site.key"
        files[1].touch(0o600)
        files[0].write_bytes(self.certificate)
        files[1].write_bytes(self.private_key)
        return str(files[0]), str(files[1])


def a_site(begins: dt.timedelta = -DAY, ends: dt.timedelta = DAY, password: bytes = b"") -> Site:
    """Return a new one, valid from *begins* to *ends*, as seen from now."""
    now, private_key = dt.datetime.now(dt.UTC), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a site")])
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private_key, hashes.SHA256())
    )
    encryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password)  # type: ignore[assignment] # of one base
    return Site(
        certificate.public_bytes(serialization.Encoding.PEM),
        private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ),
        certificate.serial_number,
    )
