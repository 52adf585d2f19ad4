"""Which nodes read rows: with parameter servers, and when functions leave rows unread."""

import pytest

from tests.support.eventually import eventually
from tests.support.findings import findings, leave
from tfos_lab.errors import ConfigError, FeedError

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow]


@pytest.mark.back_ends("local-session")
@pytest.mark.parametrize("order", ["fed first", "served first"])
def test_the_chief_of_parameter_servers_reads_all_rows(run, frame, order):
    def train(args, ctx):
        ctx.strategy()  # the workers serve the chief
        return sorted({int(x) for batch in ctx.dataset(8) for x in batch["x"].numpy()})

    cluster = run(train, cluster_size=4, num_ps=1)
    if order == "served first":
        eventually(lambda: sum(node.state == "serving" for node in cluster.nodes) == 3)
    cluster.train(frame(300, 300))
    assert cluster.wait(timeout=120)["chief:0"] == list(range(600))
    assert cluster.view().notes == ()
    assert cluster.view().feeds[0].rows == {"chief:0": 600}


@pytest.mark.back_ends("local-session")
def test_workers_that_train_separately_share_the_rows(run, frame):
    def train(args, ctx):
        if ctx.job_name == "ps":
            ctx.wait_for_training()
            return None
        return sorted({int(x) for batch in ctx.dataset(8) for x in batch["x"].numpy()})

    cluster = run(train, cluster_size=4, num_ps=1)
    cluster.train(frame(300, 300))
    results = cluster.wait(timeout=120)
    read = {node: set(results[node]) - {0} for node in ("chief:0", "worker:0", "worker:1")}
    assert set.union(*read.values()) == set(range(1, 600))
    assert sum(map(len, read.values())) == 599
    assert all(read.values())


@pytest.mark.back_ends("local-session")
def test_an_evaluator_that_asks_for_rows_is_refused(run, tmp_path):
    def ask(folder, ctx):
        told = ""
        if ctx.job_name == "evaluator":
            try:
                ctx.dataset(8)
            except ConfigError as error:
                told = str(error)
        leave(folder, ctx, told)

    folder = tmp_path / "told"
    folder.mkdir()
    run(ask, str(folder), cluster_size=3, evaluator=True).wait(timeout=120)
    told = findings(folder)["evaluator:0"]
    assert told.startswith("ctx.dataset on evaluator:0: rows are fed to the nodes that train"), told


@pytest.mark.back_ends("local-session")
def test_rows_that_are_cached_are_read_once(run, frame):
    def train(args, ctx):
        cached = ctx.dataset(8).map(lambda row: row["x"]).cache()
        return [sum(len(batch) for batch in cached) for _ in range(ctx.epochs)]

    cluster = run(train)
    cluster.train(frame(50, 50), epochs=2)
    first, second = (sum(read) for read in zip(*cluster.wait(timeout=120).values(), strict=True))
    assert first == second == 100
    assert cluster.view().notes == (), "no epoch is left unread"


@pytest.mark.back_ends("local-session")
def test_training_that_is_stopped_early_is_told_in_place_of_the_rows_that_it_left(run, frame):
    def train(args, ctx):
        import keras

        with ctx.strategy().scope():
            model = keras.Sequential([keras.Input(()), keras.layers.Reshape((1,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")

        def stop(epoch, logs):
            model.stop_training = epoch == 1

        callback = keras.callbacks.LambdaCallback(on_epoch_end=stop)
        rows = ctx.dataset(8, features="x", label="x")
        model.fit(rows, epochs=ctx.epochs, callbacks=[callback], verbose=0)

    cluster = run(train)
    cluster.train(frame(50, 50), epochs=4)
    cluster.wait(timeout=120)
    assert cluster.view().notes == ("stopped early after epoch 2",)


@pytest.mark.back_ends("local-session")
def test_rows_that_are_not_wanted_are_not_reported(run, frame):
    def stop(args, ctx):
        next(iter(ctx.dataset(8)))
        ctx.stop_feed()

    cluster = run(stop)
    cluster.train(frame(50, 50), epochs=2)
    cluster.wait(timeout=120)
    assert cluster.view().notes == ()


@pytest.mark.back_ends("inline-session", "local-session")
def test_wait_raises_if_no_row_was_read(run, frame, tmp_path):
    def look_away(fed, ctx):
        import time
        from pathlib import Path

        while not Path(fed).exists():
            time.sleep(0.05)
        return ctx.node

    cluster = run(look_away, str(tmp_path / "fed"))
    cluster.train(frame(50, 50))
    (tmp_path / "fed").touch()
    with pytest.raises(
        FeedError, match=r"no node has read any row of what this cluster was fed: loop over ctx\.dataset"
    ):
        cluster.wait(timeout=120)
    assert cluster.state == "failed"
    assert cluster.results["chief:0"] == "chief:0"
