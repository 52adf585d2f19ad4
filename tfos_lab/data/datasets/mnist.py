"""MNIST from wherever it is available, as arrays and as DataFrames.

`mnist` tries its sources in turn, and names the one that it used. None of them imports TensorFlow: they share Keras'
cache by the name, address and checksum of its file. `ImageData.train_df` makes
DataFrames through Arrow, which takes tenths of a second where a list of rows takes minutes.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

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
    digits = from_folder() or from_keras_cache() or (from_network() if download else None) or from_scikit_learn()
    if digits is None:
        problem = (
            "no digits to be had: put MNIST's files into the folder mnist of the one that TFOS_LAB_DATA names, "
            "allow the network, or install scikit-learn (pip install scikit-learn) for its handwritten digits"
        )
        raise ConfigError([problem])
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


# ---- where they come from --------------------------------------------------------------------------------------------


# What keras.datasets.mnist downloads, so that each finds the other's file in the cache.
URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
CONNECT_TIMEOUT_S = 5.0

_NAMES = ("x_train", "y_train", "x_test", "y_test")


def from_folder() -> ImageData | None:
    """Read the folder ``mnist`` in the one that TFOS_LAB_DATA names; a ConfigError names a damaged file."""
    root = os.environ.get("TFOS_LAB_DATA")
    if not root:
        return None
    folder = Path(root).expanduser() / "mnist"
    try:
        if (folder / "mnist.npz").is_file():
            return _read_npz(folder / "mnist.npz")
        train, test = _read_pair(folder, "train"), _read_pair(folder, "t10k")
    except (OSError, EOFError, ValueError, struct.error, zipfile.BadZipFile) as error:
        raise ConfigError([f"TFOS_LAB_DATA: cannot read MNIST in {folder}: {error}"]) from error
    if train and test:
        return ImageData(*train, *test, source=f"MNIST, from {folder}")
    only = train or test
    if only is None:
        logger.warning("TFOS_LAB_DATA: there are no MNIST files in %s", folder)
        return None
    which = f"{len(only[0]):,} {'training' if train else 'test'} images"
    source = f"MNIST's {which} alone, from {folder}, every fifth of them for testing"
    return _hold_out_every_fifth(*only, source=source)


def from_keras_cache() -> ImageData | None:
    """Read the file in Keras' cache, unless it is not the one that Keras downloads."""
    path = keras_cache() / "mnist.npz"
    if not path.is_file():
        return None
    if _sha256(path) != SHA256:
        logger.warning("%s is damaged, or another file than keras.datasets downloads: passed over", path)
        return None
    return _read_npz(path)


def from_network() -> ImageData | None:
    """Download the file into Keras' cache, atomically and verified, and read it there."""
    from http.client import HTTPException
    from urllib.request import urlopen

    path = keras_cache() / "mnist.npz"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".mnist-") as folder:
            part = Path(folder) / path.name
            # S310: the address is a constant.
            with urlopen(URL, timeout=CONNECT_TIMEOUT_S) as response, part.open("wb") as target:
                shutil.copyfileobj(response, target)
            digest = _sha256(part)
            if digest != SHA256:
                logger.warning("%s has the checksum %s, not %s: passed over", URL, digest, SHA256)
                return None
            part.replace(path)
    except (OSError, HTTPException) as error:
        logger.info("could not download %s: %s", URL, error)
        return None
    return _read_npz(path)


def from_scikit_learn() -> ImageData | None:
    """Return scikit-learn's handwritten digits, if it is installed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        return None
    digits = load_digits()
    # Bilinear interpolation between the centres of the pixels.
    centres = (np.arange(28) + 0.5) * 8 / 28 - 0.5
    weights = np.stack([np.interp(centres, np.arange(8), one) for one in np.eye(8)], axis=1)
    images = (weights @ (digits.images / 16.0) @ weights.T * 255).round().astype(np.uint8)
    source = (
        f"not MNIST but scikit-learn's {len(images):,} handwritten digits, scaled from 8 × 8 to 28 × 28, every fifth "
        "of them for testing"
    )
    return _hold_out_every_fifth(images, digits.target.astype(np.int64), source=source)


def keras_cache() -> Path:
    """Return the folder in which Keras keeps data sets."""
    home = os.environ.get("KERAS_HOME")
    return (Path(home) if home else Path.home() / ".keras") / "datasets"


def _read_pair(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Read images and labels in the format of the original files; None if they do not exist."""
    images, labels = (_find(folder, f"{name}-{what}") for what in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    if images is None or labels is None:
        return None
    x, y = _read_idx(images), _read_idx(labels)
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
        raise ValueError(f"{images.name} holds {x.shape} and {labels.name} {y.shape}: no images with their labels")
    return x, y.astype(np.int64)


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def _read_idx(path: Path) -> np.ndarray:
    """Read an idx file: two zeros, the type (8 is uint8), the number of dimensions, their sizes, the values."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path.name}: {error}") from error
    zeros, kind, dims = struct.unpack_from(">HBB", content)
    if zeros != 0 or kind != 8:
        raise ValueError(f"{path.name} is no idx file of bytes")
    shape = struct.unpack_from(f">{dims}I", content, 4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * dims)
    if len(values) != int(np.prod(shape)):
        raise ValueError(f"{path.name} holds {len(values):,} values, and announces {shape}")
    return values.reshape(shape)


def _read_npz(path: Path) -> ImageData:
    with np.load(path, allow_pickle=False) as file:
        missing = [name for name in _NAMES if name not in file]
        if missing:
            raise ValueError(f"{path.name} lacks {', '.join(missing)}")
        x_train, y_train, x_test, y_test = (file[name] for name in _NAMES)
    return ImageData(x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64), source=f"MNIST, from {path}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hold_out_every_fifth(images: np.ndarray, labels: np.ndarray, source: str) -> ImageData:
    """Hold out every fifth image, and mix the others, always in the same way.

    MNIST's test set has the easier digits in its first half: in its order, the loss would jump with each epoch.
    """
    held_out = np.arange(len(images)) % 5 == 4
    kept = np.random.default_rng(0).permutation(np.flatnonzero(~held_out))
    return ImageData(images[kept], labels[kept], images[held_out], labels[held_out], source)
