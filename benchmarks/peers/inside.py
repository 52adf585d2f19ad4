"""Runs in the peers' environment, which has no tfos_lab, and measures the peers on request.

    inside.py MASTER CONF

starts a Spark session, then reads requests from stdin and writes answers to stdout, one JSON object per line. Each
request names a function of this file and its arguments: ``{"ask": "start", "nodes": 4}``. Errors are answered as
``{"error": "..."}``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

_BATCH = 128


# ---- TensorFlowOnSpark ----------------------------------------------------------------------------------------------


def feed(path: str, partitions: int, *, as_lists: bool, as_dataset: bool, epochs: int) -> dict[str, float]:
    """Feed a DataFrame's rows to as many nodes as it has partitions; seconds until the last batch has been made.

    With `as_lists`, the rows are Python lists that Spark has cached; otherwise the DataFrame is cached, and ``df.rdd``
    is fed, as TensorFlowOnSpark's own estimators do. With `as_dataset`, batches come from a ``tf.data.Dataset``.
    """
    from tensorflowonspark import TFCluster

    rows = _lists(path, partitions) if as_lists else _frame(path, partitions).rdd
    with tempfile.TemporaryDirectory() as marks, tempfile.TemporaryDirectory() as ready:
        context = _session().sparkContext
        spark_mode = TFCluster.InputMode.SPARK
        function, args = read_dataset if as_dataset else read_all, {"marks": marks, "ready": ready}
        cluster = TFCluster.run(context, function, args, partitions, 0, input_mode=spark_mode)
        while sum(1 for _ in Path(ready).iterdir()) < partitions:
            time.sleep(0.01)
        started = time.time()
        cluster.train(rows, epochs)
        cluster.shutdown()
        seen = _read_marks(marks)
    return {"rows": sum(count for count, _ in seen), "seconds": max(end for _, end in seen) - started}


def read_all(args: dict[str, str], ctx) -> None:  # noqa: ANN001 - TensorFlowOnSpark's TFNodeContext
    """Take batches from the feed and make arrays of them, until there are no more."""
    import time
    from pathlib import Path

    import numpy as np

    Path(args["ready"], str(ctx.worker_num)).touch()
    rows, end = 0, 0.0
    tf_feed = ctx.get_data_feed()
    while not tf_feed.should_stop():
        batch = tf_feed.next_batch(_BATCH)
        if batch:
            images = np.array([row[0] for row in batch]).astype(np.float32) / 255
            labels = np.array([row[1] for row in batch])
            assert len(images) == len(labels)
            rows, end = rows + len(images), time.time()
    Path(args["marks"], str(ctx.worker_num)).write_text(f"{rows} {end}")


def read_dataset(args: dict[str, str], ctx) -> None:  # noqa: ANN001 - TensorFlowOnSpark's TFNodeContext
    """Take rows one by one into a ``tf.data.Dataset``, as the MNIST example of TensorFlowOnSpark does for Keras."""
    import time
    from pathlib import Path

    import numpy as np
    import tensorflow as tf

    tf_feed = ctx.get_data_feed()

    def rows_of_feed():  # noqa: ANN202 - a generator of (image, label)
        while not tf_feed.should_stop():
            for row in tf_feed.next_batch(1):
                yield np.array(row[0]).astype(np.float32) / 255, row[1]

    Path(args["ready"], str(ctx.worker_num)).touch()
    shapes = (tf.TensorSpec((784,), tf.float32), tf.TensorSpec((), tf.int64))
    rows, end = 0, 0.0
    for images, labels in tf.data.Dataset.from_generator(rows_of_feed, output_signature=shapes).batch(_BATCH):
        assert len(images) == len(labels)
        rows, end = rows + len(images), time.time()
    Path(args["marks"], str(ctx.worker_num)).write_text(f"{rows} {end}")


def feed_objects(path: str, partitions: int, *, as_texts: bool) -> dict[str, float]:
    """Feed lists of integers, or texts, that Spark has cached; seconds until the last batch has been taken."""
    from tensorflowonspark import TFCluster

    rows = _texts(path, partitions) if as_texts else _images(path, partitions)
    with tempfile.TemporaryDirectory() as marks, tempfile.TemporaryDirectory() as ready:
        context = _session().sparkContext
        spark_mode = TFCluster.InputMode.SPARK
        cluster = TFCluster.run(
            context, take_all, {"marks": marks, "ready": ready}, partitions, 0, input_mode=spark_mode
        )
        while sum(1 for _ in Path(ready).iterdir()) < partitions:
            time.sleep(0.01)
        started = time.time()
        cluster.train(rows, 1)
        cluster.shutdown()
        seen = _read_marks(marks)
    return {"rows": sum(count for count, _ in seen), "seconds": max(end for _, end in seen) - started}


def take_all(args: dict[str, str], ctx) -> None:  # noqa: ANN001 - TensorFlowOnSpark's TFNodeContext
    """Take batches from the feed, until there are no more."""
    import time
    from pathlib import Path

    Path(args["ready"], str(ctx.worker_num)).touch()
    rows, end = 0, 0.0
    tf_feed = ctx.get_data_feed()
    while not tf_feed.should_stop():
        batch = tf_feed.next_batch(_BATCH)
        if batch:
            rows, end = rows + len(batch), time.time()
    Path(args["marks"], str(ctx.worker_num)).write_text(f"{rows} {end}")


def infer_objects(path: str, partitions: int) -> dict[str, float]:
    """Have texts answered with their lengths; seconds until Spark has all results."""
    from tensorflowonspark import TFCluster

    rows = _texts(path, partitions)
    with tempfile.TemporaryDirectory() as ready:
        context = _session().sparkContext
        spark_mode = TFCluster.InputMode.SPARK
        cluster = TFCluster.run(context, answer_all, {"ready": ready}, partitions, 0, input_mode=spark_mode)
        while sum(1 for _ in Path(ready).iterdir()) < partitions:
            time.sleep(0.01)
        started = time.time()
        total = cluster.inference(rows).sum()
        seconds = time.time() - started
        cluster.shutdown()
    assert total > 0
    return {"rows": rows.count(), "seconds": seconds}


def answer_all(args: dict[str, str], ctx) -> None:  # noqa: ANN001 - TensorFlowOnSpark's TFNodeContext
    """Answer each text with its length."""
    from pathlib import Path

    Path(args["ready"], str(ctx.worker_num)).touch()
    tf_feed = ctx.get_data_feed(train_mode=False)
    while not tf_feed.should_stop():
        batch = tf_feed.next_batch(_BATCH)
        if batch:
            tf_feed.batch_results([len(text) for text in batch])


def start(nodes: int) -> dict[str, float]:
    """Run a cluster of an empty map_fun; seconds until its first line runs everywhere, and until all is over."""
    from tensorflowonspark import TFCluster

    with tempfile.TemporaryDirectory() as marks:
        started = time.time()
        context = _session().sparkContext
        # The faster of its two modes.
        spark_mode = TFCluster.InputMode.SPARK
        cluster = TFCluster.run(context, do_nothing, {"marks": marks}, nodes, 0, input_mode=spark_mode)
        cluster.shutdown()
        whole_s = time.time() - started
        first_lines = [moment for _, moment in _read_marks(marks)]
    assert len(first_lines) == nodes
    return {"running_s": max(first_lines) - started, "whole_s": whole_s}


def do_nothing(args: dict[str, str], ctx) -> None:  # noqa: ANN001 - TensorFlowOnSpark's TFNodeContext
    """Record when the first line runs."""
    import time
    from pathlib import Path

    Path(args["marks"], str(ctx.worker_num)).write_text(f"0 {time.time()}")


def make_examples(path: str, partitions: int) -> dict[str, float]:
    """Do what dfutil.saveAsTFRecords does before its JAR gets the records to write."""
    from tensorflowonspark import dfutil

    frame = _frame(path, partitions)
    started = time.perf_counter()
    rows = frame.rdd.mapPartitions(dfutil.toTFExample(frame.dtypes)).count()
    return {"rows": rows, "seconds": time.perf_counter() - started}


def take_examples(path: str, partitions: int) -> dict[str, float]:
    """Do what dfutil.loadTFRecords does after its JAR has read the file; records come from Spark's cache.

    The schema, for which it reads a record, is known beforehand.
    """
    from tensorflowonspark import dfutil

    frame, records = _frame(path, partitions), _examples(path, partitions)
    # Rows come with their columns sorted by name, and as 64-bit integers and floats.
    types = {"array<int>": "array<bigint>", "float": "double"}
    schema = ", ".join(f"{name} {types.get(kind, kind)}" for name, kind in sorted(frame.dtypes))
    started = time.perf_counter()
    records.mapPartitions(dfutil.fromTFExample).toDF(schema).write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - started
    return {"rows": frame.count(), "seconds": seconds}


# ---- spark-tensorflow-distributor -----------------------------------------------------------------------------------


def start_mirrored(nodes: int) -> dict[str, float]:
    """Run an empty function in as many tasks; it makes no strategy, as an empty map_fun makes none."""
    from spark_tensorflow_distributor import MirroredStrategyRunner

    started = time.time()
    runner = MirroredStrategyRunner(num_slots=nodes, use_gpu=False, use_custom_strategy=True)
    first_line = runner.run(time.time)
    return {"running_s": first_line - started, "whole_s": time.time() - started}


def _session() -> SparkSession:
    session = SparkSession.getActiveSession()
    if session is None:
        raise RuntimeError("the Spark session is gone: TensorFlowOnSpark stops it when a node has failed")
    return session


# ---- rows -----------------------------------------------------------------------------------------------------------


@cache
def _frame(path: str, partitions: int) -> DataFrame:
    frame = _session().read.parquet(path).repartition(partitions).cache()
    frame.count()
    return frame


@cache
def _lists(path: str, partitions: int):  # noqa: ANN202 - an RDD of (list of int, int)
    rows = _frame(path, partitions).rdd.map(tuple).cache()
    rows.count()
    return rows


@cache
def _images(path: str, partitions: int):  # noqa: ANN202 - an RDD of lists of int
    rows = _lists(path, partitions).map(lambda row: row[0]).cache()
    rows.count()
    return rows


@cache
def _texts(path: str, partitions: int):  # noqa: ANN202 - an RDD of str
    rows = _session().sparkContext.textFile(path, partitions).coalesce(partitions).cache()
    rows.count()
    return rows


@cache
def _examples(path: str, partitions: int):  # noqa: ANN202 - an RDD of (bytearray, None)
    from tensorflowonspark import dfutil

    frame = _frame(path, partitions)
    records = frame.rdd.mapPartitions(dfutil.toTFExample(frame.dtypes)).cache()
    records.count()
    return records


def _read_marks(folder: str) -> list[tuple[int, float]]:
    """Return what each node has written: a number of rows, and a time."""
    marks = (mark.read_text().split() for mark in Path(folder).iterdir())
    return [(int(rows), float(moment)) for rows, moment in marks]


# ---- requests and answers -------------------------------------------------------------------------------------------

_ASKS = (feed, feed_objects, infer_objects, start, make_examples, take_examples, start_mirrored)
_REQUESTS = {ask.__name__: ask for ask in _ASKS}


def _answer(requests: Iterable[str]) -> Iterable[str]:
    for request in requests:
        arguments = json.loads(request)
        try:
            answer = _REQUESTS[arguments.pop("ask")](**arguments)
        # TensorFlowOnSpark ends the program when a node has failed.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a peer raises is its answer
            answer = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
        yield json.dumps(answer) + "\n"


def main(master_url: str, conf: str) -> None:
    """Answer until stdin ends."""
    # Everything that is printed goes to the log, so that stdout has only answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    builder = SparkSession.builder.master(master_url)
    for name, value in json.loads(conf).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.range(1).count()
    for answer in _answer(sys.stdin):
        answers.write(answer)
        answers.flush()
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
