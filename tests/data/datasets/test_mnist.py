"""Where MNIST is looked for, in which order, and the error when a file is damaged."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import struct
import sys
import threading

import numpy as np
import pytest

from tfos_lab.data import ImageData, mnist
from tfos_lab.data.datasets import mnist_files
from tfos_lab.data.datasets.mnist import image_table
from tfos_lab.errors import ConfigError

IMAGES = np.random.default_rng(0).integers(0, 256, (10, 28, 28), dtype=np.uint8)
LABELS = np.arange(10, dtype=np.uint8)


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Nothing to be found anywhere, and an address that nobody serves."""
    monkeypatch.delenv("TFOS_LAB_DATA", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setattr(mnist_files, "URL", "http://127.0.0.1:9/mnist.npz")
    return tmp_path


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def put_idx(folder, name, images=IMAGES, labels=LABELS, *, zipped=True):
    folder.mkdir(parents=True, exist_ok=True)
    for what, array in (("images-idx3", images), ("labels-idx1", labels)):
        content = idx(array)
        path = folder / f"{name}-{what}-ubyte{'.gz' if zipped else ''}"
        path.write_bytes(gzip.compress(content) if zipped else content)


def put_npz(path, monkeypatch, *, trusted=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, x_train=IMAGES, y_train=LABELS, x_test=IMAGES[:3], y_test=LABELS[:3])
    if trusted:
        monkeypatch.setattr(mnist_files, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serve Keras' file over HTTP; returns the folder, and the paths that were asked for."""
    folder, asked = tmp_path / "served", []
    put_npz(folder / "mnist.npz", monkeypatch)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, directory=str(folder), **kwargs)

        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="serve mnist.npz")
        thread.start()
        monkeypatch.setattr(mnist_files, "URL", f"http://127.0.0.1:{server.server_port}/mnist.npz")
        yield folder, asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("zipped", [True, False])
def test_the_original_files_of_the_folder_come_first(places, monkeypatch, zipped):
    put_idx(places / "mnist", "train", zipped=zipped)
    put_idx(places / "mnist", "t10k", IMAGES[:4], LABELS[:4], zipped=zipped)
    put_npz(places / "keras/datasets/mnist.npz", monkeypatch)
    monkeypatch.setenv("TFOS_LAB_DATA", str(places))
    digits = mnist()
    np.testing.assert_array_equal(digits.x_train, IMAGES)
    np.testing.assert_array_equal(digits.x_test, IMAGES[:4])
    assert digits.y_train.dtype == np.int64
    assert repr(digits) == f"<10 training and 4 test images of 28 × 28: MNIST, from {places / 'mnist'}>"


def test_the_folder_may_hold_the_npz_file(places, monkeypatch):
    put_npz(places / "mnist/mnist.npz", monkeypatch, trusted=False)
    monkeypatch.setenv("TFOS_LAB_DATA", str(places))
    assert mnist().source == f"MNIST, from {places / 'mnist/mnist.npz'}"


@pytest.mark.parametrize(("name", "which"), [("t10k", "test"), ("train", "training")])
def test_every_fifth_image_is_held_out_where_there_is_only_one_file(places, monkeypatch, name, which):
    put_idx(places / "mnist", name)
    monkeypatch.setenv("TFOS_LAB_DATA", str(places))
    digits = mnist()
    assert digits.y_test.tolist() == [4, 9]
    assert digits.y_train.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    np.testing.assert_array_equal(digits.x_test, IMAGES[[4, 9]])
    assert digits.source.startswith(f"MNIST's 10 {which} images alone, from ")


def test_an_empty_folder_is_skipped(places, monkeypatch, caplog):
    put_npz(places / "keras/datasets/mnist.npz", monkeypatch)
    monkeypatch.setenv("TFOS_LAB_DATA", str(places))
    assert mnist().source == f"MNIST, from {places / 'keras/datasets/mnist.npz'}"
    assert "there are no MNIST files in" in caplog.text


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: gzip.compress(content)[:-20], "images-idx3-ubyte.gz: .*end-of-stream"),
        (lambda content: b"not zipped", "images-idx3-ubyte.gz: Not a gzipped file"),
        (lambda content: gzip.compress(content[:-1]), r"holds 7,839 values, and announces \(10, 28, 28\)"),
        (lambda content: gzip.compress(b"\x00\x00\x0d" + content[3:]), "no idx file of bytes"),
        (lambda content: gzip.compress(b""), "unpack"),
        (lambda content: gzip.compress(idx(IMAGES[:9])), r"no images with their labels"),
    ],
)
def test_a_damaged_file_of_the_folder_is_named(places, monkeypatch, damage, message):
    put_idx(places / "mnist", "t10k")
    (places / "mnist/t10k-images-idx3-ubyte.gz").write_bytes(damage(idx(IMAGES)))
    monkeypatch.setenv("TFOS_LAB_DATA", str(places))
    with pytest.raises(ConfigError, match=f"TFOS_LAB_DATA: cannot read MNIST in .*{message}"):
        mnist()


def test_an_npz_file_without_the_arrays_is_refused(places, monkeypatch):
    (places / "mnist").mkdir()
    np.savez(places / "mnist/mnist.npz", x_train=IMAGES)
    monkeypatch.setenv("TFOS_LAB_DATA", str(places))
    with pytest.raises(ConfigError, match=r"mnist.npz lacks y_train, x_test, y_test"):
        mnist()


def test_keras_cache_spares_the_network(places, served, monkeypatch):
    put_npz(places / "keras/datasets/mnist.npz", monkeypatch)
    assert len(mnist().x_test) == 3
    assert served[1] == []


def test_the_download_fills_keras_cache(places, served):
    cached = places / "keras/datasets/mnist.npz"
    assert mnist().source == f"MNIST, from {cached}"
    assert cached.read_bytes() == (served[0] / "mnist.npz").read_bytes()
    mnist()
    assert served[1] == ["/mnist.npz"]


def test_a_damaged_cache_is_downloaded_again(places, served, caplog):
    cached = places / "keras/datasets/mnist.npz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"half a download")
    assert mnist().source == f"MNIST, from {cached}"
    assert "is damaged" in caplog.text


def test_a_download_of_anything_else_is_not_kept(places, served, monkeypatch, caplog):
    monkeypatch.setattr(mnist_files, "SHA256", "0" * 64)
    assert mnist().source.startswith("not MNIST but scikit-learn's")
    assert list((places / "keras/datasets").iterdir()) == []
    assert "has the checksum" in caplog.text


def test_a_missing_file_a_slow_server_and_a_read_only_cache_are_no_errors(places, served, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(mnist_files, "URL", mnist_files.URL + ".gone")
        assert "scikit-learn" in mnist().source
    with monkeypatch.context() as patch:
        patch.setattr(mnist_files, "DOWNLOAD_TIMEOUT_S", -1.0)
        assert "scikit-learn" in mnist().source
    (places / "file").write_bytes(b"")
    monkeypatch.setenv("KERAS_HOME", str(places / "file"))
    assert "scikit-learn" in mnist().source


def test_the_network_is_not_used_when_download_is_false(served):
    assert "scikit-learn" in mnist(download=False).source
    assert served[1] == []


def test_offline_the_digits_of_scikit_learn_stand_in(places):
    digits = mnist()
    assert (digits.x_train.shape, digits.x_test.shape) == ((1438, 28, 28), (359, 28, 28))
    assert (digits.x_train.dtype, digits.y_train.dtype) == ("uint8", "int64")
    assert (digits.x_train.min(), digits.x_train.max()) == (0, 255)
    assert sorted(set(digits.y_test.tolist())) == list(range(10))
    assert "scikit-learn's 1,797 handwritten digits, scaled from 8 × 8 to 28 × 28" in digits.source
    assert repr(digits).startswith("<1,438 training and 359 test images of 28 × 28: not MNIST but")


def test_without_any_source_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ConfigError, match=r"TFOS_LAB_DATA.*allow the network.*pip install scikit-learn"):
        mnist()


def test_scaling_keeps_flat_images_flat_and_the_same_size_unchanged():
    rng = np.random.default_rng(1)
    images = rng.random((3, 8, 8))
    np.testing.assert_allclose(mnist_files.scale_images(images, 8), images)
    np.testing.assert_allclose(mnist_files.scale_images(np.full((1, 8, 8), 0.7), 28), 0.7)
    scaled = mnist_files.scale_images(images, 28)
    assert scaled.min() >= images.min()
    assert scaled.max() <= images.max()
    np.testing.assert_allclose(mnist_files.scale_images(np.ones((1, 1, 1)), 3), 1.0)


def test_no_images_make_an_empty_table():
    table = image_table(IMAGES[:0], LABELS[:0])
    assert table.num_rows == 0
    with pytest.raises(ConfigError, match="as_='jpeg': use one of 'array', 'image', 'int', 'binary'"):
        image_table(IMAGES, LABELS, as_="jpeg")


def test_without_a_session_there_is_no_dataframe(monkeypatch):
    from pyspark.sql import SparkSession

    from tfos_lab.errors import NoSession

    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    digits = ImageData(IMAGES, LABELS, IMAGES, LABELS, source="a test")
    with pytest.raises(NoSession, match="no active SparkSession"):
        digits.train_df()
    with pytest.raises(ConfigError, match="partitions=0: at least one"):
        digits.train_df(partitions=0)
