"""MNIST as integers from Spark to arrays on two nodes, compared with TensorFlowOnSpark's DataFeed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tfos_lab
from benchmarks.measure import Row, median, not_measured
from benchmarks.peers.digits import MANY, write_digits
from benchmarks.peers.peer import PeerFailed
from benchmarks.peers.rig import Rig, take_turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NODES = 2
_BATCH = 128
_FEW = 2_000
_TIMES = 20


@dataclass(frozen=True)
class _Case:
    """What TensorFlowOnSpark is fed: rows of a cached DataFrame, or the Python lists that they hold, cached.

    Its nodes make arrays of batches of its feed, or put the feed's rows into a ``tf.data.Dataset``, as its example of
    MNIST with Keras does.
    """

    what: str
    as_lists: bool = True
    as_dataset: bool = False
    epochs: int = 1
    rounds: int = 1


_CASES = (
    _Case("one epoch; TensorFlowOnSpark from cached lists, as its MNIST example reads them", as_dataset=True),
    _Case("one epoch; TensorFlowOnSpark from cached lists, batches by its feed alone", rounds=2),
    _Case("one epoch; TensorFlowOnSpark from the DataFrame's rdd, batches by its feed alone", as_lists=False),
    _Case("3 epochs; TensorFlowOnSpark from cached lists, batches by its feed alone", epochs=3),
)


def measure(rig: Rig) -> Iterator[Row]:
    """Feed the same rows with both; ours come from a cached DataFrame."""
    few, many = write_digits(rig, _FEW), write_digits(rig, MANY)
    frame = rig.spark.read.parquet(many).repartition(_NODES).cache()
    frame.count()
    _feed(frame)
    # What fails here fails again below, and is reported there.
    with contextlib.suppress(PeerFailed):
        _feed_peer(rig, few, _CASES[0])
    for case in _CASES:
        yield _compare(rig, case, frame, many)
    frame.unpersist()


def _compare(rig: Rig, case: _Case, frame: DataFrame, path: str) -> Row:
    what = f"MNIST as integers to arrays on 2 nodes, {case.what}"
    try:
        ours, others = take_turns(case.rounds, lambda: _feed(frame, case.epochs), lambda: _feed_peer(rig, path, case))
    except PeerFailed as why:
        return not_measured(what, why)
    fast, slow = median(ours), median(others)
    return Row(what, "rows/s", fast, slow, f"≥ {_TIMES} ×", fast >= _TIMES * slow, case.rounds)


def _feed_peer(rig: Rig, path: str, case: _Case) -> float:
    """Return TensorFlowOnSpark's rows/s until the last batch is read."""
    how = {"as_lists": case.as_lists, "as_dataset": case.as_dataset, "epochs": case.epochs}
    answer = rig.peer.ask("feed", path=path, partitions=_NODES, **how)
    return answer["rows"] / answer["seconds"]


def _feed(frame: DataFrame, epochs: int = 1) -> float:
    """Return our rows/s until the last batch is an array."""
    options = {"spark": frame.sparkSession, "local": "off"}
    with tfos_lab.run(read_all, cluster_size=_NODES, master_node=None, **options) as cluster:
        cluster.wait_until_running()
        started = time.time()
        cluster.train(frame, epochs=epochs)
        results = cluster.wait()
    return sum(rows for rows, _ in results.values()) / (max(end for _, end in results.values()) - started)


def read_all(_args: object, ctx: Any) -> tuple[int, float]:
    """Make arrays of all batches; return the number of rows, and when the last array was made."""
    import time

    import numpy as np

    rows, end = 0, 0.0
    for _epoch in range(ctx.epochs):
        for batch in ctx.dataset(_BATCH):
            images = batch["image"].numpy().astype(np.float32) / 255
            labels = batch["label"].numpy()
            assert len(images) == len(labels)
            rows, end = rows + int((batch["sample_weight"].numpy() != 0).sum()), time.time()
    return rows, end
