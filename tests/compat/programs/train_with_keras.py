"""Rows from Spark through a feed to Keras on all nodes, and inference with the model that it has saved.

After the examples of TensorFlowOnSpark: argparse, main_fun(args, ctx), a generator over the feed, 90 % of the steps.
"""

import argparse
import os


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf

    from tensorflowonspark import TFNode, compat

    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    feed = TFNode.DataFeed(ctx.mgr)

    def rows():
        while not feed.should_stop():
            batch = feed.next_batch(1)
            if len(batch) == 0:
                return
            features, label = batch[0]
            yield np.array(features, dtype=np.float32), np.array([label], dtype=np.float32)

    types, shapes = (tf.float32, tf.float32), (tf.TensorShape([2]), tf.TensorShape([1]))
    ds = tf.data.Dataset.from_generator(rows, types, shapes).batch(args.batch_size)
    options = tf.data.Options()
    compat.disable_auto_shard(options)
    ds = ds.with_options(options)

    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input([2], name="features"), tf.keras.layers.Dense(1, name="out")])
        model.compile(optimizer=tf.keras.optimizers.SGD(0.2), loss="mse")

    # The feed may be uneven, so it is not trained to its end.
    steps_per_epoch = args.rows / args.batch_size / ctx.num_workers
    model.fit(ds, epochs=args.epochs, steps_per_epoch=int(steps_per_epoch * 0.9), verbose=2)
    compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")
    feed.terminate()


def inference(it, export_dir):
    import tensorflow as tf

    loaded = tf.saved_model.load(export_dir)
    predict = loaded.signatures["serving_default"]
    rows = [features for features, _ in it]
    if not rows:
        return []
    return list(predict(tf.constant(rows, tf.float32)).values())[0].numpy()[:, 0].tolist()


if __name__ == "__main__":
    from pyspark.context import SparkContext
    from pyspark.conf import SparkConf
    from tensorflowonspark import TFCluster

    sc = SparkContext(conf=SparkConf().setAppName("train_with_keras"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--cluster_size", type=int, default=int(os.environ.get("SPARK_WORKER_INSTANCES", "2")))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--export_dir", required=True)
    parser.add_argument("--rows", type=int, default=1000)
    args = parser.parse_args()
    print("args:", args)

    weights = [3.0, -2.0]
    points = [[(i % 13) / 13.0, (i % 7) / 7.0] for i in range(args.rows)]
    rdd = sc.parallelize([(x, weights[0] * x[0] + weights[1] * x[1] + 1.0) for x in points], 4)

    cluster = TFCluster.run(
        sc,
        main_fun,
        args,
        args.cluster_size,
        num_ps=0,
        tensorboard=False,
        input_mode=TFCluster.InputMode.SPARK,
        master_node="chief",
    )
    cluster.train(rdd, args.epochs)
    cluster.shutdown(grace_secs=5)

    predicted = rdd.mapPartitions(lambda it: inference(it, args.export_dir)).collect()
    worst = max(abs(y - expected) for y, (_, expected) in zip(predicted, rdd.collect()))
    print("rows predicted:", len(predicted), "worst error: %.3f" % worst)
    assert len(predicted) == args.rows and worst < 0.2
    sc.stop()
