"""A suite as projects wrote it for TensorFlowOnSpark: unittest, MASTER, one SparkContext for a class.

Clusters that are fed, and that read nothing; a stream; examples made by tasks.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
import unittest

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.streaming import StreamingContext

from tensorflowonspark import TFCluster, TFNode, dfutil

NODES = int(os.environ.get("SPARK_WORKER_INSTANCES", "2"))


def square_all(args, ctx):
    """Answer each row with its square, batch by batch."""
    feed = TFNode.DataFeed(ctx.mgr, False)
    while not feed.should_stop():
        batch = feed.next_batch(10)
        if len(batch) > 0:
            feed.batch_results([x * x for x in batch])


def take_enough(args, ctx):
    """Read rows until these are enough, end the feed, and write them down."""
    feed = ctx.get_data_feed(train_mode=True)
    rows = []
    while not feed.should_stop() and len(rows) < args.enough:
        rows += feed.next_batch(5)
    feed.terminate()
    with open(os.path.join(args.folder, "seen-%d" % ctx.executor_id), "w") as out:
        out.write(" ".join(rows))


class SuiteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        conf = SparkConf().setMaster(os.environ["MASTER"]).setAppName(cls.__name__)
        cls.sc = SparkContext(conf=conf)
        cls.sc.setLogLevel("ERROR")
        cls.spark = SparkSession.builder.getOrCreate()

    @classmethod
    def tearDownClass(cls):
        cls.sc.stop()

    def setUp(self):
        self.folder = tempfile.mkdtemp()

    def run_cluster(self, map_fun, args, mode=TFCluster.InputMode.SPARK, num_ps=0, **options):
        return TFCluster.run(self.sc, map_fun, args, NODES, num_ps, input_mode=mode, **options)

    def said(self, name):
        """Return what the nodes have written to files of this name."""
        files = sorted(file for file in os.listdir(self.folder) if file.startswith(name))
        found = []
        for file in files:
            with open(os.path.join(self.folder, file)) as opened:
                found.append(opened.read())
        return found

    # ---- rows in, results out ----

    def test_inference_answers_each_row(self):
        cluster = self.run_cluster(square_all, {})
        rdd = self.sc.parallelize(range(1000), 10)
        results = cluster.inference(rdd)
        self.assertEqual(results.sum(), sum(x * x for x in range(1000)))
        self.assertEqual(results.collect(), [x * x for x in range(1000)])
        self.assertEqual(cluster.inference(self.sc.parallelize(range(7), 3)).collect(), [x * x for x in range(7)])
        cluster.shutdown()

    def test_two_queues_are_apart(self):
        def read_both(args, ctx):
            with open(os.path.join(args["folder"], "queues-%d" % ctx.executor_id), "w") as out:
                for name in ("input", "validation"):
                    feed = ctx.get_data_feed(True, name)
                    rows = []
                    while not feed.should_stop():
                        rows += feed.next_batch(4)
                    out.write("%s %d " % (name, sum(rows)))

        if "tfos_lab" not in sys.modules:
            return  # the original's nodes end a queue only when the one before has been shut down
        queues = ["input", "output", "error", "validation"]
        cluster = self.run_cluster(read_both, {"folder": self.folder}, queues=queues)
        cluster.train(self.sc.parallelize(range(10), 2), 1)
        # Nodes come to the second queue when the first one has ended, which is when the cluster is shut down.
        feeding = threading.Thread(target=cluster.train, args=(self.sc.parallelize([10, 20], 1), 1, 600, "validation"))
        feeding.start()
        while feeding.is_alive() and len(cluster._cluster.view().feeds) < 2:
            time.sleep(0.05)
        cluster.shutdown()
        feeding.join()
        words = " ".join(self.said("queues")).split()
        found = list(zip(words[::2], map(int, words[1::2])))
        self.assertEqual(sum(total for name, total in found if name == "input"), 45)
        self.assertEqual(sum(total for name, total in found if name == "validation"), 30)

    def test_an_exception_after_the_feed_is_raised_by_shutdown(self):
        def fail_late(args, ctx):
            square_all(args, ctx)
            raise ValueError("FAKE exception after feeding")

        cluster = self.run_cluster(fail_late, {})
        self.assertEqual(cluster.inference(self.sc.parallelize(range(100), 4)).sum(), sum(x * x for x in range(100)))
        with self.assertRaisesRegex(Exception, "FAKE exception after feeding"):
            cluster.shutdown(grace_secs=5)

    def test_a_stream_trains_until_nodes_have_seen_enough(self):
        ssc = StreamingContext(self.sc, 1)
        batches = [self.sc.parallelize(["row-%d-%d" % (batch, i) for i in range(20)], 2) for batch in range(30)]
        args = argparse.Namespace(folder=self.folder, enough=20)
        cluster = self.run_cluster(take_enough, args)
        cluster.train(ssc.queueStream(batches), 0)
        ssc.start()
        cluster.shutdown(ssc)
        seen = [text.split() for text in self.said("seen")]
        self.assertEqual([len(rows) >= args.enough for rows in seen], [True] * NODES)
        self.assertEqual(len(set(sum(seen, []))), sum(map(len, seen)))

    # ---- contexts, roles, arguments ----

    def test_a_context_knows_its_cluster_its_command_line_and_its_port(self):
        def look(args, ctx):
            parser = argparse.ArgumentParser()
            parser.add_argument("--folder")
            parser.add_argument("--steps", type=int)
            parsed = parser.parse_args()  # a list of arguments is argv
            port = ctx.tmp_socket.getsockname()[1]  # it is kept until it is released
            own = ctx.cluster_spec[ctx.job_name][ctx.task_index].endswith(":%d" % port)
            ctx.release_port()
            sizes = {job: len(hosts) for job, hosts in ctx.cluster_spec.items()}
            paths = [ctx.absolute_path(path) for path in ("/abs", "hdfs://host/path", "relative")]
            facts = ctx.job_name, own, ctx.tmp_socket, parsed.steps, args == sys.argv, sizes, ctx.defaultFS, paths
            with open(os.path.join(parsed.folder, "ctx-%d" % ctx.executor_id), "w") as out:
                out.write(repr(facts))
            assert ctx.working_dir and ctx.mgr is not None

        argv = ["program.py", "--folder", self.folder, "--steps", "30"]
        options = {"master_node": "chief", "log_dir": self.folder, "release_port": False}
        cluster = self.run_cluster(look, argv, TFCluster.InputMode.TENSORFLOW, **options)
        jobs = sorted((node["job_name"], node["task_index"]) for node in cluster.cluster_info)
        self.assertEqual(jobs, [("chief", 0)] + [("worker", i) for i in range(NODES - 1)])
        self.assertEqual(cluster.cluster_meta["num_executors"], NODES)
        cluster.shutdown()
        here = "file://" + os.getcwd() + "/relative"
        sizes, paths = {"chief": 1, "worker": NODES - 1}, ["file:///abs", "hdfs://host/path", here]
        found = [eval(text) for text in self.said("ctx")]
        self.assertEqual([facts[1:] for facts in found], [(True, None, 30, True, sizes, "file://", paths)] * NODES)
        self.assertEqual([facts[0] for facts in found], ["chief"] + ["worker"] * (NODES - 1))

    def test_parameter_servers_run_on_the_driver(self):
        def ps_or_worker(args, ctx):
            import tensorflow as tf

            tf1 = tf.compat.v1
            server = tf1.train.Server(tf1.train.ClusterSpec(ctx.cluster_spec), ctx.job_name, ctx.task_index)
            if ctx.job_name == "ps":
                with open(os.path.join(args["folder"], "ps"), "w") as out:
                    out.write(str(os.getcwd()))
                server.join()
            with tf.Graph().as_default():
                with tf.device("/job:ps/task:0"):
                    variable = tf1.get_variable("total", initializer=1.0)
                with tf1.Session(server.target) as session:
                    session.run(tf1.global_variables_initializer())
                    total = session.run(variable.assign_add(41.0))
            with open(os.path.join(args["folder"], "worker-%d" % ctx.task_index), "w") as out:
                out.write(str(total))

        args = {"folder": self.folder}
        with self.assertRaisesRegex(Exception, "TENSORFLOW"):
            self.run_cluster(ps_or_worker, args, num_ps=1, driver_ps_nodes=True)
        mode = TFCluster.InputMode.TENSORFLOW
        cluster = TFCluster.run(self.sc, ps_or_worker, args, 2, 1, input_mode=mode, driver_ps_nodes=True)
        cluster.shutdown()
        self.assertEqual(self.said("worker"), ["42.0"])
        self.assertEqual(len(self.said("ps")), 1)

    def test_examples_are_made_by_tasks(self):
        df = self.spark.createDataFrame([(i, "row %d" % i) for i in range(6)], ["number", "text"])
        examples = df.rdd.mapPartitions(dfutil.toTFExample(df.dtypes))
        back = examples.mapPartitions(dfutil.fromTFExample).collect()
        self.assertEqual([(row.number, row.text) for row in back], [(i, "row %d" % i) for i in range(6)])


if __name__ == "__main__":
    unittest.main()
