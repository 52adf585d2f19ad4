"""Certificates: the one by which nodes know the kernel, and those by which nodes and Spark tasks know each other.

Only the driver makes any: nodes have no use for the package, which takes a while to import.
"""

from __future__ import annotations

import datetime as dt
import functools
import ssl
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tfos_lab.core.link import show_certificate
from tfos_lab.core.messages import TLS_NAME, TlsIdentity

_LIFETIME = dt.timedelta(days=30)
_PEM = serialization.Encoding.PEM


class Identities(NamedTuple):
    """What nodes and tasks of one cluster show each other: each is good for one end of a connection only."""

    nodes: TlsIdentity
    tasks: TlsIdentity


def make_identities() -> Identities:
    """Return what nodes and tasks present, signed by an authority that signs nothing else: its key is forgotten."""
    now = dt.datetime.now(dt.UTC)
    # The clocks of hosts differ.
    since, until = now - dt.timedelta(days=1), now + _LIFETIME
    authority = _Signed("tfos-lab cluster", since, until)

    def identity(name: str, purpose: x509.ObjectIdentifier) -> TlsIdentity:
        signed = _Signed(name, since, until, by=authority, purpose=purpose)
        return TlsIdentity(signed.certificate_pem, signed.key_pem, authority.certificate_pem)

    return Identities(
        nodes=identity(TLS_NAME, ExtendedKeyUsageOID.SERVER_AUTH),
        tasks=identity("tfos-lab task", ExtendedKeyUsageOID.CLIENT_AUTH),
    )


@functools.cache
def driver_identity() -> tuple[str, ssl.SSLContext]:
    """Return the certificate by which nodes know this kernel, in PEM, and what it serves TLS with; made once."""
    # It is known as a whole, and gone with the kernel: a host's clock is not asked.
    since, until = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)
    own = _Signed("tfos-lab driver", since, until)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    show_certificate(context, own.certificate_pem + own.key_pem)
    return own.certificate_pem.decode(), context


class _Signed:
    """A new key, and its certificate: signed by itself, or by an authority and good for one purpose."""

    def __init__(
        self,
        name: str,
        since: dt.datetime,
        until: dt.datetime,
        by: _Signed | None = None,
        purpose: x509.ObjectIdentifier | None = None,
    ) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        issuer = by or self
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(issuer.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(since)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=by is None, path_length=0 if by is None else None), critical=True)
        )
        if purpose is not None:
            certificate = certificate.add_extension(
                x509.SubjectAlternativeName([x509.DNSName(TLS_NAME)]), critical=False
            ).add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        self.certificate_pem = certificate.sign(issuer.key, hashes.SHA256()).public_bytes(_PEM)
        self.key_pem = self.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
