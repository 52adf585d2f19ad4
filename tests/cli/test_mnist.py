"""``tfos-lab mnist setup``: the files that it writes, and what it refuses before Spark starts."""

from __future__ import annotations

import pyarrow.parquet
import pytest

from tfos_lab.cli import main
from tfos_lab.data import mnist, read_tfrecords


@pytest.fixture
def in_session(spark, monkeypatch):
    """The command uses the tests' session, and leaves it as it is."""
    monkeypatch.setattr(type(spark), "stop", lambda _self: None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "0")


def set_up(folder, file_format, *options):
    return main(["mnist", "setup", "--format", file_format, "--output", str(folder), *options])


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
def test_images_are_784_integers_with_a_label_in_every_format(in_session, spark, file_format, tmp_path, capsys):
    assert set_up(tmp_path / "mnist", file_format, "--rows", "40", "--num-partitions", "3") == 0
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


def test_files_that_are_there_are_kept_unless_they_may_be_overwritten(in_session, tmp_path, capsys):
    (tmp_path / "train").mkdir()
    assert set_up(tmp_path, "csv", "--rows", "4") == 1
    expected = f"tfos-lab mnist setup: {tmp_path}/train is there already: give another --output, or --overwrite\n"
    assert capsys.readouterr().err == expected
    assert set_up(tmp_path, "csv", "--rows", "4", "--num-partitions", "1", "--overwrite") == 0
    assert len(list((tmp_path / "train").glob("part-*"))) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["setup", "--output", "x"], "the following arguments are required: --format"),
        (
            ["setup", "--format", "xml", "--output", "x"],
            "invalid choice: 'xml' (choose from 'csv', 'tfrecord', 'parquet')",
        ),
        (["setup", "--format", "csv", "--output", "x", "--num-partitions", "0"], "0: at least one is needed"),
    ],
)
def test_options_that_are_wrong_are_named(arguments, problem, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["mnist", *arguments])
    assert caught.value.code == 2
    assert problem in capsys.readouterr().err
