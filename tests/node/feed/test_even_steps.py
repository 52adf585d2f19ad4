"""``ctx.even``: nodes with uneven datasets take equally many steps, and their weights make them one process."""

from __future__ import annotations

import queue
import threading

import numpy as np
import pytest

import tfos_lab
from tests.node.context.test_context import Rig
from tests.support.instructions import sends
from tfos_lab import messages as m
from tfos_lab.compat.TFSparkNode import TFNodeContext
from tfos_lab.engine.state.even_steps import EvenSteps
from tfos_lab.errors import ConfigError
from tfos_lab.errors.channel import own_error_in
from tfos_lab.node.lock_step import LockStep

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(120)]

SPEC = {"chief": ["a:1"], "worker": ["b:1"]}
NODES = [("chief", 0), ("worker", 0)]


class Cluster:
    """Two nodes in this process, and a driver that answers them on a thread of its own."""

    def __init__(self):
        self.state = EvenSteps({rank: f"{job}:{index}" for rank, (job, index) in enumerate(NODES)})
        self.messages = 0
        self.changes = queue.SimpleQueue()
        threading.Thread(target=self.drive, daemon=True).start()
        self.nodes = []
        for rank, (job, index) in enumerate(NODES):
            start = {"cluster_spec": SPEC, "job_name": job, "task_index": index, "is_chief": not rank, "rank": rank}
            steps = LockStep(m.Start(cluster_id="c", payload=b"", env={}, log_dir="/logs", **start), self.send)
            self.nodes.append(Rig(cluster_spec=SPEC, job_name=job, task_index=index, rank=rank).ctx)
            self.nodes[-1]._lock_step = steps

    def send(self, message):
        self.messages += 1
        self.changes.put(lambda: self.state.handle(message))

    def drive(self):
        while True:
            for rank, message in sends(self.changes.get()()):
                self.nodes[rank]._lock_step.handle(message)

    def read(self, datasets, *, steps=(None, None), leaving=None):
        """Read a pass on both nodes at once; returns their batches, or what they raised. One may return then."""
        found = [[], []]

        def read_one(rank):
            try:
                for number, batch in enumerate(datasets[rank], 1):
                    found[rank].append(batch)
                    if number == steps[rank]:
                        break
            except Exception as error:  # noqa: BLE001 - the test looks at it
                found[rank] = error
            if rank == leaving:
                self.changes.put(lambda: self.state.leave(rank))

        threads = [threading.Thread(target=read_one, args=[rank]) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return found


def rows(count, *, first=0, weighted=False):
    import tensorflow as tf

    x = np.arange(first, first + count, dtype="f4")
    parts = (x[:, None], x, np.full(count, 2.0, "f4"))
    return tf.data.Dataset.from_tensor_slices(parts if weighted else parts[:2])


@pytest.mark.parametrize(
    ("counts", "weighted"), [((23, 9), True), ((4, 0), False), ((0, 0), True), ((3, 40), False)], ids=str
)
def test_every_row_counts_once_in_the_mean_over_all_rows_of_a_step(counts, weighted):
    cluster = Cluster()
    own = [rows(count, first=100 * rank, weighted=weighted).batch(4) for rank, count in enumerate(counts)]
    even = [ctx.even(dataset) for ctx, dataset in zip(cluster.nodes, own, strict=True)]
    for _ in range(2):
        steps = list(zip(*cluster.read(even), strict=True))
        assert len(steps) == max(-(-count // 4) for count in counts)
        seen = []
        for batches in steps:
            real = [y.numpy()[~np.signbit(w.numpy())] for _, y, w in batches]
            seen += np.concatenate(real).tolist()
            mean = np.mean([np.mean(w.numpy() * y.numpy()) for _, y, w in batches])
            assert mean == pytest.approx(np.mean(np.concatenate(real)) * (2 if weighted else 1), rel=1e-6)
            assert all(y.shape == w.shape and x.shape == (len(y), 1) for x, y, w in batches)
        assert sorted(seen) == [*range(counts[0]), *range(100, 100 + counts[1])]


def test_a_filler_batch_is_the_last_one_again_with_weights_that_no_row_has():
    cluster = Cluster()
    even = [
        ctx.even(rows(count).batch(4, drop_remainder=True)) for ctx, count in zip(cluster.nodes, (4, 8), strict=True)
    ]
    _, (x, y, w) = cluster.read(even)[0]
    assert (x.numpy().ravel().tolist(), y.numpy().tolist()) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert np.signbit(w.numpy()).all()
    assert even[0].element_spec[2].shape == (4,)


def test_dicts_get_weights_under_the_name_that_fed_rows_have():
    cluster = Cluster()
    even = [ctx.even(rows(count).map(lambda x, y: {"x": x, "y": y}).batch(4)) for ctx, count in
            zip(cluster.nodes, (6, 2), strict=True)]  # fmt: skip
    chief, worker = cluster.read(even)
    for batches, weights in ((chief, [[4 / 3] * 4, [2.0] * 2]), (worker, [[2 / 3] * 2, [0.0] * 2])):
        for batch, expected in zip(batches, weights, strict=True):
            assert batch["sample_weight"].numpy() == pytest.approx(expected)


def test_with_drop_all_end_with_the_first_and_batches_are_left_as_they_are():
    cluster = Cluster()
    even = [ctx.even(rows(count).map(lambda x, _: x).batch(4), "drop") for ctx, count in
            zip(cluster.nodes, (40, 9), strict=True)]  # fmt: skip
    for _ in range(2):
        found = cluster.read(even)
        assert [[len(batch) for batch in batches] for batches in found] == [[4, 4, 4], [4, 4, 1]]


def test_steps_are_agreed_on_ahead_and_several_at_once():
    cluster = Cluster()
    even = [ctx.even(rows(count).batch(1)) for ctx, count in zip(cluster.nodes, (400, 380), strict=True)]
    assert [len(found) for found in cluster.read(even)] == [400, 400]
    assert cluster.messages <= 2 * 400 / 2


def test_passes_that_all_nodes_leave_at_the_same_step_do_not_count():
    cluster = Cluster()
    even = [ctx.even(rows(count).batch(4)) for ctx, count in zip(cluster.nodes, (80, 60), strict=True)]
    for _ in range(3):
        assert [len(found) for found in cluster.read(even, steps=(2, 2))] == [2, 2]
    assert [len(found) for found in cluster.read(even)] == [20, 20]


def test_who_reads_on_after_another_has_left_is_told_instead_of_waiting_forever():
    cluster = Cluster()
    even = [ctx.even(rows(80).batch(4)) for ctx in cluster.nodes]
    error, batches = cluster.read(even, steps=(None, 2), leaving=1)
    assert len(batches) == 2
    assert str(own_error_in(error)).startswith(
        "worker:0 has left a pass over ctx.even(dataset) that chief:0 still reads"
    )


def test_on_one_node_it_adds_weights_only():
    ctx = tfos_lab.local_context()
    even = ctx.even(rows(6).batch(4))
    assert int(even.cardinality()) == 2
    assert [w.numpy().tolist() for _, _, w in even] == [[1.0] * 4, [1.0] * 2]
    assert [w.numpy().tolist() for _, _, w in ctx.even(rows(2, weighted=True).batch(4))] == [[2.0, 2.0]]
    assert [len(batch) for batch in ctx.even(rows(6).batch(4), "drop")] == [2, 2]
    assert [len(w) for _, _, w in TFNodeContext().even(rows(6).batch(4))] == [4, 2]
    evaluator = Rig(job_name="evaluator", task_index=0).ctx
    assert len(list(evaluator.even(rows(6).batch(4)))) == 2


def test_what_cannot_be_even_is_refused():
    import tensorflow as tf

    ctx = tfos_lab.local_context()
    for dataset, why in [
        (rows(6).batch(4).repeat(), "it is endless, and endless datasets are even: end it with take"),
        (rows(6), "its elements are no batches of dense tensors: batch it before"),
        (rows(6).map(lambda x, _: x).batch(2), r"remainder='exact' needs elements \(x, y\), \(x, y, w\) or a dict"),
        (rows(6).batch(2).map(lambda x, y: (x, y, tf.cast(y, tf.int32))), "remainder='exact' needs"),
    ]:
        with pytest.raises(ConfigError, match=rf"ctx.even\(dataset\): {why}"):
            ctx.even(dataset)
    with pytest.raises(ConfigError, match=r"ctx.even of a list: give it a tf.data.Dataset of batches"):
        ctx.even([1])
    with pytest.raises(ConfigError, match="remainder='pad': use 'exact' or 'drop'"):
        ctx.even(rows(6).batch(4), remainder="pad")


def test_an_even_dataset_is_presharded_and_promises_equal_ends():
    from tfos_lab.node.keras.presharded import ends_together, presharded_of
    from tfos_lab.node.keras.row_counts import mode_of

    cluster = Cluster()
    exact, drop = (cluster.nodes[0].even(rows(6).batch(4), remainder) for remainder in ("exact", "drop"))
    assert ends_together(exact)
    assert ends_together(drop)
    assert presharded_of(exact).has_weights
    assert mode_of(exact, None).asks
    assert mode_of(drop, None) is None
