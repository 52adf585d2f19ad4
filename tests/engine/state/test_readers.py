"""Who reads the rows of a cluster, and what is said of those that were left."""

from __future__ import annotations

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.state.readers import Readers, unread_text

NOW_S = 50.0
NAMES = {1: "chief:0", 2: "worker:0", 3: "worker:1"}


@pytest.fixture
def readers():
    return Readers(NAMES, all_read=False)


def serves(rank):
    return m.Progressed(rank=rank, state="serving")


def test_where_all_train_alike_all_are_taken_to_read():
    readers = Readers(NAMES, all_read=True)
    assert readers.undecided(()) == []
    assert readers.ranks == [1, 2, 3]


def test_beside_parameter_servers_each_node_is_waited_for(readers):
    assert readers.undecided(()) == ["chief:0", "worker:0", "worker:1"]
    readers.handle(m.RowsWanted(rank=1))
    readers.handle(serves(2))
    assert readers.undecided(()) == ["worker:1"]
    assert readers.undecided({3}) == []
    readers.handle(m.DatasetOpened(rank=3, dataset_id=0, batch_size=4, remainder=None))
    assert readers.undecided(()) == []


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1)])
def test_nodes_that_serve_read_nothing_whoever_says_so_first(readers, order):
    for rank in order:
        readers.handle(m.RowsWanted(rank=rank) if rank == 1 else serves(rank))
    assert readers.ranks == [1]


def test_a_parameter_server_that_serves_is_none_of_the_readers_business(readers):
    readers.handle(serves(0))
    assert readers.ranks == [1, 2, 3]


def unread(epochs, **read):
    """Return what is left of a feed of ten rows a node, from ``{node: (epochs read, rows taken)}``."""
    readers = Readers(NAMES, all_read=True)
    for rank, node in NAMES.items():
        told = read.get(node.replace(":", "_"))
        if told is not None:
            readers.handle(m.RowsTaken(rank=rank, rows=told[1], epoch=told[0], feeds={0: told}))
    return readers.unread(0, epochs, dict.fromkeys(NAMES, 10), NOW_S)


def test_what_was_read_as_often_as_asked_is_no_news():
    assert unread(2, chief_0=(2, 20), worker_0=(3, 30), worker_1=(2, 16)) is None


def test_rows_whose_last_step_nobody_knew_to_be_the_last_are_read_all_the_same():
    assert unread(1, chief_0=(0, 10), worker_0=(1, 10), worker_1=(1, 10)) is None


def test_epochs_that_nobody_read_are_told_by_node():
    left = unread(2, chief_0=(1, 10), worker_0=(1, 10), worker_1=(2, 20))
    assert (left.epochs_read, left.rows_taken) == ({"chief:0": 1, "worker:0": 1}, {"chief:0": 10, "worker:0": 10})
    words = unread_text(left)
    assert words.startswith(
        "rows were left unread: chief:0, worker:0 read 1 of 2 epochs. To train on all of them, read "
    )
    assert "ctx.stop_feed()" in words


def test_rows_that_nobody_read_are_told_by_node():
    words = unread_text(unread(1, chief_0=(0, 4), worker_0=(1, 10)))
    assert "unread: chief:0 read 4 of 10 rows; worker:1 read none of its rows. " in words


def test_a_node_without_rows_has_left_none():
    readers = Readers(NAMES, all_read=True)
    assert readers.unread(0, 1, dict.fromkeys(NAMES, 0), NOW_S) is None
