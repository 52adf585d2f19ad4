"""Rows beside those to train on, ``validation=``: read whole, as often as the function likes, and exact for Keras."""

import itertools
import os
import signal
import time

import numpy as np
import pytest

import tfos_lab
from tests.support.data_files import rows, write_parquet
from tfos_lab.errors import ConfigError, NodeFailed

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow]


def real(dataset):
    """Return the values of ``x`` in one pass over a dataset, without filler."""
    return [x for batch in dataset for x in batch["x"].numpy()[batch["sample_weight"].numpy() > 0].tolist()]


def read(args, ctx):
    """Return what each epoch reads of the rows to train on, and before and after it of each split in ``args``."""
    splits = {name: ctx.dataset(4, split=name) for name in args}
    passes = {name: [real(split)] for name, split in splits.items()}
    trained = []
    for _ in range(ctx.epochs):
        trained.append(real(ctx.dataset(8)))
        for name, split in splits.items():
            passes[name].append(real(split))
    return {"train": trained, **passes}


def whole(results, split, number):
    """Return the rows that all nodes have read of a split in one pass, sorted."""
    return sorted(x for node in results.values() for x in node[split][number])


@pytest.mark.back_ends("inline-session", "local-session")
def test_each_pass_over_a_split_reads_all_its_rows_once_and_none_counts_as_trained_on(back_end, run, frame):
    cluster = run(read, ("validation",), cluster_size=back_end.ranks)
    cluster.train(frame(30, 11), epochs=2, validation=frame(9, 4).selectExpr("x + 100 AS x"))
    results = cluster.wait(timeout=200)
    for epoch in range(2):
        assert whole(results, "train", epoch) == list(range(41))
    for number in range(3):
        assert whole(results, "validation", number) == list(range(100, 113))
    assert sum(node.rows for node in cluster.nodes) == 82
    assert [(feed.split, feed.epochs) for feed in cluster.view().feeds] == [("validation", 1), ("", 2)]
    assert cluster.view().notes == ()


@pytest.mark.back_ends("local-session")
def test_a_fraction_is_held_out_of_the_rows_to_train_on_and_is_the_same_each_time(run, frame):
    held_out = []
    for _ in range(2):
        results = run(read, ("validation", "test"), data=frame(60, 40), validation={"validation": 0.2, "test": 0.1})
        results = results.wait(timeout=200)
        parts = [whole(results, split, 0) for split in ("train", "validation", "test")]
        assert sorted(itertools.chain(*parts)) == list(range(100))
        assert 5 < len(parts[1]) < 40
        held_out.append(parts[1:])
    assert held_out[0] == held_out[1]


@pytest.mark.back_ends("local-session")
def test_of_arrays_a_fraction_is_exact_and_files_are_a_split_of_their_own(run, spark, tmp_path):
    arrays = {"x": np.arange(50), "y": np.arange(50.0)}
    results = run(read, ("validation",), data=arrays, validation=0.2).wait(timeout=200)
    assert [len(whole(results, split, 0)) for split in ("train", "validation")] == [40, 10]
    path = write_parquet(tmp_path / "held-out.parquet", rows(0, 5), group=2)

    def count(args, ctx):
        for _ in ctx.dataset(10):
            pass
        return sum(int(batch["id"].shape[0]) for batch in ctx.validation(1, features="id"))

    counts = run(count, collect="all")
    counts.train(arrays, validation=path)
    assert sum(counts.wait(timeout=200).values()) >= 5
    with pytest.raises(ConfigError, match="no fraction of their rows can be held out; give other files, as in"):
        tfos_lab.run(read, (), data=path, validation=0.2, spark=spark)


@pytest.mark.back_ends("local-session")
def test_keras_reports_what_one_process_would_on_all_rows_of_the_split(run):
    def fit(args, ctx):
        import keras

        with ctx.strategy().scope():
            keras.utils.set_random_seed(3)
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.01), loss="mse")
        held_out = ctx.validation(4, features="x", label="y")
        fitted = model.fit(
            ctx.dataset(8, features="x", label="y"), validation_data=held_out, epochs=ctx.epochs, verbose=0
        )
        loss = model.evaluate(ctx.validation(5, features="x", label="y"), verbose=0)
        return fitted.history["val_loss"][-1], loss, [weight.tolist() for weight in model.get_weights()]

    random = np.random.default_rng(1)
    train, held_out = ({"x": random.normal(size=(n, 3)), "y": random.normal(size=n)} for n in (41, 13))
    results = run(fit, data=train, validation=held_out, epochs=2, cluster_size=2).wait(timeout=200)
    for last, loss, (kernel, bias) in results.values():
        expected = np.mean((held_out["x"] @ np.array(kernel)[:, 0] + bias[0] - held_out["y"]) ** 2)
        assert last == pytest.approx(expected, rel=1e-5)
        assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.back_ends("local-session")
def test_nodes_that_are_started_again_have_the_split_again(run, frame):
    def lose_one(args, ctx):
        found = real(ctx.validation(4))
        if ctx.restart == 0 and ctx.is_chief:
            os.kill(os.getpid(), signal.SIGKILL)
        return found, real(ctx.dataset(4))

    cluster = run(lose_one, cluster_size=2, restarts=1)
    cluster.train(frame(20), validation=frame(6).selectExpr("x + 100 AS x"))
    results = cluster.wait(timeout=200)
    assert sorted(x for found, _ in results.values() for x in found) == list(range(100, 106))
    assert sorted(x for _, trained in results.values() for x in trained) == list(range(20))


def feed_and_wait(cluster, frame):
    cluster.train(frame(20), validation=frame(5))
    return cluster.wait(timeout=200)


@pytest.mark.back_ends("local-session")
def test_a_split_that_is_not_there_is_named_and_one_has_its_rows_once(run, frame, tmp_path):
    cluster = run(read, ("test",), cluster_size=1)
    told = r"no split 'test'; it has 'validation': .* validation=\{'test': \.\.\.\}"
    with pytest.raises(NodeFailed, match=told), cluster:
        feed_and_wait(cluster, frame)
    was_asked = tmp_path / "asked"

    def read_and_stay(args, ctx):
        for _ in itertools.chain(ctx.dataset(8), ctx.validation(4)):
            pass
        while not was_asked.exists():
            time.sleep(0.05)

    cluster = run(read_and_stay, cluster_size=1)
    cluster.train(frame(20), validation=frame(5))
    with pytest.raises(ConfigError, match="'validation' has its rows already"):
        cluster.train(frame(20), validation=frame(5))
    was_asked.touch()
    cluster.wait(timeout=200)


@pytest.mark.parametrize(
    ("validation", "sentence"),
    [
        (0.0, "validation=0.0: a fraction is more than 0 and less than 1"),
        (2, "validation=2: a fraction is more than 0 and less than 1"),
        (
            True,
            "validation=True: rows as for data, a fraction of data such as 0.1, or a dict of splits by name are needed",
        ),
        ({"train": 0.1}, "validation['train']: these are the rows of data; give the split another name"),
        ({"a": 0.5, "b": 0.5}, "nothing would be left to train on; hold out less than 1 in all"),
        (0.001, "validation: of 20 rows, such parts leave none to train on or to validate with"),
    ],
)
def test_what_is_no_split_is_refused_before_anything_starts(validation, sentence):
    before = len(tfos_lab.clusters())
    with pytest.raises(ConfigError) as error:
        tfos_lab.run(read, (), data=np.arange(20), validation=validation)
    assert str(error.value).endswith(sentence)
    assert len(tfos_lab.clusters()) == before


@pytest.mark.back_ends("local-session")
@pytest.mark.parametrize(
    ("validation", "sentence"),
    [
        ("/nowhere/*.parquet", "validation='/nowhere/*.parquet': "),
        ({"test": "/nowhere.csv"}, "validation['test']='/nowhere.csv': "),
    ],
)
def test_files_of_a_split_that_are_not_there_are_named_as_they_were_given(back_end, frame, validation, sentence):
    with pytest.raises(ConfigError) as error:
        tfos_lab.run(read, (), data=frame(20), validation=validation)
    assert str(error.value).startswith(sentence)
