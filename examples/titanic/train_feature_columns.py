r"""Trains the same model with feature columns, as programs for Keras 2 do: `tf.keras` is tf_keras on all nodes.

    spark-submit --master spark://host:7077 --conf spark.cores.max=2 examples/titanic/train_feature_columns.py \
        --data titanic --cluster-size 2 --export-dir models/titanic --log-dir logs/titanic

The nodes start with TF_USE_LEGACY_KERAS=1, so that Keras 3 elsewhere does not matter; they need the package tf_keras.
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

import tfos_lab

WORDS = {
    "sex": ["female", "male"],
    "title": ["Mr", "Mrs", "Miss", "Master", "other"],
    "embarked": ["C", "Q", "S", "?"],
    "deck": ["A", "B", "C", "D", "E", "F", "G", "?"],
}
CLASSES = {"pclass": 4, "family": 8}
NUMBERS = {"age": (30.0, 13.0), "fare": (3.0, 1.0)}


def train(args, ctx):
    """Train on this node's share of the files; every node runs this function."""
    import tensorflow as tf

    strategy = ctx.strategy()
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = build_model()
        model.compile(tf.keras.optimizers.Adam(0.005), "binary_crossentropy", metrics=["accuracy"])
    rows = read(ctx.files(f"{args.data}/train")).shuffle(1000).batch(args.batch_size).prefetch(2)
    history = model.fit(ctx.even(rows), epochs=args.epochs, callbacks=ctx.callbacks(), verbose=2)
    model.save(ctx.model_dir(args.export_dir), save_format="tf")  # all nodes call it, and the chief's copy counts
    return history.history["accuracy"][-1]


def read(files):
    """Return a dataset of a passenger's features and whether they survived, from Examples."""
    import tensorflow as tf

    wanted = {name: tf.io.FixedLenFeature((1,), tf.string) for name in WORDS}
    wanted |= {name: tf.io.FixedLenFeature((1,), tf.int64) for name in CLASSES}
    wanted |= {name: tf.io.FixedLenFeature((1,), tf.float32) for name in (*NUMBERS, "survived")}

    def parse(record):
        example = tf.io.parse_single_example(record, wanted)
        return example, example.pop("survived")

    return tf.data.TFRecordDataset(files).map(parse)


def make_columns():
    """Return the wide columns, and the deep ones."""
    from tensorflow import feature_column as fc

    words = [
        fc.categorical_column_with_vocabulary_list(name, known, num_oov_buckets=1) for name, known in WORDS.items()
    ]
    classes = [fc.categorical_column_with_identity(name, count, default_value=0) for name, count in CLASSES.items()]
    crosses = [fc.crossed_column(["sex", "pclass"], 16), fc.crossed_column(["title", "pclass"], 32)]
    numbers = [
        fc.numeric_column(name, normalizer_fn=lambda x, mean=mean, scale=scale: (x - mean) / scale)
        for name, (mean, scale) in NUMBERS.items()
    ]
    wide = [fc.indicator_column(column) for column in (*words, *classes, *crosses)]
    return wide, [*numbers, *(fc.embedding_column(column, 4) for column in (*words, *classes))]


def build_model():
    """Return a wide & deep model that takes passengers as they are."""
    import tensorflow as tf

    kinds = dict.fromkeys(WORDS, "string") | dict.fromkeys(CLASSES, "int64") | dict.fromkeys(NUMBERS, "float32")
    inputs = {name: tf.keras.Input((1,), name=name, dtype=kind) for name, kind in kinds.items()}
    wide_columns, deep_columns = make_columns()
    wide = tf.keras.layers.DenseFeatures(wide_columns)(inputs)
    deep = tf.keras.layers.DenseFeatures(deep_columns)(inputs)
    for units in (16, 8):
        deep = tf.keras.layers.Dropout(0.3)(tf.keras.layers.Dense(units, "relu")(deep))
    together = tf.keras.layers.Dense(1, use_bias=False)(wide) + tf.keras.layers.Dense(1)(deep)
    return tf.keras.Model(inputs, tf.keras.layers.Activation("sigmoid", name="survived")(together))


def next_version(folder):
    """Return the folder of the next version, as TensorFlow Serving numbers them."""
    numbers = [int(path.name) for path in Path(folder).glob("*") if path.name.isdigit()]
    return f"{folder}/{max(numbers, default=0) + 1}"


def parse_arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder that prepare.py wrote, on a file system that nodes share")
    parser.add_argument("--cluster-size", type=int, default=2, help="number of nodes")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32, help="rows per step on each node")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--export-dir", required=True, help="folder of the model's versions")
    parser.add_argument("--log-dir", help="folder for TensorBoard's event files")
    return parser.parse_args()


def main():
    """Train on a cluster, and print the accuracy of the last epoch."""
    args = parse_arguments()
    spark = SparkSession.builder.appName("Titanic: feature columns").getOrCreate()
    args.export_dir = next_version(args.export_dir)
    options = {"cluster_size": args.cluster_size, "log_dir": args.log_dir, "env": {"TF_USE_LEGACY_KERAS": "1"}}
    with tfos_lab.run(train, args, spark=spark, **options) as cluster:
        accuracy = cluster.wait()["chief:0"]
    print(f"training accuracy: {accuracy:.3f}\nexported: {args.export_dir}")
    spark.stop()


if __name__ == "__main__":
    main()
