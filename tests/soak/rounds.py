"""The rounds of a soak: one cluster of three nodes each, which works, is fed, answers, or reads a stream."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tfos_lab
from tests.soak import nodes
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV

NODES = 3
# The longest that anything in a round may take on a busy machine.
PATIENCE_S = 240.0


@dataclass(frozen=True)
class Stage:
    """Where a soak plays: its session, the option ``local`` of its clusters, and a folder for checkpoints."""

    spark: Any
    local: str
    folder: Path


class Round:
    """One cluster and what it is for; a fault may be done to it from another thread.

    Parameters
    ----------
    stage : Stage
        Where it plays.
    kind : str
        What it is for, a key of `ROUNDS`.
    raises : str
        The node whose function raises, or "".
    hang_timeout : float, optional
        After how long a node without a sign of work ends the cluster; by default none does.
    """

    def __init__(
        self, stage: Stage, rng: random.Random, kind: str, *, raises: str = "", hang_timeout: float = 0.0
    ) -> None:
        self.stage, self.rng = stage, rng
        map_fun, self._play = ROUNDS[kind]
        self.cluster = tfos_lab.run(
            map_fun,
            {"raises": raises, "steps": rng.randint(5, 30)},
            name=kind,
            spark=stage.spark,
            cluster_size=NODES,
            local=stage.local,
            env=QUICK_ENV,
            grace=1.0,
            tensorboard=False,
            **({"hang_timeout": hang_timeout, "on_hang": "fail"} if hang_timeout else {}),
        )

    def play(self) -> None:
        """Do what the cluster is for, and see that the results are right."""
        self._play(self, self.stage.spark, self.rng)

    def total(self) -> int:
        """Return the sum of all rows, when the nodes have read them."""
        return sum(self.cluster.wait(timeout=PATIENCE_S).values())


def play_work(game, spark, rng):
    results = game.cluster.wait(timeout=PATIENCE_S)
    assert dict(results) == {view.name: view.name for view in game.cluster.nodes}


def play_feed(game, spark, rng):
    rows, epochs = rng.randint(50, 3000), rng.randint(1, 2)
    frame = spark.range(0, rows, 1, rng.randint(1, 5)).withColumnRenamed("id", "x")
    game.cluster.train(frame, epochs=epochs, timeout=PATIENCE_S)
    total = game.total()
    assert total == epochs * rows * (rows - 1) // 2, f"{rows} rows in {epochs} epochs have the sum {total}"


def play_objects(game, spark, rng):
    rows = rng.randint(10, 500)
    rdd = spark.sparkContext.parallelize(range(rows), rng.randint(1, 4)).map(lambda x: {"x": x})
    game.cluster.train(rdd, objects=True, timeout=PATIENCE_S)
    total = game.total()
    assert total == rows * (rows - 1) // 2, f"{rows} objects have the sum {total}"


def play_answers(game, spark, rng):
    rows = rng.randint(10, 500)
    rdd = spark.sparkContext.parallelize(range(rows), rng.randint(1, 4))
    answers = game.cluster.inference(rdd, objects=True, timeout=PATIENCE_S).collect()
    assert answers == [2 * x for x in range(rows)], f"wrong answers for {rows} rows"
    game.cluster.shutdown(PATIENCE_S)


def play_stream(game, spark, rng):
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 30).load()
    checkpoint = game.stage.folder / f"checkpoint-{game.cluster.id}"
    stream = game.cluster.train(rate.selectExpr("value as x"), checkpoint=str(checkpoint), timeout=PATIENCE_S)
    eventually(lambda: not stream.is_active or sum(view.rows for view in game.cluster.nodes) >= 60, PATIENCE_S)
    stream.stop()
    total = game.total()
    rows = round((1 + (1 + 8 * total) ** 0.5) / 2)
    assert total == rows * (rows - 1) // 2, f"the sum {total} is not that of the first rows"


# By kind: what its nodes run, and what is done with them.
ROUNDS = {
    "work": (nodes.work, play_work),
    "feed": (nodes.read, play_feed),
    "objects": (nodes.read, play_objects),
    "answers": (nodes.answer, play_answers),
    "stream": (nodes.read, play_stream),
}
