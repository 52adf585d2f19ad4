"""The digits that tests find: MNIST where it is, or with ``TFOS_TEST_DIGITS=scikit-learn`` those that any clone has."""

from __future__ import annotations

import os


def digits_environ() -> dict[str, str]:
    """Return variables with which a process finds scikit-learn's digits only; none where any may be found."""
    if os.environ.get("TFOS_TEST_DIGITS") != "scikit-learn":
        return {}
    # A proxy that does not exist cuts off the network, except among the nodes themselves.
    return {"TFOS_LAB_DATA": "", "KERAS_HOME": "/nonexistent", "https_proxy": "http://127.0.0.1:9"}
