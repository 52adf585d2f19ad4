r"""Trains on rows that Spark reads, with Keras' `fit`.

    spark-submit --master spark://host:7077 --conf spark.cores.max=4 examples/mnist/train_spark.py \
        --data mnist/csv --format csv --cluster-size 2 --epochs 3 --model-dir models --export-dir models/export

Spark reads the files once; every row reaches exactly one node in each epoch. Without ``--master``, or with
``--master local[*]``, the nodes are processes on this machine.
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import tfos_lab


def train(args, ctx):
    """Train on the rows that are fed to this node; every node runs this function."""
    import keras

    with ctx.strategy().scope():
        model = build_model()
        model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
    rows = ctx.dataset(args.batch_size, label="label", shuffle=True)
    history = model.fit(rows, epochs=ctx.epochs, callbacks=ctx.callbacks(), verbose=2)
    save(model, args, ctx)
    return history.history["accuracy"][-1]


def build_model():
    """Return a small network that takes the integers as they are."""
    import keras

    return keras.Sequential(
        [
            keras.Input((784,), name="image"),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(10, "softmax", name="scores"),
        ]
    )


def save(model, args, ctx):
    """Save the model; all workers call this, and the chief's copy is the one that counts."""
    if args.model_dir:
        model.save(ctx.model_dir(f"{args.model_dir}/model.keras"))
    if args.export_dir:
        model.export(ctx.model_dir(args.export_dir), verbose=False)


def read_rows(spark, folder, file_format):
    """Return a DataFrame of the columns image (784 numbers from 0 to 255) and label."""
    if file_format == "parquet":
        return spark.read.parquet(folder)
    if file_format == "tfrecord":
        return tfos_lab.data.read_tfrecords(spark, folder, "image array<int>, label int")
    numbers = sql.split("value", ",").cast("array<int>")  # the label, then the image
    return spark.read.text(folder).select(sql.slice(numbers, 2, 784).alias("image"), numbers[0].alias("label"))


def parse_arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder or address that the setup wrote; train/ in it is read")
    parser.add_argument("--format", choices=["csv", "tfrecord", "parquet"], default="csv", help="of the data")
    parser.add_argument("--cluster-size", type=int, default=2, help="number of nodes")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="rows per step on each node")
    parser.add_argument("--model-dir", help="where to save the Keras model, as model.keras")
    parser.add_argument("--export-dir", help="where to export the model as a SavedModel, for inference")
    return parser.parse_args()


def main():
    """Feed the rows to a cluster, and print the accuracy of the last epoch."""
    args = parse_arguments()
    spark = SparkSession.builder.appName("MNIST: rows from Spark").getOrCreate()
    rows = read_rows(spark, f"{args.data}/train", args.format)
    with tfos_lab.run(train, args, spark=spark, cluster_size=args.cluster_size) as cluster:
        cluster.train(rows, epochs=args.epochs)
        accuracy = cluster.wait()["chief:0"]
    print(f"accuracy: {accuracy:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
