"""Rows from Spark through a feed to Keras on all nodes, and inference with the model that it has saved.

After the examples of TensorFlowOnSpark: argparse, main_fun(args, ctx), a generator over the feed, 90 % of the steps.
"""

import argparse
import os

from line_trainer import inference, main_fun


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

    # In one task: each of Spark's workers imports TensorFlow.
    predicted = rdd.coalesce(1).mapPartitions(lambda it: inference(it, args.export_dir)).collect()
    worst = max(abs(y - expected) for y, (_, expected) in zip(predicted, rdd.collect()))
    print("rows predicted:", len(predicted), "worst error: %.3f" % worst)
    assert len(predicted) == args.rows and worst < 0.2
    sc.stop()
