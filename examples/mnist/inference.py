r"""Scores the test images in parallel, without a cluster, and writes text files.

    spark-submit --master spark://host:7077 --conf spark.cores.max=4 examples/mnist/inference.py \
        --data mnist/csv --format csv --export-dir models/export --output predictions

Each line reads "Label: 7, Prediction: 7". Spark's tasks score their partitions independently of one another; each of
Spark's Python processes loads the model once. All executors must find it.
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import tfos_lab


def read_rows(spark, folder, file_format):
    """Return a DataFrame of the columns image (784 numbers from 0 to 255) and label."""
    if file_format == "parquet":
        return spark.read.parquet(folder)
    if file_format == "tfrecord":
        return tfos_lab.data.read_tfrecords(spark, folder, "image array<int>, label int")
    numbers = sql.split("value", ",").cast("array<int>")  # the label, then the image
    return spark.read.text(folder).select(sql.slice(numbers, 2, 784).alias("image"), numbers[0].alias("label"))


def write_lines(scored, output):
    """Write a line such as "Label: 7, Prediction: 7" for each row, and return the share of those that agree."""
    scored.select(sql.format_string("Label: %d, Prediction: %d", "label", "prediction")).write.text(output)
    lines = scored.sparkSession.read.text(output)
    return lines.filter(lines.value.rlike(r"Label: (\d), Prediction: \1")).count() / lines.count()


def parse_arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder or address that the setup wrote; test/ in it is read")
    parser.add_argument("--format", choices=["csv", "tfrecord", "parquet"], default="csv", help="of the data")
    parser.add_argument("--batch-size", type=int, default=256, help="images that are scored at once")
    parser.add_argument("--export-dir", required=True, help="the SavedModel that a training program has exported")
    parser.add_argument("--output", required=True, help="folder for the text files; it must not exist")
    return parser.parse_args()


def main():
    """Score the images, and print the share that is right."""
    args = parse_arguments()
    spark = SparkSession.builder.appName("MNIST: inference").getOrCreate()
    rows = read_rows(spark, f"{args.data}/test", args.format)
    scored = tfos_lab.predict(rows, args.export_dir, "image", output="scores", batch_size=args.batch_size)
    best = sql.array_position("scores", sql.array_max("scores")) - 1
    accuracy = write_lines(scored.withColumn("prediction", best), args.output)
    print(f"accuracy: {accuracy:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
