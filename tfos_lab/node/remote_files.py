"""Has TensorFlow know remote addresses wherever tfos_lab runs it: on nodes, in notebooks, in plain programs."""

from __future__ import annotations

import contextlib

from tfos_lab.core.lazy_imports import after_import


def register_file_systems() -> None:
    """Have TensorFlow read and write remote addresses, once it has been imported; may be called again.

    Each process opens them itself, when it uses one.
    """
    after_import("tensorflow", _register)


def _register() -> None:
    # A node that cannot is better than none: TensorFlow then raises that it does not know an address.
    with contextlib.suppress(Exception):
        from tfos_lab import gfile

        gfile.register()
