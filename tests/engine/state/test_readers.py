"""Which nodes read the rows of a cluster, and the report of unread rows."""

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


def test_without_parameter_servers_all_training_nodes_read():
    readers = Readers(NAMES, all_read=True)
    assert readers.undecided == []
    assert readers.ranks == [1, 2, 3]


def test_with_parameter_servers_each_node_has_to_ask_or_serve(readers):
    assert readers.undecided == ["chief:0", "worker:0", "worker:1"]
    readers.handle(m.RowsWanted(rank=1))
    readers.handle(serves(2))
    assert readers.undecided == ["worker:1"]
    readers.handle(m.DatasetOpened(rank=3, dataset_id=0, batch_size=4, remainder=None))
    assert readers.undecided == []


def test_a_node_that_has_returned_without_asking_reads_nothing(readers):
    readers.handle(m.RowsWanted(rank=1))
    readers.handle(serves(2))
    readers.handle(m.Ended(rank=3, outcome=m.Outcome(kind="returned")))
    assert readers.undecided == []
    assert readers.any_reading
    readers.handle(m.Ended(rank=1, outcome=m.Outcome(kind="returned")))
    assert not readers.any_reading


def test_who_has_taken_rows_returned_or_serves_is_not_among_those_that_have_never_read(readers):
    assert readers.never_read == [1, 2, 3]
    readers.handle(m.RowsTaken(rank=2, rows=5, epoch=0))
    readers.handle(serves(3))
    assert readers.never_read == [1]
    readers.handle(m.Ended(rank=1, outcome=m.Outcome(kind="returned")))
    assert readers.never_read == []


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1)])
def test_nodes_that_serve_read_nothing_in_whatever_order_messages_arrive(readers, order):
    for rank in order:
        readers.handle(m.RowsWanted(rank=rank) if rank == 1 else serves(rank))
    assert readers.ranks == [1]


def test_a_parameter_server_that_serves_does_not_change_the_readers(readers):
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


def test_rows_that_were_read_in_all_epochs_are_not_reported():
    assert unread(2, chief_0=(2, 20), worker_0=(3, 30), worker_1=(2, 16)) is None


def test_a_last_step_that_was_not_known_to_be_the_last_counts_as_read():
    assert unread(1, chief_0=(0, 10), worker_0=(1, 10), worker_1=(1, 10)) is None


def test_unread_epochs_are_reported_by_node():
    left = unread(2, chief_0=(1, 10), worker_0=(1, 10), worker_1=(2, 20))
    assert (left.epochs_read, left.rows_taken) == ({"chief:0": 1, "worker:0": 1}, {"chief:0": 10, "worker:0": 10})
    text = unread_text(left)
    assert text.startswith(
        "rows were left unread: chief:0, worker:0 read 1 of 2 epochs. To train on all of them, read "
    )
    assert "ctx.stop_feed()" in text


def test_unread_rows_are_reported_by_node():
    text = unread_text(unread(1, chief_0=(0, 4), worker_0=(1, 10)))
    assert "unread: chief:0 read 4 of 10 rows; worker:1 read none of its rows. " in text


def test_a_node_without_rows_has_left_none():
    readers = Readers(NAMES, all_read=True)
    assert readers.unread(0, 1, dict.fromkeys(NAMES, 0), NOW_S) is None
