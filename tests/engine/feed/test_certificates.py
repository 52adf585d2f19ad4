"""Certificates for one cluster's rows."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509

from tfos_lab.engine.feed.certificates import make_identities


@pytest.mark.parametrize("hours_off", [-12, 12])
def test_certificates_are_good_on_hosts_whose_clocks_are_hours_off(hours_off):
    identities = make_identities()
    clock = dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours_off)
    for identity in (identities.nodes, identities.tasks):
        for pem in (identity.certificate, identity.authority):
            certificate = x509.load_pem_x509_certificate(pem)
            assert certificate.not_valid_before_utc < clock < certificate.not_valid_after_utc
