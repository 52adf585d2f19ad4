r"""Trains a wide & deep model of the Titanic's passengers with Keras 3 on a cluster, from TFRecord files.

    spark-submit --master spark://host:7077 --conf spark.cores.max=2 examples/titanic/train.py \
        --data titanic --cluster-size 2 --export-dir models/titanic --log-dir logs/titanic

Each node reads its share of the shards. Keras' `FeatureSpace` makes numbers of texts and classes, and is part of the
exported model, which therefore takes passengers as they are. Each run exports another version: models/titanic/1, 2, ….
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

import tfos_lab

FEATURES = {"sex": str, "title": str, "embarked": str, "deck": str, "pclass": int, "family": int, "age": float}
FEATURES["fare"] = float


def train(args, ctx):
    """Train on this node's share of the files; every node runs this function."""
    import keras
    import tensorflow as tf

    strategy = ctx.strategy()  # first of all: TensorFlow wants to know of other nodes before it does anything
    keras.utils.set_random_seed(args.seed)
    space = make_space()
    everywhere = sorted(tf.io.gfile.glob(f"{ctx.absolute_path(args.data)}/train/part-*"))
    space.adapt(read(everywhere).map(features_of).batch(256))  # all nodes learn the same words and scales
    with strategy.scope():
        network, model = build_model(space)
        network.compile(keras.optimizers.Adam(0.005), "binary_crossentropy", metrics=["accuracy"])

    def encode(features, survived):
        return space(features), survived

    rows = read(ctx.files(f"{args.data}/train")).shuffle(1000).batch(args.batch_size).map(encode).prefetch(2)
    history = network.fit(ctx.even(rows), epochs=args.epochs, callbacks=ctx.callbacks(), verbose=2)
    model.export(ctx.model_dir(args.export_dir), verbose=False)  # all nodes call it, and the chief's copy counts
    return history.history["accuracy"][-1]


def read(files):
    """Return a dataset of a passenger's features and whether they survived, from Examples."""
    import tensorflow as tf

    kinds = {str: tf.string, int: tf.int64, float: tf.float32}
    wanted = {name: tf.io.FixedLenFeature((), kinds[kind]) for name, kind in FEATURES.items()}
    wanted["survived"] = tf.io.FixedLenFeature((), tf.float32)

    def parse(record):
        example = tf.io.parse_single_example(record, wanted)
        survived = example.pop("survived")
        return example, survived[tf.newaxis]

    return tf.data.TFRecordDataset(files).map(parse)


def features_of(features, _survived):
    """Return the features alone."""
    return features


def make_space():
    """Return how the features become numbers: words and classes one-hot, ages in bins too, and some of them crossed."""
    from keras.utils import FeatureSpace as Space

    return Space(
        features={
            **{name: Space.string_categorical(num_oov_indices=1) for name in ("sex", "title", "embarked", "deck")},
            **{name: Space.integer_categorical(num_oov_indices=1) for name in ("pclass", "family")},
            "age": Space.float_normalized(),
            "fare": Space.float_normalized(),
        },
        crosses=[Space.cross(("sex", "pclass"), 16), Space.cross(("title", "pclass"), 32)],
        output_mode="dict",
    )


def build_model(space):
    """Return the network that takes encoded features, and the model that takes passengers as they are."""
    import keras
    from keras import layers

    passengers, encoded = space.get_inputs(), space.get_encoded_features()
    inputs = {name: keras.Input(one.shape[1:], name=name) for name, one in sorted(encoded.items())}
    wide = layers.Concatenate()([one for name, one in inputs.items() if name not in ("age", "fare")])
    deep = layers.Concatenate()([one for name, one in inputs.items() if "_X_" not in name])
    for units in (16, 8):
        deep = layers.Dropout(0.3)(layers.Dense(units, "relu")(deep))
    together = layers.Add()([layers.Dense(1, use_bias=False)(wide), layers.Dense(1)(deep)])
    network = keras.Model(inputs, layers.Activation("sigmoid", name="survived")(together))
    return network, keras.Model(passengers, network(encoded))


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
    spark = SparkSession.builder.appName("Titanic: wide & deep").getOrCreate()
    args.export_dir = next_version(args.export_dir)
    options = {"spark": spark, "cluster_size": args.cluster_size, "log_dir": args.log_dir}
    with tfos_lab.run(train, args, **options) as cluster:
        accuracy = cluster.wait()["chief:0"]
    print(f"training accuracy: {accuracy:.3f}\nexported: {args.export_dir}")
    spark.stop()


if __name__ == "__main__":
    main()
