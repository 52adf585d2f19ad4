"""The functions that `train_with_keras` runs on nodes and executors; it comes to them with --py-files."""

from tensorflowonspark import TFNode, compat


def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf

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

    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input([2], name="features"), tf.keras.layers.Dense(1, name="out")])
        model.compile(optimizer=tf.keras.optimizers.SGD(0.5), loss="mse")

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
