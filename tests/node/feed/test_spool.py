"""The folder of rows: how large it may grow, which tasks wait for space, and what does not fit."""

from __future__ import annotations

import threading

import pytest

from tfos_lab.errors import FeedError
from tfos_lab.node.feed.spool import Spool

PATIENCE_S = 60.0


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.open(100, epochs=1)
    yield spool
    spool.close()


def put(spool, name, size, *, commit=True):
    path = spool.folder / name
    spool.reserve(path, size)
    path.write_bytes(b"x" * size)
    if commit:
        spool.committed(path)
    return path


def test_rows_that_were_read_are_removed_only_when_space_is_needed(spool):
    first, second = put(spool, "1", 60), put(spool, "2", 40)
    spool.was_read(first)
    assert first.exists()
    put(spool, "3", 10)
    assert not first.exists()
    assert second.exists()


def test_a_task_with_more_rows_waits_until_some_were_read(spool):
    first = put(spool, "1", 80)
    late = threading.Thread(target=put, args=(spool, "2", 80), daemon=True)
    late.start()
    late.join(0.3)
    assert late.is_alive()
    spool.was_read(first)
    late.join(PATIENCE_S)
    assert not late.is_alive()
    assert not first.exists()


def test_a_partition_that_is_larger_than_the_limit_is_stored_whole(spool):
    put(spool, "1", 90, commit=False)
    put(spool, "1", 90, commit=False)


@pytest.mark.parametrize("epochs", [1, 3])
def test_rows_that_are_needed_again_or_all_at_once_have_to_fit(tmp_path, epochs):
    spool = Spool(tmp_path)
    spool.open(100, epochs=epochs)
    put(spool, "1", 80)
    if epochs == 1:
        spool.keep_all()
    why = "are read 3 times" if epochs > 1 else "are shuffled"
    with pytest.raises(FeedError, match=f"do not fit into the node's spool of 1e-07 GB .* {why}.*spool_bytes"):
        put(spool, "2", 80)


def test_dropped_rows_free_space(spool):
    spool.remove(put(spool, "1", 90, commit=False))
    put(spool, "2", 90)
    assert [path.name for path in spool.folder.iterdir()] == ["2"]


def test_without_a_limit_most_of_the_free_disk_is_used(tmp_path):
    spool = Spool(tmp_path)
    spool.open(0, epochs=2)
    put(spool, "1", 1000)
