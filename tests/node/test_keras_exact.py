"""Training on N nodes equals training in one process on the same global batches, to 1e-5, in every reported number.

For numbers of rows and nodes, batch sizes and partitions at the edges, with and without weights: with Keras 3, with
tf_keras, and in a custom loop with ``tf.nn.compute_average_loss(…, sample_weight=w)``.
"""

from __future__ import annotations

import numpy as np
import pytest

import tfos_lab
from tests.node.exact_training import EPOCHS, read_when_there, train_examples, write

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]

TOLERANCE = 1e-5
# One pass to record the batches, the epochs of training, and `evaluate`.
READINGS = EPOCHS + 2


class Trainer:
    """A cluster that works through examples."""

    def __init__(self, loop, nodes, folder, spark):
        self.loop = loop
        self._nodes = nodes
        self._folder = folder
        self._spark = spark
        self._count = 0
        env = {"TF_USE_LEGACY_KERAS": "1"} if loop == "tf_keras" else {}
        self.cluster = tfos_lab.run(train_examples, str(folder), cluster_size=nodes, env=env, spark=spark, name="exact")

    def train(self, partitions, **fields):
        """Return the results of each node, and those of one process."""
        random = np.random.default_rng(sum(partitions))
        rows = [
            (random.normal(size=3).tolist(), float(random.random() < 0.4), float(random.choice([0.0, 0.5, 1.0, 2.5])))
            for _ in range(sum(partitions))
        ]
        if "loss scale" in fields.get("kind", ""):
            rows[50] = (rows[50][0], 1e8, 1.0)  # its gradients overflow
        self._count += 1
        write(self._folder / f"{self._count}.json", {"loop": self.loop, "rows": rows, **fields})
        self.cluster.train(self._frame(rows, partitions), epochs=READINGS)
        names = [*map(str, range(self._nodes)), "alone"]
        *nodes, alone = (self._result(name) for name in names)
        assert alone.pop("rows") == list(range(len(rows)))
        return nodes, alone

    def _frame(self, rows, partitions):
        numbered = [(number, *row) for number, row in enumerate(rows)]
        ends = np.cumsum(partitions)
        parts = [numbered[end - size : end] for end, size in zip(ends, partitions, strict=True)]
        rdd = self._spark.sparkContext.parallelize(parts, len(parts)).flatMap(list)
        return self._spark.createDataFrame(rdd, "id long, x array<float>, y float, weight float")

    def _result(self, name):
        path = self._folder / f"{self._count}-{name}.result"
        while not path.exists():
            assert not self.cluster.wait_a_step(), self.cluster.logs(tail=20)
        return read_when_there(path)

    def close(self):
        write(self._folder / f"{self._count + 1}.json", None)
        self.cluster.shutdown(timeout=60)


NODES = {"keras": 3, "tf_keras": 2, "by hand": 2}
# How rows become steps is the same whoever trains on them, and `test_batches` has its laws: all loops have the edges at
# which some rows do not count.
EDGES = [
    ([0, 1, 0, 1], 4, True, "exact"),  # fewer rows than nodes
    ([7, 0, 31, 2, 19], 11, True, "pad"),
]
MORE_EDGES = [
    ([96, 1], 16, False, "exact"),  # a row more than full batches
    ([5, 0, 2], 1, True, "exact"),
]

by_loop = pytest.mark.parametrize("trainer", NODES, indirect=True)


@pytest.fixture(scope="module")
def trainer(request, tmp_path_factory, spark_sessions):
    """A cluster for a loop."""
    loop = request.param
    trainer = Trainer(loop, NODES[loop], tmp_path_factory.mktemp("exact"), spark_sessions.get("local"))
    yield trainer
    trainer.close()


@by_loop
def test_a_feed_whose_length_is_not_known_yet_is_trained_on_in_as_many_steps_as_it_has(trainer):
    check(*trainer.train([40, 0, 33], batch_size=8, weighted=False, remainder="exact", cold=True))


@by_loop
def test_optimizers_see_what_they_would_in_one_process(trainer):
    """One for each loop: others are in tests/ordinary_models."""
    kind = "accumulation" if trainer.loop == "by hand" else "loss scale"
    check(*trainer.train([40, 37, 30], batch_size=16, weighted=True, remainder="exact", kind=kind))


@by_loop
def test_nodes_train_as_one_process_does(trainer):
    for edge in EDGES + (MORE_EDGES if trainer.loop == "keras" else []):
        partitions, batch_size, weighted, remainder = edge
        check(*trainer.train(partitions, batch_size=batch_size, weighted=weighted, remainder=remainder))


def check(nodes, alone):
    """Compare all that the nodes have reported with what one process has, and their weights with one another's."""
    for node in nodes:
        assert node.keys() == alone.keys()
        assert node["weights"] == nodes[0]["weights"]
        for weight, expected in zip(node["weights"], alone["weights"], strict=True):
            np.testing.assert_allclose(weight, expected, rtol=0, atol=TOLERANCE)
        for what in node.keys() - {"weights"}:
            assert len(node[what]) == len(alone[what])
            for shown, expected in zip(node[what], alone[what], strict=True):
                assert shown == pytest.approx(expected, abs=TOLERANCE, rel=TOLERANCE), what
