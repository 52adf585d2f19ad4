"""Images as programs for TensorFlowOnSpark have them on HDFS, from CSV by Spark to predictions by Spark.

Like those programs, it knows nothing of tfos_lab.
"""

import argparse

SIDE = 4


def to_example(line):
    """Make a serialized example of a line: the label, then the pixels."""
    import tensorflow as tf

    label, *pixels = (int(word) for word in line.split(","))
    int64s = lambda values: tf.train.Feature(int64_list=tf.train.Int64List(value=values))  # noqa: E731
    features = tf.train.Features(feature={"label": int64s([label]), "image": int64s(pixels)})
    return bytearray(tf.train.Example(features=features).SerializeToString()), None


def parse(record):
    """Return an image of floats, and its label."""
    import tensorflow as tf

    features = {
        "label": tf.io.FixedLenFeature([1], tf.int64),
        "image": tf.io.FixedLenFeature([SIDE * SIDE], tf.int64),
    }
    example = tf.io.parse_single_example(record, features)
    return tf.cast(example["image"], tf.float32) / 255.0, example["label"]


def train(args, ctx):
    """Train on all files of a folder, which TensorFlow lists and deals out to the workers."""
    import tensorflow as tf

    from tensorflowonspark import TFNode, compat

    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    model_dir, export_dir = ctx.absolute_path(args.model_dir), TFNode.hdfs_path(ctx, args.export_dir)
    files = tf.data.Dataset.list_files(ctx.absolute_path(args.output) + "/tfr/part*", seed=1)
    rows = files.interleave(tf.data.TFRecordDataset).map(parse).repeat().batch(args.batch_size)

    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input([SIDE * SIDE], name="image"), tf.keras.layers.Dense(SIDE)])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(0.05), loss, metrics=["accuracy"])

    tf.io.gfile.makedirs(model_dir)
    callbacks = [
        tf.keras.callbacks.ModelCheckpoint(model_dir + "/weights-{epoch:04d}.weights.h5", save_weights_only=True),
        tf.keras.callbacks.TensorBoard(model_dir + "/logs", histogram_freq=1),
    ]
    steps = args.rows // args.batch_size // ctx.num_workers
    model.fit(rows, epochs=args.epochs, steps_per_epoch=steps, callbacks=callbacks, verbose=2)
    compat.export_saved_model(model, export_dir, ctx.job_name == "chief")


def infer_files(args, ctx):
    """Score this instance's share of the files, and write a file of its own."""
    import numpy as np
    import tensorflow as tf

    predict = tf.saved_model.load(ctx.absolute_path(args.export_dir), tags="serve").signatures["serving_default"]
    files = tf.data.Dataset.list_files(ctx.absolute_path(args.output) + "/tfr/part-*", shuffle=False)
    rows = files.shard(ctx.num_workers, ctx.worker_num).interleave(tf.data.TFRecordDataset).map(parse).batch(10)
    folder = ctx.absolute_path(args.output + "/by_files")
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile("{}/part-{:05d}".format(folder, ctx.worker_num), "w") as out:
        for images, labels in rows:
            (scores,) = predict(image=images).values()
            for label, found in zip(labels.numpy().reshape(-1), np.argmax(scores, axis=1)):
                out.write("{} {}\n".format(label, found))


def infer_rows(args, ctx):
    """Score the rows that Spark feeds."""
    import numpy as np
    import tensorflow as tf

    predict = tf.saved_model.load(ctx.absolute_path(args.export_dir)).signatures["serving_default"]
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        batch = feed.next_batch(16)
        if batch:
            images = np.array([[int(word) for word in line.split(",")[1:]] for line in batch], np.float32) / 255.0
            (scores,) = predict(image=tf.constant(images)).values()
            labels = [line.split(",")[0] for line in batch]
            feed.batch_results(["{} {}".format(*pair) for pair in zip(labels, np.argmax(scores, axis=1))])


def infer_partition(lines, export_dir):
    """Score a partition in Spark's own Python worker."""
    import numpy as np
    import tensorflow as tf

    from tensorflowonspark import util

    util.single_node_env(num_gpus=0)
    lines = list(lines)
    predict = tf.saved_model.load(export_dir).signatures["serving_default"]
    images = np.array([[int(word) for word in line.split(",")[1:]] for line in lines], np.float32) / 255.0
    (scores,) = predict(image=tf.constant(images)).values()
    return ["{} {}".format(line.split(",")[0], found) for line, found in zip(lines, np.argmax(scores, axis=1))]


if __name__ == "__main__":
    from pyspark import SparkConf, SparkContext

    from tensorflowonspark import TFCluster, TFParallel

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rows", type=int, default=240)
    parser.add_argument("--output", default="hdfs:///mnist")
    parser.add_argument("--model_dir", default="/mnist/model")
    parser.add_argument("--export_dir", default="hdfs:///mnist/export")
    args = parser.parse_args()

    sc = SparkContext(conf=SparkConf().setAppName("mnist_on_hdfs"))
    bright = lambda i: [255 - i % 7 if place // SIDE == i % SIDE else i % 5 for place in range(SIDE * SIDE)]  # noqa: E731
    lines = [",".join(map(str, [i % SIDE, *bright(i)])) for i in range(args.rows)]
    sc.parallelize(lines, 3).saveAsTextFile(args.output + "/csv")

    csv = sc.textFile(args.output + "/csv", 3)
    csv.map(to_example).saveAsNewAPIHadoopFile(
        args.output + "/tfr",
        "org.tensorflow.hadoop.io.TFRecordFileOutputFormat",
        keyClass="org.apache.hadoop.io.BytesWritable",
        valueClass="org.apache.hadoop.io.NullWritable",
    )
    read = sc.newAPIHadoopFile(
        args.output + "/tfr",
        "org.tensorflow.hadoop.io.TFRecordFileInputFormat",
        keyClass="org.apache.hadoop.io.BytesWritable",
        valueClass="org.apache.hadoop.io.NullWritable",
    )
    print("records:", read.count())

    cluster = TFCluster.run(
        sc, train, args, args.cluster_size, 0, input_mode=TFCluster.InputMode.TENSORFLOW, master_node="chief"
    )
    cluster.shutdown()

    TFParallel.run(sc, infer_files, args, args.cluster_size)

    cluster = TFCluster.run(sc, infer_rows, args, args.cluster_size, 0, input_mode=TFCluster.InputMode.SPARK)
    cluster.inference(csv).saveAsTextFile(args.output + "/by_rows")
    cluster.shutdown()

    export_dir = args.export_dir
    # In one task: each of Spark's workers imports TensorFlow.
    by_tasks = csv.coalesce(1).mapPartitions(lambda part: infer_partition(part, export_dir))
    by_tasks.saveAsTextFile(args.output + "/by_tasks")

    for name in ("by_files", "by_rows", "by_tasks"):
        pairs = sc.textFile(args.output + "/" + name).map(str.split)
        print(
            "{}: {} rows, {} right".format(name, pairs.count(), pairs.filter(lambda pair: pair[0] == pair[1]).count())
        )
    sc.stop()
