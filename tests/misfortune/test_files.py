"""Files that vanish or change while they are fed, and lost nodes: one sentence each, or the same rows again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.data_files import rows, write_parquet, write_records
from tfos_lab.errors import ConfigError, FeedError, NodeFailed

pytestmark = pytest.mark.leaves_nothing


def read_slowly(args, ctx):
    """Read one row, wait for a file that says to go on, then read the others."""
    import time
    from pathlib import Path

    feed = ctx.data_feed()
    taken = [row[0] for row in feed.next_batch(1)]
    Path(args, f"began-{ctx.job_name}-{ctx.restart}").touch()
    while not Path(args, "go-on").exists():
        time.sleep(0.01)
    if ctx.restart == 0 and Path(args, "fail").exists() and ctx.is_chief:
        os.kill(os.getpid(), signal.SIGKILL)
    while not feed.should_stop():
        taken += [row[0] for row in feed.next_batch(3)]
    return sorted(taken)


def wait_for(path):
    deadline = time.monotonic() + 60.0
    while not Path(path).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def began(tmp_path):
    wait_for(tmp_path / "began-chief-0")
    wait_for(tmp_path / "began-worker-0")


@pytest.mark.parametrize("kind", ["parquet", "tfrecord"])
def test_a_file_that_vanishes_in_mid_epoch_is_named_with_the_node(run, tmp_path, kind):
    write = write_parquet if kind == "parquet" else write_records
    paths = [write(tmp_path / f"{number}.{kind}", rows(number * 4, number * 4 + 4)) for number in range(4)]
    cluster = run(read_slowly, str(tmp_path))
    cluster.train(f"{tmp_path}/*.{kind}", timeout_s=30)
    began(tmp_path)
    Path(paths[3]).unlink()
    (tmp_path / "go-on").touch()
    with pytest.raises(NodeFailed) as failed:
        cluster.wait(timeout_s=60)
    assert failed.value.node == "worker:0"
    assert f"FeedError: {paths[3]}: the driver saw this file, and {os.uname().nodename} does not find it" in str(
        failed.value
    )


def test_a_file_that_is_cut_off_in_mid_epoch_is_named(run, tmp_path):
    paths = [write_parquet(tmp_path / f"{number}.parquet", rows(number * 4, number * 4 + 4)) for number in range(4)]
    cluster = run(read_slowly, str(tmp_path))
    cluster.train(str(tmp_path / "*.parquet"))
    began(tmp_path)
    os.truncate(paths[1], 100)
    (tmp_path / "go-on").touch()
    with pytest.raises(NodeFailed, match=f"{paths[1]}: it had .* bytes when the driver looked at it, and has 100 now"):
        cluster.wait(timeout_s=60)


def test_records_that_are_damaged_fail_the_feed_with_node_and_host(run, tmp_path):
    path = write_records(tmp_path / "a.tfrecord", rows(0, 40))
    write_records(tmp_path / "b.tfrecord", rows(0, 40))
    os.truncate(path, Path(path).stat().st_size - 3)
    cluster = run(read_slowly, str(tmp_path))
    with pytest.raises((FeedError, ConfigError), match=f"{path}: the record at byte .* it was cut off"):
        cluster.train(str(tmp_path / "*.tfrecord"))


def test_nodes_that_start_again_read_all_rows_again(run, tmp_path):
    write_records(tmp_path / "a.tfrecord", rows(0, 9))
    cluster = run(read_slowly, str(tmp_path), restarts=1)
    cluster.train(str(tmp_path / "a.tfrecord"))
    began(tmp_path)
    (tmp_path / "fail").touch()
    (tmp_path / "go-on").touch()
    results = cluster.wait(timeout_s=120)
    assert sorted(row for some in results.values() for row in some) == list(range(9))
    assert cluster.view().notes


def test_fewer_files_and_rows_than_nodes_are_fine_and_what_is_not_there_is_refused(run, tmp_path):
    path = write_parquet(tmp_path / "a.parquet", rows(0, 1))
    (tmp_path / "go-on").touch()
    cluster = run(read_slowly, str(tmp_path))
    with pytest.raises(ConfigError, match="no file has such a name"):
        cluster.train(f"{tmp_path}/*.none")
    with pytest.raises(ConfigError, match="objects=True: rows of files come as columns"):
        cluster.train(path, objects=True)
    cluster.train(path)
    results = cluster.wait(timeout_s=60)
    assert sorted(row for some in results.values() for row in some) == [0]
