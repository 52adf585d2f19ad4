"""``examples/mnist/data_setup.py``: the files that it writes."""

from __future__ import annotations

import runpy
import sys

import pyarrow.parquet
import pytest

from tests.support.spark_submit import ROOT
from tfos_lab.data import mnist, read_tfrecords


@pytest.fixture
def set_up(spark, monkeypatch):
    """A function that runs the program with the tests' session, and leaves that as it is."""
    monkeypatch.setattr(type(spark), "stop", lambda _self: None)

    def run(folder, file_format, *options):
        argv = ["data_setup.py", "--format", file_format, "--output", str(folder), *options]
        monkeypatch.setattr(sys, "argv", argv)
        runpy.run_path(str(ROOT / "examples/mnist/data_setup.py"), run_name="__main__")

    return run


def content_of(spark, folder, file_format):
    """The images and labels, as they were written."""
    if file_format == "csv":
        lines = [part.read_text().splitlines() for part in sorted(folder.glob("part-*"))]
        rows = [[int(number) for number in line.split(",")] for part in lines for line in part]
        return sorted((row[0], row[1:]) for row in rows)
    if file_format == "parquet":
        rows = pyarrow.parquet.read_table(folder).to_pylist()
    else:
        rows = read_tfrecords(spark, str(folder)).collect()
    return sorted((row["label"], list(row["image"])) for row in rows)


@pytest.mark.parametrize("file_format", ["csv", "tfrecord", "parquet"])
def test_images_are_784_integers_with_a_label_in_every_format(set_up, spark, file_format, tmp_path, capsys):
    set_up(tmp_path / "mnist", file_format, "--rows", "40", "--num-partitions", "3")
    digits = mnist(download=False)
    parts = {"train": (digits.x_train[:40], digits.y_train[:40]), "test": (digits.x_test[:10], digits.y_test[:10])}
    for name, (images, labels) in parts.items():
        folder = tmp_path / "mnist" / name
        assert len(list(folder.glob("part-*"))) == 3
        expected = sorted((int(label), image.ravel().tolist()) for image, label in zip(images, labels, strict=True))
        assert content_of(spark, folder, file_format) == expected
    printed = capsys.readouterr().out
    assert printed.startswith("<40 training and 10 test images of 28 × 28: ")
    assert f"written as {file_format} to {tmp_path}/mnist/train and {tmp_path}/mnist/test" in printed


def test_files_that_are_there_are_kept_unless_they_may_be_overwritten(set_up, tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(Exception, match="already exists"):
        set_up(tmp_path, "csv", "--rows", "4")
    set_up(tmp_path, "csv", "--rows", "4", "--num-partitions", "1", "--overwrite")
    assert len(list((tmp_path / "train").glob("part-*"))) == 1
