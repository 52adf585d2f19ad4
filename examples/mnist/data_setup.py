r"""Writes MNIST's training and test images with Spark, as DIR/train and DIR/test, for the other programs.

    spark-submit --master spark://host:7077 examples/mnist/data_setup.py --format csv --output mnist/csv

Each image is 784 integers from 0 to 255:

  csv        text, a line per image: its label, then the 784 values, separated by commas
  tfrecord   an Example per image, with the features image (784 int64) and label (int64)
  parquet    a row per image, with the columns image (array<int>) and label (bigint)

The images come from the folder mnist in $TFOS_LAB_DATA, Keras' cache or the network; without any of them, from
scikit-learn's handwritten digits. The program says which. The folder has to be on a file system that all executors
share.
"""

import argparse
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import tfos_lab


def write(images, path, args):
    """Write a DataFrame of images and labels."""
    mode = "overwrite" if args.overwrite else "error"
    if args.format == "csv":
        line = sql.concat_ws(",", sql.col("label").cast("string"), sql.col("image").cast("array<string>"))
        images.select(line).write.mode(mode).text(path)
    elif args.format == "tfrecord":
        tfos_lab.data.write_tfrecords(images, path, mode=mode)
    else:
        images.write.mode(mode).parquet(path)


def first(digits, rows):
    """Return so many images for training, and a quarter as many for testing."""
    few = max(1, rows // 4)
    train = {"x_train": digits.x_train[:rows], "y_train": digits.y_train[:rows]}
    return replace(digits, **train, x_test=digits.x_test[:few], y_test=digits.y_test[:few])


def main():
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", required=True, choices=["csv", "tfrecord", "parquet"], help="what to write")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder, or address such as hdfs://host/mnist")
    parser.add_argument("--num-partitions", type=int, default=10, metavar="N", help="files per set (default: 10)")
    parser.add_argument("--rows", type=int, metavar="N", help="only N images for training, and N // 4 for testing")
    parser.add_argument("--overwrite", action="store_true", help="replace what is in DIR/train and DIR/test")
    args = parser.parse_args()
    digits = first(tfos_lab.data.mnist(), args.rows) if args.rows else tfos_lab.data.mnist()
    spark = SparkSession.builder.appName("MNIST").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    write(digits.train_df(spark, args.num_partitions, "int"), f"{args.output}/train", args)
    write(digits.test_df(spark, args.num_partitions, "int"), f"{args.output}/test", args)
    spark.stop()
    print(f"{digits!r}\nwritten as {args.format} to {args.output}/train and {args.output}/test")


if __name__ == "__main__":
    main()
