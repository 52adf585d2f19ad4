r"""Scores the test images on the nodes of a cluster, and writes text files.

    spark-submit --master spark://host:7077 --conf spark.cores.max=4 examples/mnist/cluster_inference.py \
        --data mnist/csv --format csv --cluster-size 2 --export-dir models/export --output predictions

Each line reads "Label: 7, Prediction: 7". Rows and results stay in order. Unlike `inference.py`, this works with any
function that answers batches of rows. Without ``--master``, or with ``--master local[*]``, the nodes are processes on
this machine.
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import tfos_lab


def answer(args, ctx):
    """Answer each batch of rows with the digits that the model sees; every node runs this function."""
    import tensorflow as tf

    model = tf.saved_model.load(ctx.absolute_path(args.export_dir))
    for batch in ctx.dataset(args.batch_size):
        scores = model.serve(tf.cast(batch["image"], tf.float32))
        ctx.put_results({"prediction": tf.argmax(scores, axis=1)})


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
    parser.add_argument("--cluster-size", type=int, default=2, help="number of nodes")
    parser.add_argument("--batch-size", type=int, default=256, help="images that are scored at once")
    parser.add_argument("--export-dir", required=True, help="the SavedModel that a training program has exported")
    parser.add_argument("--output", required=True, help="folder for the text files; it must not exist")
    return parser.parse_args()


def main():
    """Score the images, and print the share that is right."""
    args = parse_arguments()
    spark = SparkSession.builder.appName("MNIST: inference on a cluster").getOrCreate()
    rows = read_rows(spark, f"{args.data}/test", args.format)
    with tfos_lab.run(answer, args, spark=spark, cluster_size=args.cluster_size) as cluster:
        accuracy = write_lines(cluster.inference(rows), args.output)
    print(f"accuracy: {accuracy:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
