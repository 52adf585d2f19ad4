r"""Trains with parameter servers: asynchronously, by steps that the chief schedules on the workers.

    spark-submit --master spark://host:7077 --conf spark.cores.max=4 examples/mnist/parameter_servers.py \
        --data mnist/csv --format csv --cluster-size 4 --num-ps 1 --epochs 3 \
        --model-dir models --export-dir models/export

Of four nodes, one keeps the variables, one is the chief, which reads the rows, and two are workers. Workers do not wait
for one another. Without ``--master``, or with ``--master local[*]``, the nodes are processes on this machine.
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import tfos_lab


def train(args, ctx):
    """Train on the chief; on all other nodes, `ctx.strategy` serves it and does not return."""
    import keras
    import tensorflow as tf

    strategy = ctx.strategy()
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = build_model()
        # Not Adam: workers that update its two averages at the same time now and then divide by one that is still 0.
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)

    def replica_step(x, y):
        with tf.GradientTape() as tape:
            scores = model(x, training=True)
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, scores))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return tf.reduce_mean(tf.cast(tf.argmax(scores, axis=1) == tf.cast(y, tf.int64), tf.float32))

    @tf.function(reduce_retracing=True)
    def step(x, y):
        return strategy.run(replica_step, args=(x, y))

    for _ in range(ctx.epochs):
        rows = ctx.dataset(args.batch_size, label="label", shuffle=True)
        shares = [coordinator.schedule(step, args=(x, y)) for x, y, _ in rows]
        coordinator.join()
        accuracy = sum(float(share.fetch()) for share in shares) / len(shares)
        ctx.report(accuracy=accuracy)
    save(model.get_weights(), args, ctx)
    return accuracy


def save(weights, args, ctx):
    """Save a model that has its variables here, and not on the parameter servers."""
    model = build_model()
    model.set_weights(weights)
    if args.model_dir:
        model.save(ctx.model_dir(f"{args.model_dir}/model.keras"))
    if args.export_dir:
        model.export(ctx.model_dir(args.export_dir), verbose=False)


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
    parser.add_argument("--data", required=True, help="folder or address that the setup wrote; train/ in it is read")
    parser.add_argument("--format", choices=["csv", "tfrecord", "parquet"], default="csv", help="of the data")
    parser.add_argument("--cluster-size", type=int, default=4, help="number of nodes in all")
    parser.add_argument("--num-ps", type=int, default=1, help="how many of them are parameter servers")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="rows per step")
    parser.add_argument("--model-dir", help="where to save the Keras model, as model.keras")
    parser.add_argument("--export-dir", help="where to export the model as a SavedModel, for inference")
    return parser.parse_args()


def main():
    """Feed the rows to a cluster, and print the accuracy of the last epoch."""
    args = parse_arguments()
    spark = SparkSession.builder.appName("MNIST: parameter servers").getOrCreate()
    rows = read_rows(spark, f"{args.data}/train", args.format)
    with tfos_lab.run(train, args, spark=spark, cluster_size=args.cluster_size, num_ps=args.num_ps) as cluster:
        cluster.train(rows, epochs=args.epochs)
        accuracy = cluster.wait()["chief:0"]
    print(f"accuracy: {accuracy:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
