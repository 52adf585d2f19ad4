"""``examples/mnist/data_setup.py``: the files that it writes."""

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.support import records
from tfos_lab.data import mnist

pytestmark = pytest.mark.spark

PROGRAM = "mnist/data_setup.py"
IMAGES = pa.schema([("label", pa.int64()), ("image", pa.list_(pa.int64()))])


def content_of(folder, file_format):
    """The images and labels, as they were written."""
    if file_format == "csv":
        lines = [part.read_text().splitlines() for part in sorted(folder.glob("part-*"))]
        rows = [[int(number) for number in line.split(",")] for part in lines for line in part]
        return sorted((row[0], row[1:]) for row in rows)
    table = records.read(folder, IMAGES) if file_format == "tfrecord" else pyarrow.parquet.read_table(folder)
    return sorted((row["label"], row["image"]) for row in table.to_pylist())


@pytest.mark.parametrize("file_format", ["csv", "tfrecord", "parquet"])
def test_images_are_784_integers_with_a_label_in_every_format(programs, file_format):
    output = f"formats/{file_format}"
    options = ("--output", output, "--rows", "40", "--num-partitions", "3")
    printed = programs.run(PROGRAM, "--format", file_format, *options)
    digits = mnist(download=False)
    parts = {"train": (digits.x_train[:40], digits.y_train[:40]), "test": (digits.x_test[:10], digits.y_test[:10])}
    for name, (images, labels) in parts.items():
        folder = programs.folder / output / name
        assert len(list(folder.glob("part-*"))) == 3
        expected = sorted((int(label), image.ravel().tolist()) for image, label in zip(images, labels, strict=True))
        assert content_of(folder, file_format) == expected
    assert printed.startswith("<40 training and 10 test images of 28 × 28: ")
    assert f"written as {file_format} to {output}/train and {output}/test" in printed


def test_files_that_are_there_are_kept_unless_they_may_be_overwritten(programs):
    (programs.folder / "kept" / "train").mkdir(parents=True)
    options = ("--format", "csv", "--output", "kept", "--rows", "4", "--num-partitions", "1")
    with pytest.raises(AssertionError, match="already exists"):
        programs.run(PROGRAM, *options)
    programs.run(PROGRAM, *options, "--overwrite")
    assert len(list((programs.folder / "kept" / "train").glob("part-*"))) == 1
