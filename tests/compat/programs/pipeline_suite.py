"""A suite for tensorflowonspark.pipeline and dfutil: estimator, model, examples made by tasks."""

import os
import tempfile
import unittest

import numpy as np
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tensorflowonspark import dfutil
from tensorflowonspark.pipeline import TFEstimator, TFModel

WEIGHTS = [3.14, 1.618]


def train_line(args, ctx):
    """Fit two weights to the rows of the feed, and save them as a SavedModel with a named signature."""
    import tensorflow as tf

    from tensorflowonspark import TFNode

    class Line(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable([[0.0], [0.0]], name="weights")

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="features")])
        def predict(self, features):
            y = tf.matmul(features, self.weights)
            return {"prediction": y, "doubled": 2.0 * y}

    feed = TFNode.DataFeed(ctx.mgr, input_mapping=args.input_mapping)
    x, y = [], []
    while not feed.should_stop():
        batch = feed.next_batch(args.batch_size)
        if len(batch["labels"]) > 0:
            x.extend(batch["features"])
            y.extend(batch["labels"])
    if ctx.job_name == "chief":
        line = Line()
        line.weights.assign(np.linalg.lstsq(np.array(x), np.array(y).reshape(-1, 1), rcond=None)[0])
        tf.saved_model.save(line, args.export_dir, signatures={"serving_default": line.predict})


class PipelineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        conf = SparkConf().setMaster(os.environ["MASTER"]).setAppName(cls.__name__)
        cls.sc = SparkContext(conf=conf)
        cls.sc.setLogLevel("ERROR")
        cls.spark = SparkSession.builder.getOrCreate()
        np.random.seed(42)
        cls.features = np.random.rand(200, 2)
        cls.labels = [sum(w * x for w, x in zip(WEIGHTS, row)) for row in cls.features]

    @classmethod
    def tearDownClass(cls):
        cls.sc.stop()

    def setUp(self):
        self.folder = tempfile.mkdtemp()

    def test_an_estimator_trains_and_its_model_transforms(self):
        rows = [(x.tolist(), float(y)) for x, y in zip(self.features, self.labels)]
        df = self.spark.createDataFrame(rows, ["col1", "col2"])
        args = {"learning_rate": 0.1}
        estimator = (
            TFEstimator(train_line, args)
            .setInputMapping({"col1": "features", "col2": "labels"})
            .setExportDir(self.folder)
            .setClusterSize(int(os.environ.get("SPARK_WORKER_INSTANCES", "2")))
            .setMasterNode("chief")
            .setNumPS(0)
            .setBatchSize(10)
            .setEpochs(2)
            .setGraceSecs(1)
        )
        model = estimator.fit(df)
        self.assertTrue(os.path.isdir(self.folder))
        self.assertIsInstance(model, TFModel)

        model.setInputMapping({"col1": "features"}).setOutputMapping({"prediction": "col_out"})
        model.setSignatureDefKey("serving_default").setTagSet("serve").setExportDir(self.folder).setBatchSize(7)
        out = model.transform(df)
        self.assertEqual(out.columns, ["col_out"])
        found = [row.col_out[0] for row in out.collect()]
        self.assertEqual(len(found), len(rows))
        self.assertTrue(np.allclose(found, self.labels, atol=1e-3))

    def test_examples_are_made_by_tasks(self):
        df = self.spark.createDataFrame([(i, "row %d" % i) for i in range(6)], ["number", "text"])
        examples = df.rdd.mapPartitions(dfutil.toTFExample(df.dtypes))
        back = examples.mapPartitions(dfutil.fromTFExample).collect()
        self.assertEqual([(row.number, row.text) for row in back], [(i, "row %d" % i) for i in range(6)])


if __name__ == "__main__":
    unittest.main()
