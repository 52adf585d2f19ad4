"""Has TensorFlow know remote addresses wherever tfos_lab runs it: on nodes, in notebooks, in plain programs."""

from __future__ import annotations

import contextlib


def register_file_systems() -> None:
    """Have TensorFlow read and write remote addresses; each process opens them itself, when it uses one."""
    # A node that cannot is better than none: TensorFlow then raises that it does not know an address.
    with contextlib.suppress(Exception):
        from tfos_lab import gfile

        gfile.register()
