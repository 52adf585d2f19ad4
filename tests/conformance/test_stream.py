"""A streaming DataFrame: fed until it is stopped, resumed by the next cluster, each row read exactly once."""

import itertools

import pytest

from tests.support.eventually import eventually
from tfos_lab.errors import ConfigError, FeedError, NodeFailed

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow, pytest.mark.back_ends("local-session")]

PATIENCE_S = 60.0


def collect(args, ctx):
    """Return all rows of the stream, reporting how many there were so far."""
    rows = []
    for batch in ctx.dataset(4):
        rows += [int(x) for x in batch["x"].numpy()[batch["sample_weight"].numpy() > 0]]
        if args and len(rows) >= args:
            ctx.stop_feed()
            break
    return rows


@pytest.fixture
def stream(spark, tmp_path):
    """A function that adds rows to a stream of files, two files to a micro-batch, and the stream itself."""
    folder = tmp_path / "files"

    def add(*ranges):
        for first, last in ranges:
            spark.range(first, last, 1, 1).withColumnRenamed("id", "x").write.mode("append").json(str(folder))

    add((0, 5))
    frame = spark.readStream.schema("x long").option("maxFilesPerTrigger", 2).json(str(folder))
    return frame, add


def rows_of(results):
    return sorted(row for rows in results.values() for row in rows)


def taken(cluster):
    return sum(node.rows for node in cluster.nodes)


def wait_for_rows(cluster, count):
    def are_taken():
        if cluster.state == "failed":
            cluster.wait()  # says why
        return taken(cluster) >= count

    eventually(are_taken)


@pytest.mark.back_ends("local-session", "standalone")
def test_a_stream_is_stopped_and_resumed_and_no_row_is_lost_or_read_twice(back_end, run, frame, stream, tmp_path):
    rows, add = stream
    # With a rest, and as whole batches: what is left of them is the same wherever nodes are.
    sizes = (7, 1, 7, 10) if back_end.launcher == "local" else (11, 8, 8, 16)
    bounds = list(itertools.accumulate(sizes, initial=5))
    files = list(itertools.pairwise(bounds))
    add(*files[:-1])
    checkpoint = str(tmp_path / "checkpoint")
    first = run(collect)
    feed = first.train(rows, checkpoint=checkpoint)
    wait_for_rows(first, 6)
    feed.stop()
    add(files[-1])
    read = rows_of(first.wait(timeout=PATIENCE_S))
    assert not feed.is_active
    [told] = first.view().feeds
    assert (told.kind, sum(told.rows.values()), told.micro_batches > 0) == ("stream", len(read), True)

    second = run(collect)
    feed = second.train(rows, checkpoint=checkpoint)
    wait_for_rows(second, bounds[-1] - len(read))
    feed.stop()
    assert sorted([*read, *rows_of(second.wait(timeout=PATIENCE_S))]) == list(range(bounds[-1]))


def test_a_stream_that_ends_before_its_first_row_is_an_epoch_without_steps(run, frame, spark, tmp_path):
    (tmp_path / "nothing").mkdir()
    cluster = run(collect)
    cluster.train(spark.readStream.schema("x long, y array<float>").json(str(tmp_path / "nothing"))).stop()
    assert rows_of(cluster.wait(timeout=PATIENCE_S)) == []


def test_a_stream_that_cannot_start_is_refused_and_the_cluster_goes_on(run, frame, stream, tmp_path):
    rows, _ = stream
    (tmp_path / "file").write_text("")
    cluster = run(collect)
    with pytest.raises(FeedError, match=r"^the stream could not be started: \S*Exception: .*$"):
        cluster.train(rows, checkpoint=str(tmp_path / "file" / "checkpoint"))
    with pytest.raises(ConfigError, match="epochs=2: a stream is read once"):
        cluster.train(rows, epochs=2)
    cluster.train(frame(5))
    assert rows_of(cluster.wait(timeout=PATIENCE_S)) == list(range(5))


def test_a_stream_ends_when_the_nodes_want_no_more(run, frame, stream):
    rows, _ = stream
    cluster = run(collect, 1)
    feed = cluster.train(rows)
    assert rows_of(cluster.wait(timeout=PATIENCE_S))
    feed.join(PATIENCE_S)
    assert not feed.is_active
    feed.stop()


def test_a_stream_that_fails_fails_the_cluster_with_its_cause(run, frame, stream):
    rows, _ = stream
    cluster = run(collect)
    cluster.train(rows.selectExpr("if(x > 2, raise_error('no such digit'), x) as x"))
    with pytest.raises(NodeFailed, match="no such digit"):
        cluster.wait(timeout=PATIENCE_S)
