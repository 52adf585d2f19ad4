"""Certificates for one cluster's rows, by which nodes and Spark tasks know each other."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tfos_lab.core.messages import TlsIdentity
from tfos_lab.node.feed.wire import TLS_NAME

_LIFETIME = dt.timedelta(days=30)


class Identities(NamedTuple):
    """What nodes and tasks of one cluster show each other: each is good for one end of a connection only."""

    nodes: TlsIdentity
    tasks: TlsIdentity


def make_identities() -> Identities:
    """Return what nodes and tasks present, signed by an authority that signs nothing else: its key is forgotten."""
    authority = ec.generate_private_key(ec.SECP256R1())
    name = _name("tfos-lab cluster")
    usage = x509.BasicConstraints(ca=True, path_length=0)
    certificate = _certificate(name, name, authority.public_key(), usage).sign(authority, hashes.SHA256())
    return Identities(
        nodes=_sign(TLS_NAME, ExtendedKeyUsageOID.SERVER_AUTH, authority, certificate),
        tasks=_sign("tfos-lab task", ExtendedKeyUsageOID.CLIENT_AUTH, authority, certificate),
    )


def _sign(
    name: str, purpose: x509.ObjectIdentifier, authority: ec.EllipticCurvePrivateKey, issuer: x509.Certificate
) -> TlsIdentity:
    """Return a new key with a certificate that is good for one purpose."""
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.BasicConstraints(ca=False, path_length=None)
    certificate = (
        _certificate(_name(name), issuer.subject, key.public_key(), usage)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(TLS_NAME)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .sign(authority, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return TlsIdentity(
        certificate=certificate.public_bytes(pem),
        key=key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        authority=issuer.public_bytes(pem),
    )


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, usage: x509.BasicConstraints
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # The clocks of hosts differ.
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(usage, critical=True)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
