"""The rounds of a soak: one cluster of three nodes each, which works, is fed, answers, or reads a stream."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tfos_lab
from tests.soak import nodes
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.driver.cluster import Cluster

NODES = 3
# The longest that anything in a round may take on a busy machine.
PATIENCE_S = 240.0


@dataclass(frozen=True)
class Stage:
    """Where a soak plays.

    Parameters
    ----------
    spark : SparkSession
        Its session.
    local : str
        The option ``local`` of its clusters: where their nodes live.
    folder : path
        For checkpoints of streams.
    """

    spark: SparkSession
    local: str
    folder: Path


class Round:
    """One cluster and what it is for; a fault may be done to it from another thread.

    Parameters
    ----------
    stage : Stage
        Where it plays.
    raises : str
        The node whose function raises, or "".
    hang_timeout : float, optional
        After how long a node without a sign of work ends the cluster; by default none does.
    """

    map_fun: Callable[[Any, Any], Any]

    def __init__(self, stage: Stage, rng: random.Random, *, raises: str = "", hang_timeout: float = 0.0) -> None:
        self.stage = stage
        self.rng = rng
        self.args = {"raises": raises, "steps": rng.randint(5, 30)}
        hangs = {"hang_timeout": hang_timeout, "on_hang": "fail"} if hang_timeout else {}
        self.cluster: Cluster = tfos_lab.run(
            type(self).map_fun,
            self.args,
            name=type(self).__name__.lower(),
            spark=stage.spark,
            cluster_size=NODES,
            local=stage.local,
            env=QUICK_ENV,
            grace=1.0,
            tensorboard=False,
            **hangs,
        )

    def play(self) -> None:
        """Do what the cluster is for, and see that the results are right."""
        raise NotImplementedError


class Work(Round):
    """A function that needs no rows."""

    map_fun = staticmethod(nodes.work)

    def play(self) -> None:
        results = self.cluster.wait(timeout=PATIENCE_S)
        assert {node: results[node] for node in results} == {view.name: view.name for view in self.cluster.nodes}


class Feed(Round):
    """A DataFrame, read once or twice."""

    map_fun = staticmethod(nodes.read)

    def play(self) -> None:
        rows, epochs = self.rng.randint(50, 3000), self.rng.randint(1, 2)
        frame = self.stage.spark.range(0, rows, 1, self.rng.randint(1, 5)).withColumnRenamed("id", "x")
        self.cluster.train(frame, epochs=epochs, timeout=PATIENCE_S)
        total = sum(self.cluster.wait(timeout=PATIENCE_S).values())
        assert total == epochs * rows * (rows - 1) // 2, f"{rows} rows in {epochs} epochs have the sum {total}"


class Objects(Round):
    """An RDD of dicts, which travel as Python objects."""

    map_fun = staticmethod(nodes.read)

    def play(self) -> None:
        rows = self.rng.randint(10, 500)
        rdd = self.stage.spark.sparkContext.parallelize(range(rows), self.rng.randint(1, 4)).map(lambda x: {"x": x})
        self.cluster.train(rdd, objects=True, timeout=PATIENCE_S)
        total = sum(self.cluster.wait(timeout=PATIENCE_S).values())
        assert total == rows * (rows - 1) // 2, f"{rows} objects have the sum {total}"


class Answers(Round):
    """The results for an RDD."""

    map_fun = staticmethod(nodes.answer)

    def play(self) -> None:
        rows = self.rng.randint(10, 500)
        rdd = self.stage.spark.sparkContext.parallelize(range(rows), self.rng.randint(1, 4))
        answers = self.cluster.inference(rdd, objects=True, timeout=PATIENCE_S).collect()
        assert answers == [2 * x for x in range(rows)], f"wrong answers for {rows} rows"
        self.cluster.shutdown(PATIENCE_S)


class Stream(Round):
    """A stream of some micro-batches."""

    map_fun = staticmethod(nodes.read)

    def play(self) -> None:
        rate = self.stage.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 30).load()
        checkpoint = self.stage.folder / f"checkpoint-{self.cluster.id}"
        stream = self.cluster.train(rate.selectExpr("value as x"), checkpoint=str(checkpoint), timeout=PATIENCE_S)
        eventually(lambda: not stream.is_active or sum(view.rows for view in self.cluster.nodes) >= 60, PATIENCE_S)
        stream.stop()
        total = sum(self.cluster.wait(timeout=PATIENCE_S).values())
        rows = round((1 + (1 + 8 * total) ** 0.5) / 2)
        assert total == rows * (rows - 1) // 2, f"the sum {total} is not that of the first rows"


ROUNDS: tuple[type[Round], ...] = (Work, Feed, Objects, Answers, Stream)
