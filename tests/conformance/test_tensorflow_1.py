"""Loops of TensorFlow 1: graphs and sessions that are fed from ``ctx.dataset``, and servers between which they run."""

import pytest

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow, pytest.mark.back_ends("local-session")]


# Functions are made where they are asked for: nodes elsewhere cannot import this module.


def adding_up(*, eager):
    """Return a function that adds up the rows of one epoch in each of the ways in which a graph can be fed."""

    def add_up(args, ctx):
        import tensorflow as tf

        v1 = tf.compat.v1
        if not eager:
            v1.disable_eager_execution()

        def in_session(make):
            """Sum what a loop within a MonitoredTrainingSession yields."""
            with tf.Graph().as_default():
                x = v1.placeholder(tf.int64, [None])
                total = tf.reduce_sum(x)
                v1.train.get_or_create_global_step()
                batches = make()
                with v1.train.MonitoredTrainingSession() as session:
                    rows = batches if batches is not None else ctx.dataset(4, features="x")
                    return sum(int(session.run(total, {x: batch["x"][batch["sample_weight"] > 0]})) for batch in rows)

        def in_pipeline(iterate):
            """Sum what TensorFlow reads from a pipeline that is part of the graph."""
            with tf.Graph().as_default():
                v1.train.get_or_create_global_step()
                dataset = ctx.dataset(4, features="x").map(lambda row: tf.where(row["sample_weight"] > 0, row["x"], 0))
                iterator = iterate(dataset)
                total, sums = tf.reduce_sum(iterator.get_next()), []
                scaffold = v1.train.Scaffold(local_init_op=iterator.initializer) if iterate is initializable else None
                with v1.train.MonitoredTrainingSession(scaffold=scaffold) as session:
                    while not session.should_stop():
                        sums.append(int(session.run(total)))
                return sum(sums)

        initializable = v1.data.make_initializable_iterator
        outside = ctx.dataset(4, features="x") if eager else None
        return [
            in_session(lambda: None),
            in_session(lambda: ctx.dataset(4, features="x")),
            in_session(lambda: outside),
            in_pipeline(initializable),
        ]

    return add_up


@pytest.mark.parametrize("eager", [True, False])
def test_a_graph_is_fed_from_the_dataset(run, frame, eager):
    cluster = run(adding_up(eager=eager))
    cluster.train(frame(21, 21), epochs=4)
    sums = zip(*cluster.wait(timeout=120).values(), strict=True)
    assert [sum(pair) for pair in sums] == [sum(range(42))] * 4
