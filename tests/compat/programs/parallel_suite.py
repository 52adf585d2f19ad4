"""A suite for TFParallel: independent functions, with and without Spark's barrier."""

import argparse
import os
import tempfile
import unittest

from pyspark import SparkConf, SparkContext

from tensorflowonspark import TFParallel

NODES = int(os.environ.get("SPARK_WORKER_INSTANCES", "2"))


def write_facts(args, ctx):
    with open(os.path.join(args.folder, "worker-%d" % ctx.worker_num), "w") as out:
        out.write("%d of %d, %s, %s" % (ctx.executor_id, ctx.num_workers, ctx.defaultFS, ctx.absolute_path("/x")))


def fail(args, ctx):
    raise ValueError("FAKE exception of worker %d" % ctx.worker_num)


class ParallelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sc = SparkContext(conf=SparkConf().setMaster(os.environ["MASTER"]).setAppName(cls.__name__))
        cls.sc.setLogLevel("ERROR")

    @classmethod
    def tearDownClass(cls):
        cls.sc.stop()

    def run_parallel(self, count, **options):
        folder = tempfile.mkdtemp()
        TFParallel.run(self.sc, write_facts, argparse.Namespace(folder=folder), count, **options)
        found = []
        for i in range(count):
            with open(os.path.join(folder, "worker-%d" % i)) as opened:
                found.append(opened.read())
        return found

    def test_with_a_barrier(self):
        expected = ["%d of %d, file://, file:///x" % (i, NODES) for i in range(NODES)]
        self.assertEqual(self.run_parallel(NODES), expected)

    def test_more_functions_than_slots_without_a_barrier(self):
        count = 6
        expected = ["%d of %d, file://, file:///x" % (i, count) for i in range(count)]
        self.assertEqual(self.run_parallel(count, use_barrier=False), expected)

    def test_an_exception_is_raised_here(self):
        for barrier in (True, False):
            with self.assertRaisesRegex(Exception, "FAKE exception of worker"):
                TFParallel.run(self.sc, fail, argparse.Namespace(), NODES, use_barrier=barrier)


if __name__ == "__main__":
    unittest.main()
