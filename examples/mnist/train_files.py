r"""Trains on files that the nodes read themselves, with Keras' `fit`; no row goes through Spark.

    spark-submit --master spark://host:7077 --conf spark.cores.max=4 examples/mnist/train_files.py \
        --data mnist/tfr --format tfrecord --cluster-size 2 --epochs 3 --model-dir models --export-dir models/export

The files are dealt out to the nodes that train, so there have to be as many of them at least. They must be on a file
system that all nodes share. Without ``--master``, or with ``--master local[*]``, the nodes are processes on this
machine.
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import tfos_lab


def train(args, ctx):
    """Train on this node's share of the files; every node runs this function."""
    import keras
    import tensorflow as tf

    strategy = ctx.strategy()  # first of all: TensorFlow wants to know of other nodes before it does anything
    read = {"csv": read_csv, "tfrecord": read_tfrecord, "parquet": read_parquet}[args.format]
    files = own_files(f"{args.data}/train", ctx)
    # The nodes take their steps together: each repeats its rows, and all take the same number.
    steps = max(1, args.rows // (args.batch_size * ctx.world_size))
    rows = read(files).shuffle(2000).repeat().batch(args.batch_size).prefetch(2)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    with strategy.scope():
        model = build_model()
        model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(
        rows.with_options(options), epochs=args.epochs, steps_per_epoch=steps, callbacks=ctx.callbacks(), verbose=2
    )
    save(model, args, ctx)
    return history.history["accuracy"][-1]


def own_files(folder, ctx):
    """Return every n-th file, where n nodes train: the chief is the first of them."""
    import tensorflow as tf

    files = sorted(tf.io.gfile.glob(f"{ctx.absolute_path(folder)}/part-*"))
    if len(files) < ctx.world_size:
        raise ValueError(f"{folder} has {len(files)} files, too few for {ctx.world_size} nodes: write more partitions")
    number = 0 if ctx.is_chief else ctx.task_index + 1
    return files[number :: ctx.world_size]


def read_csv(files):
    """Return a dataset of images and labels, from lines of a label and 784 numbers."""
    import tensorflow as tf

    def parse(line):
        numbers = tf.strings.to_number(tf.strings.split(line, ","), tf.int32)
        return tf.ensure_shape(numbers[1:], (784,)), numbers[0]

    return tf.data.TextLineDataset(files).map(parse)


def read_tfrecord(files):
    """Return a dataset of images and labels, from Examples."""
    import tensorflow as tf

    features = {"image": tf.io.FixedLenFeature((784,), tf.int64), "label": tf.io.FixedLenFeature((), tf.int64)}

    def parse(record):
        example = tf.io.parse_single_example(record, features)
        return example["image"], example["label"]

    return tf.data.TFRecordDataset(files).map(parse)


def read_parquet(files):
    """Return a dataset of images and labels, from the columns of the same names."""
    import pyarrow.parquet
    import tensorflow as tf

    def batches():
        for file in files:
            data = tf.io.gfile.GFile(file, "rb").read()
            for batch in pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data)).iter_batches(1024):
                yield batch["image"].flatten().to_numpy().reshape(-1, 784), batch["label"].to_numpy()

    signature = (tf.TensorSpec((None, 784), tf.int32), tf.TensorSpec((None,), tf.int64))
    return tf.data.Dataset.from_generator(batches, output_signature=signature).unbatch()


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
    """Train on a cluster, and print the accuracy of the last epoch."""
    args = parse_arguments()
    spark = SparkSession.builder.appName("MNIST: files").getOrCreate()
    args.rows = read_rows(spark, f"{args.data}/train", args.format).count()
    with tfos_lab.run(train, args, spark=spark, cluster_size=args.cluster_size) as cluster:
        accuracy = cluster.wait()["chief:0"]
    print(f"accuracy: {accuracy:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
