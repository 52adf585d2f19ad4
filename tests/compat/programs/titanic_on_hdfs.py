"""Wide & deep on HDFS as programs for TensorFlowOnSpark have it: from CSV by Spark to predictions by Spark.

Like those programs, it knows nothing of tfos_lab. It trains twice: on TFRecord files that TensorFlow reads, and on rows
that Spark feeds.
"""

import argparse

KINDS = {"survived": "float", "pclass": "bigint", "sex": "string", "age": "float", "fare": "float"}


def inputs(pclass, sex, age, fare):
    """Return what the wide part and the deep one take."""
    import tensorflow as tf

    wide = tf.concat([tf.one_hot(pclass, 4), tf.cast(sex == "female", tf.float32)[..., None]], -1)
    return wide, tf.stack([age / 30.0, tf.math.log1p(fare)], -1)


def parse(record):
    """Return the inputs of the wide part and of the deep one, and whether a passenger survived."""
    import tensorflow as tf

    types = {"float": tf.float32, "bigint": tf.int64, "string": tf.string}
    features = {name: tf.io.FixedLenFeature((), types[kind]) for name, kind in KINDS.items()}
    one = tf.io.parse_single_example(record, features)
    return inputs(one["pclass"], one["sex"], one["age"], one["fare"]), one["survived"]


def make_model():
    """Return a compiled wide & deep model, each of whose parts has an optimizer of its own."""
    import tensorflow as tf

    wide = tf.keras.experimental.LinearModel()
    deep = tf.keras.Sequential([tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(1)])
    model = tf.keras.experimental.WideDeepModel(wide, deep, activation="sigmoid")
    optimizers = [tf.keras.optimizers.Ftrl(0.5), tf.keras.optimizers.Adagrad(0.1)]
    model.compile(optimizers, "binary_crossentropy", metrics=["accuracy"])
    return model


def fed_rows(ctx):
    """Return a dataset of the rows that Spark feeds, and the feed."""
    import tensorflow as tf

    from tensorflowonspark import TFNode

    feed = TFNode.DataFeed(ctx.mgr, True)

    def rows():
        while not feed.should_stop():
            batch = feed.next_batch(1)
            if batch:
                yield tuple(batch[0])

    types = (tf.float32, tf.int64, tf.string, tf.float32, tf.float32)
    signature = tuple(tf.TensorSpec((), kind) for kind in types)
    dataset = tf.data.Dataset.from_generator(rows, output_signature=signature)
    return dataset.map(lambda survived, *row: (inputs(*row), survived)), feed


def train(args, ctx):
    """Train on the files of a folder, or on fed rows; write event files, weights and the model to HDFS."""
    import tensorflow as tf

    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    tf.keras.utils.set_random_seed(7)
    place = ctx.absolute_path(args.output + "/" + args.way)
    feed = None
    if args.way == "by_files":
        files = tf.data.Dataset.list_files(ctx.absolute_path(args.output + "/tfr") + "/part*", seed=1)
        rows = files.interleave(tf.data.TFRecordDataset).map(parse).repeat().batch(args.batch_size)
        share = 1.0
    else:
        rows, feed = fed_rows(ctx)
        rows = rows.batch(args.batch_size)
        share = 0.8  # nodes are fed by partitions, which are not all of one size
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        rows = rows.with_options(options)

    with strategy.scope():
        model = make_model()
    callbacks = [
        tf.keras.callbacks.ModelCheckpoint(place + "/weights-{epoch:04d}", save_weights_only=True),
        tf.keras.callbacks.TensorBoard(place + "/logs", histogram_freq=1),
    ]
    steps = int(share * args.rows // args.batch_size // ctx.num_workers)
    model.fit(rows, epochs=args.epochs, steps_per_epoch=steps, callbacks=callbacks, verbose=2)
    # Keras cannot save two optimizers. Other workers take part, and keep nothing.
    model.save(place + "/export" if ctx.job_name == "chief" else "worker_model", include_optimizer=False)
    if feed is not None:
        feed.terminate()


def score(rows, export_dir):
    """Score a partition in Spark's own Python worker."""
    import tensorflow as tf

    from tensorflowonspark import util

    util.single_node_env(num_gpus=0)
    rows = list(rows)
    if not rows:
        return []
    model = tf.keras.models.load_model(export_dir, compile=False)
    survived, pclass, sex, age, fare = (list(column) for column in zip(*rows))
    chances = model(inputs(tf.constant(pclass, tf.int64), tf.constant(sex), tf.constant(age), tf.constant(fare)))
    return ["{:.0f} {:.0f}".format(*pair) for pair in zip(survived, chances.numpy()[:, 0])]


def main():
    from pyspark.sql import SparkSession

    from tensorflowonspark import TFCluster, dfutil

    parser = argparse.ArgumentParser()
    parser.add_argument("--csv", required=True)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--output", default="hdfs:///titanic_program")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("titanic_on_hdfs").getOrCreate()
    sc = spark.sparkContext
    spark.read.csv(args.csv, header=True).repartition(4).write.csv(args.output + "/csv", header=True)
    csv = spark.read.csv(args.output + "/csv", header=True).fillna({"Age": "30"})
    people = csv.selectExpr(*("cast({0} as {1}) as {0}".format(name, kind) for name, kind in KINDS.items()))
    dfutil.saveAsTFRecords(people, args.output + "/tfr")
    args.rows = people.count()
    print("records:", args.rows)
    rows = people.rdd.map(tuple)

    for args.way in ("by_files", "by_rows"):
        fed = args.way == "by_rows"
        mode = TFCluster.InputMode.SPARK if fed else TFCluster.InputMode.TENSORFLOW
        cluster = TFCluster.run(sc, train, args, args.cluster_size, 0, input_mode=mode, master_node="chief")
        if fed:
            cluster.train(rows, args.epochs)
        cluster.shutdown()

        export_dir, scored = args.output + "/" + args.way + "/export", args.output + "/scored_" + args.way
        rows.mapPartitions(lambda part, export_dir=export_dir: score(part, export_dir)).saveAsTextFile(scored)
        pairs = sc.textFile(scored).map(str.split)
        right = pairs.filter(lambda pair: pair[0] == pair[1]).count()
        print("{}: {} rows, {:.0%} right".format(args.way, pairs.count(), right / args.rows))
    spark.stop()


if __name__ == "__main__":
    main()
