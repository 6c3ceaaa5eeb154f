"""Certificates: the authority that a cluster's key stands for, and what it issues.

Each process that has the key derives the same authority, and issues itself a certificate. So a
shared key gives ordinary mutual TLS, without any new cryptography: HKDF (RFC 5869) derives the
private key of a P-256 authority from the key.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ringpop_py.net.security.clock import EARLIER_S, wall_s
from ringpop_py.net.security.identity import Issued
from ringpop_py.net.security.revocations import NOTHING, issued_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.net.security.identity import Identity
    from ringpop_py.net.security.keys import ClusterKey
    from ringpop_py.net.security.revocations import Revoked

_CURVE: Final = ec.SECP256R1()
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of P-256's group: private keys are from 1 to one less."""
_INFO: Final = b"ringpop cluster authority P-256 1"
_SCALAR_BYTES: Final = 48  # 16 more than the order: the remainder is unbiased
_FOUNDED: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_ENDS: Final = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)


class Authority(NamedTuple):
    """The authority that signs the certificates of one cluster.

    Attributes:
        certificate: the authority's own, in PEM; a process that trusts it trusts what it issues.
    """

    private_key: ec.EllipticCurvePrivateKey
    subject: x509.Name
    certificate: bytes

    def issue(
        self,
        identity: Identity,
        lasts: dt.timedelta,
        hosts: Sequence[str] = (),
        revoked: Revoked = NOTHING,
    ) -> Issued:
        """Return a new certificate for *identity*, valid for *lasts* from now.

        Args:
            hosts: names and addresses of the machine, which callers over HTTP check.
            revoked: the new one is not.
        """
        now = dt.datetime.fromtimestamp(issued_after(revoked, identity, wall_s()), dt.UTC)
        private_key = ec.generate_private_key(_CURVE)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(
            self.private_key.public_key()
        )
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_named(f"{identity.role.label} of a ringpop cluster"))
            .issuer_name(self.subject)
            .public_key(private_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(seconds=EARLIER_S))
            .not_valid_after(now + lasts)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.UniformResourceIdentifier(str(identity)), *map(_host, hosts)]
                ),
                critical=False,
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(authority_id, critical=False)
            .sign(self.private_key, hashes.SHA256())
        )
        return Issued(certificate.public_bytes(serialization.Encoding.PEM), _pem(private_key))


def authority_of(key: ClusterKey) -> Authority:
    """Return the authority that *key* stands for: the same in each process."""
    derived = HKDF(hashes.SHA256(), _SCALAR_BYTES, salt=None, info=_INFO).derive(key.secret)
    scalar = int.from_bytes(derived, "big") % (_ORDER - 1) + 1
    private_key = ec.derive_private_key(scalar, _CURVE)
    subject = _named(f"ringpop cluster key {key.id}")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private_key.public_key())
        .serial_number(1)
        .not_valid_before(_FOUNDED)
        .not_valid_after(_ENDS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(private_key.public_key()), critical=False
        )
        .sign(private_key, hashes.SHA256())
    )
    return Authority(private_key, subject, certificate.public_bytes(serialization.Encoding.PEM))


def bundle_of(
    keys: Sequence[ClusterKey],
    identity: Identity,
    lasts: dt.timedelta,
    revoked: Revoked = NOTHING,
) -> str:
    """Return a file for use in place of a key, in PEM.

    It holds a certificate for *identity*, which the first of *keys* issues, its private key, and
    the certificates of the authorities of all *keys*. Where this is *revoked*, the new one is not.
    """
    authorities = [authority_of(key) for key in keys]
    issued = authorities[0].issue(identity, lasts, revoked=revoked)
    parts = issued.certificate, issued.private_key, *(each.certificate for each in authorities)
    return b"".join(parts).decode("ascii")


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(private_key: ec.EllipticCurvePrivateKey) -> bytes:
    return private_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
