"""MNIST and the Titanic's passengers: where they are looked for, in which order, and what a damaged file says."""

from __future__ import annotations

import gzip
import re
import struct
import sys

import numpy as np
import pytest

from tfos_lab.data import ImageData, mnist, read_tfrecords, register_tfrecords, titanic
from tfos_lab.errors import ConfigError, NoSession

IMAGES = np.random.default_rng(0).integers(0, 256, (10, 28, 28), dtype=np.uint8)
LABELS = np.arange(10, dtype=np.uint8)


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """A folder in which nothing is to be found yet, and no way into the network."""
    monkeypatch.setenv("TFOS_LAB_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    return tmp_path


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def put_idx(folder, name, images=IMAGES, labels=LABELS, *, zipped=True):
    folder.mkdir(parents=True, exist_ok=True)
    for what, array in (("images-idx3", images), ("labels-idx1", labels)):
        content = idx(array)
        path = folder / f"{name}-{what}-ubyte{'.gz' if zipped else ''}"
        path.write_bytes(gzip.compress(content) if zipped else content)


def put_npz(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, x_train=IMAGES, y_train=LABELS, x_test=IMAGES[:3], y_test=LABELS[:3])
    return path


@pytest.mark.parametrize("zipped", [True, False])
def test_the_original_files_of_the_folder_come_first(places, zipped):
    folder = places / "mine/mnist"
    put_idx(folder, "train", zipped=zipped)
    put_idx(folder, "t10k", IMAGES[:4], LABELS[:4], zipped=zipped)
    digits = mnist()
    np.testing.assert_array_equal(digits.x_train, IMAGES)
    np.testing.assert_array_equal(digits.x_test, IMAGES[:4])
    assert digits.y_train.dtype == np.int64
    assert repr(digits) == f"<10 training and 4 test images of 28 × 28: MNIST, from {folder}>"


def test_the_folder_may_hold_the_npz_file(places):
    path = put_npz(places / "mine/mnist/mnist.npz")
    assert mnist().source == f"MNIST, from {path}"
    np.savez(path, x_train=IMAGES)
    with pytest.raises(ConfigError, match=r"mnist.npz lacks y_train, x_test, y_test"):
        mnist()


@pytest.mark.parametrize(("name", "which"), [("t10k", "test"), ("train", "training")])
def test_every_fifth_image_is_held_out_where_there_is_only_one_file_and_the_others_are_mixed(places, name, which):
    put_idx(places / "mine/mnist", name)
    digits = mnist()
    assert digits.y_test.tolist() == [4, 9]
    assert sorted(digits.y_train) == [0, 1, 2, 3, 5, 6, 7, 8] != digits.y_train.tolist()
    assert mnist().y_train.tolist() == digits.y_train.tolist()
    np.testing.assert_array_equal(digits.x_train, IMAGES[digits.y_train])
    np.testing.assert_array_equal(digits.x_test, IMAGES[[4, 9]])
    assert digits.source.startswith(f"MNIST's 10 {which} images alone, from ")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: gzip.compress(content)[:-20], "images-idx3-ubyte.gz: .*end-of-stream"),
        (lambda content: gzip.compress(content[:-1]), r"holds 7,839 values, and announces \(10, 28, 28\)"),
        (lambda content: gzip.compress(idx(IMAGES[:9])), r"no images with their labels"),
    ],
)
def test_a_damaged_file_of_the_folder_is_named(places, damage, message):
    put_idx(places / "mine/mnist", "t10k")
    (places / "mine/mnist/t10k-images-idx3-ubyte.gz").write_bytes(damage(idx(IMAGES)))
    with pytest.raises(ConfigError, match=f"TFOS_LAB_DATA: cannot read MNIST in .*{message}"):
        mnist()


def test_what_is_no_mnist_in_the_cache_is_passed_over(places, caplog):
    cached = put_npz(places / "keras/datasets/mnist.npz")
    assert "scikit-learn" in mnist(download=False).source
    assert f"{cached} is damaged" in caplog.text


def test_offline_the_digits_of_scikit_learn_stand_in(caplog):
    digits = mnist()
    assert "there are no MNIST files in" in caplog.text
    assert (digits.x_train.shape, digits.x_test.shape) == ((1438, 28, 28), (359, 28, 28))
    assert (digits.x_train.dtype, digits.y_train.dtype) == ("uint8", "int64")
    assert (digits.x_train.min(), digits.x_train.max()) == (0, 255)
    assert sorted(set(digits.y_test.tolist())) == list(range(10))
    assert "scikit-learn's 1,797 handwritten digits, scaled from 8 × 8 to 28 × 28" in digits.source


def test_without_any_source_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ConfigError, match=r"TFOS_LAB_DATA.*allow the network.*pip install scikit-learn"):
        mnist()


def test_without_a_session_there_is_no_dataframe(monkeypatch):
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    digits = ImageData(IMAGES, LABELS, IMAGES, LABELS, source="a test")
    with pytest.raises(NoSession, match="no active SparkSession"):
        digits.train_df()
    for call in (digits.train_df, register_tfrecords, lambda spark: read_tfrecords(spark, "x")):
        with pytest.raises(ConfigError, match="spark is a int: a SparkSession is needed"):
            call(3)
    with pytest.raises(ConfigError, match="partitions=0: at least one"):
        digits.train_df(partitions=0)
    with pytest.raises(ConfigError, match="as_='jpeg': use one of 'array', 'image', 'int', 'binary'"):
        digits.train_df(as_="jpeg")


# ---- the Titanic ----------------------------------------------------------------------------------------------------

TRAIN = "PassengerId,Survived,Name,Age,Cabin\n1,0,Ann,30,\n2,1,Bob,,C85\n"
TEST = "PassengerId,Name,Age,Cabin\n3,Eve,20.5,\n"


def put_passengers(folder, train=TRAIN):
    folder.mkdir(parents=True)
    (folder / "train.csv").write_text(train)
    (folder / "test.csv").write_text(TEST)


def test_passengers_of_the_folder_come_before_those_of_the_cache(places):
    put_passengers(places / "cache/tfos_lab/titanic")
    assert repr(titanic()).startswith("<2 training and 1 test rows: the Titanic's passengers, from ")
    put_passengers(places / "mine/titanic", train=TRAIN + "4,1,Zoe,4,\n")
    passengers = titanic(stand_in=True)
    assert len(passengers.train) == 3
    assert passengers.source.endswith(str(places / "mine/titanic"))
    assert "Survived" not in passengers.test


def test_passengers_who_are_missing_or_damaged_are_told_with_the_folders_for_them(places):
    with pytest.raises(ConfigError, match=rf"no Titanic data in {re.escape(str(places))}/mine/titanic or .*/cache/"):
        titanic()
    put_passengers(places / "cache/tfos_lab/titanic", train="")
    with pytest.raises(ConfigError, match=r"cannot read the Titanic data in .*titanic: No columns"):
        titanic()


def test_made_up_passengers_stand_in_where_they_are_asked_for():
    passengers = titanic(stand_in=True)
    assert repr(passengers).startswith("<891 training and 418 test rows: made-up passengers, as there are no Titanic")
    assert passengers.train.equals(titanic(stand_in=True).train), "they are the same each time"
    assert list(passengers.test) == [name for name in passengers.train if name != "Survived"]
    rates = passengers.train.groupby("Sex").Survived.mean()
    assert rates["female"] > 2 * rates["male"]


def test_gaps_become_nulls_of_the_right_type(places, spark):
    put_passengers(places / "cache/tfos_lab/titanic")
    passengers = titanic()
    df = passengers.train_df(spark)
    assert dict(df.dtypes) == {
        "PassengerId": "bigint",
        "Survived": "bigint",
        "Name": "string",
        "Age": "double",
        "Cabin": "string",
    }
    assert [tuple(row) for row in df.collect()] == [(1, 0, "Ann", 30.0, None), (2, 1, "Bob", None, "C85")]
    assert passengers.test_df(partitions=1).count() == 1
