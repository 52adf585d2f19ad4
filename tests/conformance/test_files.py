"""Training from files that nodes read themselves: the promises of rows from Spark, with and without a session."""

import itertools

import pytest

from tests.support.data_files import rows, write_lines, write_parquet, write_records
from tfos_lab.errors import ConfigError

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow]


def make_reader():
    """Return a function that reads ``args`` feeds: the last but one shuffled, and the last as Python rows."""

    def read(args, ctx):
        feeds = []
        for feed in range(args - 1):
            epochs = []
            for _ in range(ctx.epochs):
                ids, sizes = [], []
                for x, y, weights in ctx.dataset(4, features=["x"], label="id", shuffle=feed == args - 2, seed=1):
                    assert x.shape[1] == 3
                    assert (x.numpy()[:, 0] * 2 == y.numpy()).all()
                    ids += y.numpy()[weights.numpy() > 0].tolist()
                    sizes.append(len(weights))
                epochs.append((ids, sizes))
            feeds.append(epochs)
        source = ctx.data_feed()
        taken = []
        while not source.should_stop():
            taken += [(row[0], row[2]) for row in source.next_batch(5)]
        return [*feeds, taken]

    return read


@pytest.fixture
def fed(back_end, run, once, tmp_path):
    """A cluster that is given Parquet files, TFRecords, one row, files to shuffle, and files for Python rows."""

    def feed():
        write_parquet(tmp_path / "parquet" / "year=2023" / "a.parquet", rows(0, 11))
        write_parquet(tmp_path / "parquet" / "year=2024" / "b.parquet", rows(11, 17))
        records = [
            write_records(tmp_path / "a.tfrecord", rows(0, 7)),
            write_records(tmp_path / "b.tfrecord.gz", rows(7, 17)),
        ]
        cluster = run(make_reader(), 5, cluster_size=back_end.ranks)
        cluster.train(str(tmp_path / "parquet"), epochs=2, columns=["id", "x", "year"])
        cluster.train(records, epochs=2)
        cluster.train(records[0], epochs=1, remainder="drop")
        cluster.train(f"{tmp_path}/parquet/*/*.parquet", epochs=2)
        cluster.train(f"{tmp_path}/parquet/*/*.parquet", columns=["id", "x", "name"])
        return {"results": dict(cluster.wait(timeout=200)), "view": cluster.view(), "ranks": back_end.ranks}

    return once("files", feed)


@pytest.mark.back_ends("inline", "local")
def test_each_row_of_files_is_read_once_in_every_epoch_by_equally_many_steps(fed):
    for feed, epochs in ((0, 2), (1, 2), (3, 2)):
        for epoch in range(epochs):
            read = [node[feed][epoch] for node in fed.results.values()]
            assert sorted(row for ids, _ in read for row in ids) == list(range(17))
            assert len({len(sizes) for _, sizes in read}) == 1
    orders = [node[3][epoch][0] for node in fed.results.values() for epoch in range(2)]
    assert any(order != sorted(order) for order in orders)
    assert all(sizes == [4] * len(sizes) for node in fed.results.values() for _, sizes in node[2])
    taken = sorted(row for node in fed.results.values() for row in node[4])
    assert taken == [(i, f"row {i}".encode()) for i in range(17)]


@pytest.mark.back_ends("inline", "local")
def test_progress_is_shown_and_shares_are_equal(fed):
    views = fed.view.feeds
    assert [sum(view.rows.values()) for view in views] == [17, 17, 7, 17, 17]
    assert all(view.complete for view in views)
    assert [view.partitions for view in views] == [2, 2, 1, 2, 2]
    assert all(max(view.rows.values()) - min(view.rows.values()) <= 1 for view in views)


def read_lines(args, ctx):
    """Return the ids of each epoch of two feeds; they go with the other columns."""

    def ids(dataset):
        found = []
        for batch in dataset:
            there = batch["sample_weight"].numpy() > 0
            number, half, name = (batch[column].numpy()[there] for column in ("id", "x", "name"))
            assert (half == number / 2).all()
            assert name.tolist() == [f'row "{i}",\n'.encode() for i in number]
            found += number.tolist()
        return found

    return [[ids(ctx.dataset(1000)) for _ in range(2)] for _ in range(args)]


@pytest.mark.back_ends("inline", "standalone")
def test_lines_are_rows_whatever_there_are_more_of_files_or_nodes(run, back_end, tmp_path):
    ranks, counts = back_end.ranks, []
    cluster = run(read_lines, 4, cluster_size=ranks)
    # The first file of several nodes is so large that they begin in its middle.
    for kind, large in (("csv", 130_000 if ranks > 1 else 10_000), ("json", 10_000)):
        ends = [0, large, *range(large + 5, large + 5 * (ranks + 2), 5)]
        for number, (start, stop) in enumerate(itertools.pairwise(ends)):
            write_lines(tmp_path / kind / f"{number}.{kind}{'.gz' * (number % 2)}", start, stop)
        cluster.train(str(tmp_path / kind), epochs=2)
        cluster.train(write_lines(tmp_path / f"one.{kind}", 0, ranks + 1), epochs=2)
        counts += [ends[-1], ranks + 1]
    results = list(cluster.wait(timeout=200).values())
    for feed, count in enumerate(counts):
        for epoch in range(2):
            shares = [node[feed][epoch] for node in results]
            assert sorted(number for share in shares for number in share) == list(range(count))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


def fit_twice(args, ctx):
    """Train the same model on two feeds; return both sets of weights."""
    import keras

    trained = []
    for _ in range(2):
        with ctx.strategy().scope():
            keras.utils.set_random_seed(3)
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.01), loss="mse")
        model.fit(ctx.dataset(4, features=["x"], label="id"), epochs=ctx.epochs, verbose=0)
        trained.append([weight.tolist() for weight in model.get_weights()])
    return trained


@pytest.mark.back_ends("standalone")
def test_weights_are_those_of_training_on_the_same_rows_from_spark_and_tables_are_files(spark, run, tmp_path):
    path = write_parquet(tmp_path / "a.parquet", rows(0, 22), group=5)
    spark.sql(
        f"CREATE TABLE tfos_files USING parquet LOCATION '{tmp_path / 'table'}' AS SELECT * FROM parquet.`{path}`"
    )
    try:
        cluster = run(fit_twice, cluster_size=2)
        cluster.train(spark.read.parquet(path).coalesce(1), epochs=2)
        cluster.train("tfos_files", epochs=2)
        results = cluster.wait(timeout=200)
    finally:
        spark.sql("DROP TABLE tfos_files")
    for from_spark, from_files in results.values():
        assert from_spark == from_files


@pytest.mark.back_ends("local-session")
def test_a_mistyped_name_of_a_file_is_one_sentence_and_nothing_of_pyspark_s_log(spark, run, capsys):
    cluster = run(fit_twice, cluster_size=1)
    for name in ("rowz.parquet", "my-rows.parquet"):
        with pytest.raises(ConfigError) as caught:
            cluster.train(name)
        told = f"data='{name}': there is no such file, and no such table; write './{name}' for a file"
        assert str(caught.value) == told
    assert "TABLE_OR_VIEW_NOT_FOUND" not in capsys.readouterr().err
