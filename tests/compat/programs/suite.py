"""A suite for TFCluster as projects wrote it for TensorFlowOnSpark: unittest, MASTER, one SparkContext for a class."""

import os
import sys
import tempfile
import threading
import time
import unittest

from pyspark import SparkConf, SparkContext

from tensorflowonspark import TFCluster, TFNode

NODES = int(os.environ.get("SPARK_WORKER_INSTANCES", "2"))


def square_all(args, ctx):
    """Answer each row with its square, batch by batch."""
    feed = TFNode.DataFeed(ctx.mgr, False)
    while not feed.should_stop():
        batch = feed.next_batch(10)
        if len(batch) > 0:
            feed.batch_results([x * x for x in batch])


class ClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        conf = SparkConf().setMaster(os.environ["MASTER"]).setAppName(cls.__name__)
        cls.sc = SparkContext(conf=conf)
        cls.sc.setLogLevel("ERROR")

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

    def test_results_keep_their_types(self):
        def describe(args, ctx):
            feed = ctx.get_data_feed(train_mode=False)
            while not feed.should_stop():
                batch = feed.next_batch(3)
                feed.batch_results([(type(row).__name__, row) for row in batch])

        rows = [([1, 2, 3], 7), ("text", None), None, {"a": [1.5]}, b"bytes", [], (1, ("x", [2, [3]])), True, 2**70, ""]
        cluster = self.run_cluster(describe, {})
        if "tfos_lab" not in sys.modules:  # None ends a feed of the original
            rows.remove(None)
        found = cluster.inference(self.sc.parallelize(rows, 2)).collect()
        cluster.shutdown()
        self.assertEqual(found, [(type(row).__name__, row) for row in rows])

    def test_columns_go_to_tensors_by_sorted_name(self):
        def tensors(args, ctx):
            mapping = {"b_label": "y", "a_features": "x"}
            feed = ctx.get_data_feed(train_mode=True, input_mapping=mapping)
            x, y = [], []
            while not feed.should_stop():
                batch = feed.next_batch(8)
                if batch["x"]:
                    x += batch["x"]
                    y += batch["y"]
            with open(os.path.join(args["folder"], "sums-%d" % ctx.executor_id), "w") as out:
                out.write("%s %s" % (sum(values[1] for values in x), sum(y)))

        from pyspark.sql import SparkSession

        spark = SparkSession.builder.getOrCreate()
        df = spark.createDataFrame([([float(i), 2.0 * i], i) for i in range(10)], ["a_features", "b_label"])
        cluster = self.run_cluster(tensors, {"folder": self.folder})
        cluster.train(df.select("a_features", "b_label").rdd, 1)
        cluster.shutdown()
        sums = [text.split() for text in self.said("sums")]
        self.assertEqual(sum(float(x) for x, _ in sums), 90.0)
        self.assertEqual(sum(int(y) for _, y in sums), 45)

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

    # ---- what goes wrong ----

    def test_an_exception_amid_the_feed_reaches_the_program(self):
        def fail(args, ctx):
            feed = ctx.get_data_feed(train_mode=False)
            while not feed.should_stop():
                batch = feed.next_batch(10)
                if len(batch) > 0:
                    raise ValueError("FAKE exception during feeding")

        cluster = self.run_cluster(fail, {})
        with self.assertRaisesRegex(Exception, "FAKE exception during feeding"):
            cluster.inference(self.sc.parallelize(range(1000), 10)).sum()
        with self.assertRaises((Exception, SystemExit)):
            cluster.shutdown()

    def test_an_exception_after_the_feed_is_raised_by_shutdown(self):
        def fail_late(args, ctx):
            square_all(args, ctx)
            raise ValueError("FAKE exception after feeding")

        cluster = self.run_cluster(fail_late, {})
        self.assertEqual(cluster.inference(self.sc.parallelize(range(100), 4)).sum(), sum(x * x for x in range(100)))
        with self.assertRaisesRegex(Exception, "FAKE exception after feeding"):
            cluster.shutdown(grace_secs=5)

    # ---- contexts, roles, arguments ----

    def test_files_mode_runs_one_function_per_node(self):
        def compute(args, ctx):
            import tensorflow as tf

            total = tf.add(args["x"], args["y"])
            with open(os.path.join(args["folder"], "node-%d" % ctx.executor_id), "w") as out:
                out.write(
                    "ctx: %s:%d of %d, result %d" % (ctx.job_name, ctx.task_index, ctx.num_workers, total.numpy())
                )

        args = {"x": 2, "y": 3, "folder": self.folder}
        self.run_cluster(compute, args, TFCluster.InputMode.TENSORFLOW).shutdown()
        self.assertEqual(self.said("node"), ["ctx: worker:%d of %d, result 5" % (i, NODES) for i in range(NODES)])

    def test_a_list_of_arguments_is_argv(self):
        def parse(args, ctx):
            import argparse

            parser = argparse.ArgumentParser()
            parser.add_argument("--folder")
            parser.add_argument("--steps", type=int)
            parsed = parser.parse_args()
            with open(os.path.join(parsed.folder, "argv-%d" % ctx.executor_id), "w") as out:
                out.write("%d %s" % (parsed.steps, args == sys.argv))

        argv = ["program.py", "--folder", self.folder, "--steps", "30"]
        self.run_cluster(parse, argv, TFCluster.InputMode.TENSORFLOW).shutdown()
        self.assertEqual(self.said("argv"), ["30 True"] * NODES)

    def test_a_context_knows_its_cluster(self):
        def look(args, ctx):
            sizes = {job: len(hosts) for job, hosts in ctx.cluster_spec.items()}
            paths = [ctx.absolute_path(path) for path in ("/abs", "hdfs://host/path", "relative")]
            with open(os.path.join(args["folder"], "ctx-%d" % ctx.executor_id), "w") as out:
                out.write(repr((ctx.job_name, ctx.task_index, ctx.worker_num, sizes, ctx.defaultFS, paths)))
            assert ctx.working_dir and ctx.mgr is not None
            assert ctx.tmp_socket is None

        cluster = self.run_cluster(
            look, {"folder": self.folder}, TFCluster.InputMode.TENSORFLOW, master_node="chief", log_dir=self.folder
        )
        self.assertEqual(len(cluster.cluster_info), NODES)
        jobs = sorted((node["job_name"], node["task_index"]) for node in cluster.cluster_info)
        self.assertEqual(jobs, [("chief", 0)] + [("worker", i) for i in range(NODES - 1)])
        self.assertTrue(all(node["port"] for node in cluster.cluster_info))
        self.assertEqual(cluster.cluster_meta["num_executors"], NODES)
        self.assertIsNone(cluster.tensorboard_url())
        cluster.shutdown()
        found = [eval(text) for text in self.said("ctx")]
        here = "file://" + os.getcwd() + "/relative"
        expected = ({"chief": 1, "worker": NODES - 1}, "file://", ["file:///abs", "hdfs://host/path", here])
        self.assertEqual([facts[3:] for facts in found], [expected] * NODES)
        self.assertEqual([facts[0] for facts in found], ["chief"] + ["worker"] * (NODES - 1))

    def test_a_port_is_kept_until_it_is_released(self):
        def release(args, ctx):
            own = ctx.cluster_spec[ctx.job_name][ctx.task_index]
            port = ctx.tmp_socket.getsockname()[1]
            ctx.release_port()
            with open(os.path.join(args["folder"], "port-%d" % ctx.executor_id), "w") as out:
                out.write(repr((own.endswith(":%d" % port), ctx.tmp_socket)))

        args = {"folder": self.folder}
        self.run_cluster(release, args, TFCluster.InputMode.TENSORFLOW, release_port=False).shutdown()
        self.assertEqual(self.said("port"), ["(True, None)"] * NODES)

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


if __name__ == "__main__":
    unittest.main()
