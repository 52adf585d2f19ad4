"""A suite for tensorflowonspark.pipeline and dfutil: estimator, model, parameters, TFRecords there and back."""

import os
import tempfile
import unittest

import numpy as np
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from tensorflowonspark import dfutil, gpu_info
from tensorflowonspark.pipeline import HasBatchSize, HasSteps, Namespace, TFEstimator, TFModel, TFParams, yield_batch

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

    def test_namespaces_are_made_of_many_things(self):
        import argparse

        n1 = Namespace({"string": "foo", "integer": 1, "float": 3.14, "array": [1, 2, 3], "map": {"a": 1, "b": 2}})
        self.assertEqual((n1.string, n1.integer, n1.array, n1.map["b"]), ("foo", 1, [1, 2, 3], 2))
        self.assertTrue("string" in n1)
        self.assertFalse("extra" in n1)
        self.assertEqual(Namespace(n1), n1)
        self.assertEqual(Namespace(argparse.Namespace(**vars(n1))), n1)
        argv = ["-foo", "1", "--bar", "xyz"]
        self.assertEqual(Namespace(argv).argv, argv)
        self.assertEqual(list(Namespace(argv)), argv)
        with self.assertRaises(Exception):
            Namespace(5)

    def test_parameters_override_arguments(self):
        class Both(TFParams, HasBatchSize, HasSteps):
            def __init__(self, args):
                super(Both, self).__init__()
                self.args = args

        both = Both(Namespace({"batch_size": 1, "other": 1}))
        both.setBatchSize(10).setSteps(30)
        merged = both.merge_args_params()
        self.assertEqual((merged.batch_size, merged.steps, merged.other), (10, 30, 1))
        self.assertEqual(both.getBatchSize(), 10)

    def test_batches_are_columns(self):
        rows = [(i, [float(i)], "text %d" % i) for i in range(5)]
        batches = list(yield_batch(rows, 2, 3))
        self.assertEqual([len(batch) for batch in batches], [3, 3, 3])
        self.assertEqual([batch[0] for batch in batches], [[0, 1], [2, 3], [4]])
        self.assertEqual(batches[2][2], ["text 4"])

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

    def test_records_come_back_as_they_were(self):
        rows = [(bytearray(b"123"), 1, "text", [1, 2, 3], 1.5), (bytearray(b"4"), 2, "more", [4, 5, 6], 2.5)]
        df = self.spark.createDataFrame(rows, ["binary", "number", "text", "list", "real"])
        path = self.folder + "/records"
        dfutil.saveAsTFRecords(df, path)
        back = dfutil.loadTFRecords(self.sc, path, binary_features=["binary"])
        self.assertTrue(dfutil.isLoadedDF(back))
        self.assertFalse(dfutil.isLoadedDF(df))
        self.assertEqual(
            sorted(back.dtypes),
            [
                ("binary", "binary"),
                ("list", "array<bigint>"),
                ("number", "bigint"),
                ("real", "double"),
                ("text", "string"),
            ],
        )
        found = sorted(back.select("number", "binary", "text", "list", "real").collect())
        self.assertEqual(
            [(row.number, bytes(row.binary), row.text, row.list, row.real) for row in found],
            [(1, b"123", "text", [1, 2, 3], 1.5), (2, b"4", "more", [4, 5, 6], 2.5)],
        )

    def test_a_schema_is_inferred_from_an_example(self):
        import tensorflow as tf

        features = {
            "blob": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"\x00"])),
            "many": tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2])),
            "one": tf.train.Feature(int64_list=tf.train.Int64List(value=[1])),
            "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a"])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        self.assertEqual(
            dfutil.infer_schema(example, ["blob"]),
            StructType(
                [
                    StructField("blob", BinaryType(), True),
                    StructField("many", ArrayType(LongType()), True),
                    StructField("one", LongType(), True),
                    StructField("text", StringType(), True),
                ]
            ),
        )
        rows = list(dfutil.fromTFExample([(example.SerializeToString(), None)], ["blob"]))
        self.assertEqual((rows[0].many, rows[0].one, rows[0].text, bytes(rows[0].blob)), ([1, 2], 1, "a", b"\x00"))

    def test_examples_are_made_by_tasks(self):
        df = self.spark.createDataFrame([(i, "row %d" % i) for i in range(6)], ["number", "text"])
        examples = df.rdd.mapPartitions(dfutil.toTFExample(df.dtypes))
        back = examples.mapPartitions(dfutil.fromTFExample).collect()
        self.assertEqual([(row.number, row.text) for row in back], [(i, "row %d" % i) for i in range(6)])

    def test_no_gpu_is_not_an_error(self):
        self.assertIn(gpu_info.is_gpu_available(), (True, False))


if __name__ == "__main__":
    unittest.main()
