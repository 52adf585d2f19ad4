r"""Trains and scores as a spark.ml pipeline does, with the estimator and the model of TensorFlowOnSpark.

    spark-submit --master spark://host:7077 --conf spark.cores.max=4 examples/mnist/pipeline.py \
        --data mnist/csv --format csv --cluster-size 2 --epochs 3 \
        --model-dir models --export-dir models/export --output predictions

Each line of the text files reads "Label: 7, Prediction: 7". The folders have to be on a file system that all executors
share. Without ``--master``, or with ``--master local[*]``, the nodes are processes on this machine.
"""

import argparse
import os
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import tfos_lab
from tfos_lab.compat.pipeline import TFEstimator


def train(args, ctx):
    """Train on the rows that are fed to this node; every node runs this function."""
    import keras
    import numpy as np
    import tensorflow as tf

    from tfos_lab.compat import TFNode, compat

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    feed = TFNode.DataFeed(ctx.mgr, input_mapping=args.input_mapping)

    def batches():
        while not feed.should_stop():
            batch = feed.next_batch(args.batch_size)
            yield np.array(batch["image"], np.float32), np.array(batch["label"], np.int64)

    options = tf.data.Options()
    compat.disable_auto_shard(options)
    signature = (tf.TensorSpec((None, 784), tf.float32), tf.TensorSpec((None,), tf.int64))
    rows = tf.data.Dataset.from_generator(batches, output_signature=signature).with_options(options)
    with strategy.scope():
        model = build_model()
        model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
    # The nodes take their steps together, and one may get a few rows less than another: some are left over.
    steps = max(1, int(0.9 * args.rows / (args.batch_size * ctx.num_workers)))
    model.fit(rows, epochs=args.epochs, steps_per_epoch=steps, verbose=2)
    feed.terminate()

    is_chief = ctx.job_name == "chief"
    if args.model_dir:
        # Each node has a working directory of its own, so that a relative path is nobody else's.
        model.save(f"{args.model_dir}/model.keras" if is_chief else "model.keras")
    compat.export_saved_model(model, args.export_dir, is_chief)


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
    parser.add_argument("--data", required=True, help="folder or address that the setup wrote")
    parser.add_argument("--format", choices=["csv", "tfrecord", "parquet"], default="csv", help="of the data")
    parser.add_argument("--cluster-size", type=int, default=2, help="number of nodes")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="rows per step on each node")
    parser.add_argument("--model-dir", type=os.path.abspath, help="where to save the Keras model, as model.keras")
    parser.add_argument("--export-dir", type=os.path.abspath, required=True, help="where to export the SavedModel")
    parser.add_argument("--output", required=True, help="folder for the text files; it must not exist")
    return parser.parse_args()


def main():
    """Fit the estimator, transform the test images with its model, and write their labels and predictions."""
    args = parse_arguments()
    if args.model_dir:
        Path(args.model_dir).mkdir(parents=True, exist_ok=True)
    spark = SparkSession.builder.appName("MNIST: pipeline").getOrCreate()
    rows = read_rows(spark, f"{args.data}/train", args.format)
    args.rows = rows.count()
    estimator = (
        TFEstimator(train, args)
        .setInputMapping({"image": "image", "label": "label"})
        .setClusterSize(args.cluster_size)
        .setMasterNode("chief")
        .setEpochs(args.epochs)
        .setBatchSize(args.batch_size)
        .setExportDir(args.export_dir)
        .setGraceSecs(30)
    )
    if args.model_dir:
        estimator.setModelDir(args.model_dir)
    model = estimator.fit(rows)

    model.setInputMapping({"image": "image"}).setOutputMapping({"output_0": "scores"})
    test = read_rows(spark, f"{args.data}/test", args.format)
    # The result has the outputs alone, in the order of the rows.
    pairs = test.rdd.map(lambda row: row.label).zip(model.transform(test).rdd.map(lambda row: row.scores))
    pairs.map(lambda pair: f"Label: {pair[0]}, Prediction: {pair[1].index(max(pair[1]))}").saveAsTextFile(args.output)
    lines = spark.read.text(args.output)
    accuracy = lines.filter(lines.value.rlike(r"Label: (\d), Prediction: \1")).count() / lines.count()
    print(f"accuracy: {accuracy:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
