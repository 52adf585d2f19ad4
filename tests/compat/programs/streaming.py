"""A stream of RDDs trains until a node has seen enough: terminate() ends the feed, and shutdown(ssc) the stream."""

import argparse
import os
import sys

from pyspark import SparkContext
from pyspark.conf import SparkConf
from pyspark.streaming import StreamingContext

from tensorflowonspark import TFCluster


def count_rows(args, ctx):
    feed = ctx.get_data_feed(train_mode=True)
    rows = []
    while not feed.should_stop() and len(rows) < args.enough:
        rows += feed.next_batch(5)
    feed.terminate()
    with open(os.path.join(args.folder, "seen-%d" % ctx.executor_id), "w") as out:
        out.write(" ".join(rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--enough", type=int, default=20)
    args = parser.parse_args()
    nodes = int(os.environ.get("SPARK_WORKER_INSTANCES", "2"))
    sc = SparkContext(conf=SparkConf().setMaster(os.environ["MASTER"]).setAppName("streaming"))
    sc.setLogLevel("ERROR")
    ssc = StreamingContext(sc, 1)
    batches = [sc.parallelize(["row-%d-%d" % (batch, i) for i in range(20)], 2) for batch in range(30)]
    cluster = TFCluster.run(sc, count_rows, args, nodes, 0, input_mode=TFCluster.InputMode.SPARK)
    cluster.train(ssc.queueStream(batches), 0)
    ssc.start()
    cluster.shutdown(ssc)
    seen = [open(os.path.join(args.folder, "seen-%d" % i)).read().split() for i in range(nodes)]
    print("rows seen by each node:", [len(rows) for rows in seen])
    assert all(len(rows) >= args.enough for rows in seen)
    assert len(set(sum(seen, []))) == sum(map(len, seen))
    sc.stop()
    sys.exit(0)
