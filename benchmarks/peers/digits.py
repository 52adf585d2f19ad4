"""MNIST's digits in a file that both sides read."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.rig import Rig
from tfos_lab.data import ImageData, mnist

# As many as MNIST has for training.
MANY = 60_000


def write_digits(rig: Rig, rows: int) -> str:
    """Write ``rows`` rows, of 784 integers as ``image`` and a ``label``; return the path of the parquet file.

    If this machine has fewer digits, they are repeated.
    """
    digits = mnist()
    chosen = np.arange(rows) % len(digits.x_train)
    images = ImageData(digits.x_train[chosen], digits.y_train[chosen], digits.x_test, digits.y_test, digits.source)
    path = str(rig.folder / f"mnist-{rows}")
    images.train_df(rig.spark, as_="int").write.mode("ignore").parquet(path)
    return path
