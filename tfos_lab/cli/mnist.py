"""``tfos-lab mnist setup``: writes MNIST with Spark, as the files from which the programs in ``examples/`` train."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.cli.paths import find_checkout, kernel_environ
from tfos_lab.cli.terminal import echo, echo_error
from tfos_lab.core.paths import is_local
from tfos_lab.data.datasets.mnist import ImageData, mnist
from tfos_lab.data.tfrecords.tables import write_tfrecords
from tfos_lab.errors import ConfigError
from tfos_lab.texts import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DESCRIPTION = """\
Write MNIST's training and test images with Spark, as DIR/train and DIR/test. Each image is 784 integers from 0 to 255:

  csv        text, a line per image: its label, then the 784 values, separated by commas
  tfrecord   an Example per image, with the features image (784 int64) and label (int64)
  parquet    a row per image, with the columns image (array<int>) and label (bigint)

The images come from the folder mnist in $TFOS_LAB_DATA, Keras' cache or the network; without any of them, from
scikit-learn's handwritten digits. The command says which."""


def run(arguments: Sequence[str]) -> int:
    """Write the files; returns the exit code."""
    parser = argparse.ArgumentParser(prog="tfos-lab mnist", description="Prepare MNIST for the programs in examples/.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    setup = commands.add_parser(
        "setup",
        help="write the images as CSV, TFRecord or Parquet files",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_options(setup)
    given = parser.parse_args(arguments)
    try:
        _set_up(given)
    except Exception as error:  # noqa: BLE001 - whatever Spark or a file system says is the answer
        echo_error(f"tfos-lab mnist setup: {first_line(error)}")
        return 1
    return 0


def _add_options(setup: argparse.ArgumentParser) -> None:
    setup.add_argument("--format", required=True, choices=FORMATS, help="what to write")
    setup.add_argument("--output", required=True, metavar="DIR", help="folder, or address such as hdfs://host/mnist")
    setup.add_argument("--num-partitions", type=_positive, default=10, metavar="N", help="files per set (default: 10)")
    setup.add_argument("--rows", type=_positive, metavar="N", help="only N images for training, and N // 4 for testing")
    setup.add_argument("--master", help="where Spark runs, such as spark://host:7077 (default: local[*])")
    setup.add_argument("--overwrite", action="store_true", help="replace what is in DIR/train and DIR/test")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: at least one is needed")
    return number


def _set_up(given: argparse.Namespace) -> None:
    from pyspark.sql import SparkSession

    output = given.output.rstrip("/")
    _require_free(output, overwrite=given.overwrite)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has set what Spark needs
        os.environ.update(kernel_environ(os.environ, find_checkout()))
    digits = _first(mnist(), given.rows)
    builder = SparkSession.builder.appName("tfos-lab mnist setup").config("spark.ui.showConsoleProgress", "false")
    spark = (builder.master(given.master) if given.master else builder).getOrCreate()
    try:
        _write(spark, digits, given, output)
    finally:
        spark.stop()
    echo(f"{digits!r}\nwritten as {given.format} to {output}/train and {output}/test")


def _require_free(output: str, *, overwrite: bool) -> None:
    """Refuse to replace files before Spark is started; on other file systems Spark itself refuses."""
    there = [name for name in ("train", "test") if is_local(output) and Path(output, name).exists()]
    if there and not overwrite:
        raise ConfigError([f"{output}/{there[0]} is there already: give another --output, or --overwrite"])


def _first(digits: ImageData, rows: int | None) -> ImageData:
    if rows is None:
        return digits
    few = max(1, rows // 4)
    return replace(
        digits,
        x_train=digits.x_train[:rows],
        y_train=digits.y_train[:rows],
        x_test=digits.x_test[:few],
        y_test=digits.y_test[:few],
    )


def _write(spark: SparkSession, digits: ImageData, given: argparse.Namespace, output: str) -> None:
    write, mode = FORMATS[given.format], "overwrite" if given.overwrite else "error"
    write(digits.train_df(spark, given.num_partitions, "int"), f"{output}/train", mode)
    write(digits.test_df(spark, given.num_partitions, "int"), f"{output}/test", mode)


def _write_csv(images: DataFrame, path: str, mode: str) -> None:
    from pyspark.sql import functions as sql

    line = sql.concat_ws(",", sql.col("label").cast("string"), sql.col("image").cast("array<string>"))
    images.select(line).write.mode(mode).text(path)


def _write_tfrecord(images: DataFrame, path: str, mode: str) -> None:
    write_tfrecords(images, path, mode=mode)


def _write_parquet(images: DataFrame, path: str, mode: str) -> None:
    images.write.mode(mode).parquet(path)


FORMATS: dict[str, Callable[[DataFrame, str, str], None]] = {
    "csv": _write_csv,
    "tfrecord": _write_tfrecord,
    "parquet": _write_parquet,
}
