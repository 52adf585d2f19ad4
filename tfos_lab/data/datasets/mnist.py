"""MNIST from wherever it is available, as arrays and as DataFrames.

`mnist` tries the sources of `mnist_files` in turn and names the one that it used. `ImageData.train_df` makes
DataFrames through Arrow, which takes tenths of a second where a list of rows takes minutes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tfos_lab.data.datasets import mnist_files
from tfos_lab.data.frames import to_dataframe
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

Form = Literal["array", "image", "int", "binary"]
FORMS = ("array", "image", "int", "binary")


@dataclass(frozen=True, eq=False, repr=False)
class ImageData:
    """Labelled images for training and testing, and where they come from.

    Parameters
    ----------
    x_train, x_test : numpy.ndarray
        uint8 ``(n, height, width)``: 0 is the background, 255 the ink.
    y_train, y_test : numpy.ndarray
        int64 ``(n,)``: the digit each image shows.
    source : str
        A description of where the images come from.

    Examples
    --------
    >>> blank = np.zeros((2, 28, 28), np.uint8)
    >>> ImageData(blank, np.array([0, 1]), blank[:1], np.array([1]), source="nowhere")
    <2 training and 1 test images of 28 × 28: nowhere>
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    source: str

    def __repr__(self) -> str:
        height, width = self.x_train.shape[1:]
        counts = f"{len(self.x_train):,} training and {len(self.x_test):,} test images"
        return f"<{counts} of {height} × {width}: {self.source}>"

    def train_df(
        self, spark: SparkSession | None = None, partitions: int | None = None, as_: Form = "array"
    ) -> DataFrame:
        """Make a DataFrame of the training images, with columns ``image`` and ``label`` (bigint).

        Parameters
        ----------
        spark : pyspark.sql.SparkSession, optional
            Classic or Spark Connect; the active session by default.
        partitions : int, optional
            Number of partitions to spread the rows over evenly; by default Spark decides.
        as_ : str
            The form of ``image``: ``"array"`` is array<float> of 784 values from 0 to 1; ``"image"`` has them as
            28 nested arrays of 28; ``"int"`` array<int> of 784 values from 0 to 255; ``"binary"`` 784 bytes.
        """
        return to_dataframe(image_table(self.x_train, self.y_train, as_), spark, partitions)

    def test_df(
        self, spark: SparkSession | None = None, partitions: int | None = None, as_: Form = "array"
    ) -> DataFrame:
        """Make a DataFrame of the test images; see `train_df`."""
        return to_dataframe(image_table(self.x_test, self.y_test, as_), spark, partitions)


def mnist(*, download: bool = True) -> ImageData:
    """Load MNIST, or the nearest data that is available.

    Tries, in this order, the folder ``mnist`` in the one that the environment variable ``TFOS_LAB_DATA`` names (the
    original files such as ``t10k-images-idx3-ubyte.gz``, or ``mnist.npz``), Keras' cache, the download that
    ``keras.datasets`` uses, and scikit-learn's 1,797 handwritten digits, scaled from 8 × 8 to 28 × 28.
    Where there is one set of images, as in a folder that has the test images alone, every fifth of them is for testing,
    and the others are mixed, always in the same way.

    Parameters
    ----------
    download : bool
        Whether to use the network.

    Returns
    -------
    ImageData
        Its ``source``, which is also in its repr, names where it comes from.

    Raises
    ------
    ConfigError
        If a file in the folder is damaged; if there is no source at all, with what to do about it.

    Examples
    --------
    >>> mnist()  # doctest: +SKIP
    <60,000 training and 10,000 test images of 28 × 28: MNIST, from /home/ann/.keras/datasets/mnist.npz>
    """
    found = (
        mnist_files.from_folder()
        or mnist_files.from_keras_cache()
        or (mnist_files.from_network() if download else None)
        or mnist_files.from_scikit_learn()
    )
    if found is None:
        problem = (
            "no digits to be had: put MNIST's files into the folder mnist of the one that TFOS_LAB_DATA names, "
            "allow the network, or install scikit-learn (pip install scikit-learn) for its handwritten digits"
        )
        raise ConfigError([problem])
    digits = ImageData(*found.arrays, source=found.source)
    logger.info("loaded %r", digits)
    return digits


def image_table(images: np.ndarray, labels: np.ndarray, as_: Form = "array") -> pa.Table:
    """Make an Arrow table of columns ``image``, as `ImageData.train_df` has it, and ``label``; no Python per row."""
    import pyarrow as pa

    if as_ not in FORMS:
        raise ConfigError([f"as_={as_!r}: use one of {', '.join(map(repr, FORMS))}"])
    return pa.table({"image": _image_column(images, as_), "label": pa.array(labels.astype(np.int64))})


def _image_column(images: np.ndarray, as_: Form) -> pa.Array:
    import pyarrow as pa

    from tfos_lab.data.batches import to_arrow

    values: np.ndarray
    flat = images.reshape(len(images), images.shape[1] * images.shape[2])
    match as_:
        case "binary":
            memory = pa.py_buffer(np.ascontiguousarray(flat))
            return pa.Array.from_buffers(pa.binary(flat.shape[1]), len(flat), [None, memory]).cast(pa.binary())
        case "int":
            values = flat.astype(np.int32)
        case "array":
            values = flat / np.float32(255)
        case "image":
            values = images / np.float32(255)
    return to_arrow({"image": values}).column(0)
