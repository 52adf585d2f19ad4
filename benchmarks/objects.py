"""Rows that are Python objects, from an RDD's cache to two nodes and back; with TensorFlowOnSpark's DataFeed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tfos_lab
from benchmarks.measure import Row, median, not_measured
from benchmarks.peers.digits import MANY, write_digits
from benchmarks.peers.environment import PeersMissing, find_python
from benchmarks.peers.peer import PeerFailed
from benchmarks.peers.rig import Rig, side_by_side, take_turns

if TYPE_CHECKING:
    from pyspark import RDD

_NODES = 2
_BATCH = 128
_LISTS = MANY
_TEXTS = 100_000
_TIMES = 5
_ROUNDS = 2


def measure() -> Iterator[Row]:
    """Compare the feeds, and an inference; a single row says why if the peers cannot be installed."""
    try:
        python = find_python()
    except PeersMissing as why:
        yield not_measured("objects, beside TensorFlowOnSpark", why)
        return
    with side_by_side(python, executors=_NODES) as rig:
        yield from _measure(rig)


def _measure(rig: Rig) -> Iterator[Row]:
    """Feed cached rows with both, and have texts answered."""
    digits, texts = write_digits(rig, _LISTS), _write_texts(rig, _TEXTS)
    lists = rig.spark.read.parquet(digits).rdd.map(lambda row: list(row[0])).repartition(_NODES).cache()
    lines = rig.spark.sparkContext.textFile(texts, _NODES).coalesce(_NODES).cache()
    assert (lists.count(), lines.count()) == (_LISTS, _TEXTS)
    with contextlib.suppress(PeerFailed):
        _ask(rig, "feed_objects", path=digits, as_texts=False)
    for what, rows, path, as_texts in (
        ("objects: lists of 784 ints, RDD to batches on 2 nodes", lists, digits, False),
        ("objects: strings, RDD to batches on 2 nodes", lines, texts, True),
    ):
        yield _compare(
            what,
            lambda rows=rows: _feed(rig, rows),
            lambda path=path, as_texts=as_texts: _ask(rig, "feed_objects", path=path, as_texts=as_texts),
        )
    yield _compare(
        "objects: strings, inference of their lengths by 2 nodes",
        lambda: _infer(rig, lines),
        lambda: _ask(rig, "infer_objects", path=texts),
    )
    for cached in (lists, lines):
        cached.unpersist()


def _write_texts(rig: Rig, count: int) -> str:
    path = Path(rig.folder / f"texts-{count}")
    path.write_text("".join(f"line {number} of a text that somebody has written once\n" for number in range(count)))
    return str(path)


def _compare(what: str, ours: Callable[[], float], theirs: Callable[[], float]) -> Row:
    ours()  # once, to warm up
    try:
        mine, others = take_turns(_ROUNDS, ours, theirs)
    except PeerFailed as why:
        return not_measured(what, why)
    fast, slow = median(mine), median(others)
    return Row(what, "rows/s", fast, slow, f"≥ {_TIMES} ×", fast >= _TIMES * slow, _ROUNDS)


def _ask(rig: Rig, what: str, **arguments: Any) -> float:
    """Return TensorFlowOnSpark's rows/s."""
    answer = rig.peer.ask(what, partitions=_NODES, **arguments)
    return answer["rows"] / answer["seconds"]


def _feed(rig: Rig, rows: RDD[Any]) -> float:
    """Return our rows/s until the last batch has been taken."""
    with tfos_lab.run(take_all, cluster_size=_NODES, master_node=None, spark=rig.spark, local="off") as cluster:
        cluster.wait_until_running()
        started = time.time()
        cluster.train(rows, objects=True)
        results = cluster.wait()
    return sum(count for count, _ in results.values()) / (max(end for _, end in results.values()) - started)


def take_all(_args: object, ctx: Any) -> tuple[int, float]:
    """Take all batches; return the number of rows, and when the last one came."""
    import time

    rows, end, feed = 0, 0.0, ctx.data_feed()
    while not feed.should_stop():
        batch = feed.next_batch(_BATCH)
        rows, end = rows + len(batch), time.time()
    return rows, end


def _infer(rig: Rig, texts: RDD[str]) -> float:
    """Return our rows/s until Spark has all results."""
    with tfos_lab.run(answer_all, cluster_size=_NODES, master_node=None, spark=rig.spark, local="off") as cluster:
        cluster.wait_until_running()
        started = time.time()
        total = cluster.inference(texts, objects=True).sum()
        seconds = time.time() - started
        cluster.wait()
    assert total > 0
    return _TEXTS / seconds


def answer_all(_args: object, ctx: Any) -> None:
    """Answer each text with its length."""
    feed = ctx.data_feed(train_mode=False)
    while not feed.should_stop():
        feed.batch_results([len(text) for text in feed.next_batch(_BATCH)])
