"""The folder of rows: how large it may grow, who waits for space, and how nodes of one host divide its disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.node.feeding import in_thread
from tests.support.eventually import PATIENCE_S
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.spool import HostShare, Spool

DEAD_PID = 2**22 + 1  # above the kernel's largest


class Disk:
    """A disk of 1,000 bytes, on which files of the folders count."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def free(self, _folder: Path) -> int:
        return max(0, 1000 - sum(map(_size, self.root.rglob("*.arrow"))))

    def node(self, name, *, pid=None, limit=0, epochs=1):
        folder = self.root / f"{name}-{pid or os.getpid()}"
        folder.mkdir()
        node = Spool(folder / "spool", HostShare(folder, self.free))
        node.open(limit, epochs=epochs)
        return node


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # another thread removes it
        return path.stat().st_size
    return 0


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path)


def put(spool, name, size, *, commit=True):
    path = spool.folder / f"{name}.arrow"
    spool.reserve(path, size)
    path.write_bytes(b"x" * size)
    if commit:
        spool.committed(path)
    return path


# ---- one node -------------------------------------------------------------------------------------------------------


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.open(100, epochs=1)
    yield spool
    spool.close()


def test_rows_that_were_read_are_removed_only_when_space_is_needed(spool):
    first, second = put(spool, "1", 60), put(spool, "2", 40)
    spool.was_read(first)
    assert first.exists()
    put(spool, "3", 10)
    assert not first.exists()
    assert second.exists()


def test_a_task_with_more_rows_waits_until_some_were_read(spool):
    first = put(spool, "1", 80)
    late, done = in_thread(lambda: put(spool, "2", 80))
    assert not done
    spool.was_read(first)
    late.join(PATIENCE_S)
    assert done == [spool.folder / "2.arrow"]
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
    assert [path.name for path in spool.folder.iterdir()] == ["2.arrow"]


# ---- nodes of one host ----------------------------------------------------------------------------------------------


@pytest.fixture
def share(disk):
    """A function that returns the share of one more node, as it sees the disk now."""
    folder = disk.root / f"c-9-{os.getpid()}"
    folder.mkdir()
    return lambda: HostShare(folder, disk.free)


def test_a_node_alone_takes_most_of_the_disk_and_two_of_whichever_clusters_half_each(disk, share):
    assert share().limit(0) == 800
    other = disk.node("another-0")
    assert share().limit(0) == 400
    (other.folder / "rows.arrow").write_bytes(bytes(300))
    assert HostShare(other.folder.parent, disk.free).limit(300) == 400, "what it holds already counts as its own"
    assert share().limit(0) == 400


def test_a_node_that_was_killed_has_no_share_and_one_that_ends_leaves_it_to_the_others(disk, share):
    disk.node("c-0", pid=DEAD_PID)
    ending = disk.node("c-1")
    assert share().limit(0) == 400
    shutil.rmtree(ending.folder.parent)
    assert share().limit(0) == 800


def test_rows_that_have_to_fit_into_a_share_and_do_not_say_who_shares_the_disk(disk):
    disk.node("c-0")
    second = disk.node("c-1", epochs=2)
    with pytest.raises(FeedError, match=r"spool of 4e-07 GB in .* \(the disk is shared by 2 nodes\), and have to"):
        put(second, "rows", 500)


def test_a_limit_of_the_user_s_is_not_shared_out(disk):
    first = disk.node("c-0", limit=700, epochs=2)
    disk.node("c-1")
    put(first, "rows", 600)


def test_a_partition_that_the_disk_cannot_hold_is_refused_before_it_is_full(disk):
    alone = disk.node("c-0")
    put(alone, "1", 700)
    alone.was_read(alone.folder / "1.arrow")
    told = rf"on {socket.gethostname()}, a partition does not fit onto the disk .* MB left; cut the rows into more"
    with pytest.raises(FeedError, match=told):
        put(alone, "2", 1100)


def test_a_node_without_rows_waits_for_space_that_another_takes(disk):
    first = disk.node("c-0")
    held = put(first, "1", 780)
    second = disk.node("c-1")
    waiting, done = in_thread(lambda: put(second, "2", 300))
    assert not done
    first.was_read(held)
    first.remove(held)
    waiting.join(PATIENCE_S)
    assert done == [second.folder / "2.arrow"]


def test_what_another_node_is_about_to_write_is_not_free(disk, share):
    first = disk.node("c-0")
    claimed = first.folder / "1.arrow"
    first.reserve(claimed, 600)
    assert not share().take(600, 0)
    first.remove(claimed)  # its task has failed
    assert share().take(600, 0)


def test_a_task_waits_until_another_of_its_node_has_ended(disk):
    alone = disk.node("c-0")
    failing = alone.folder / "1.arrow"
    alone.reserve(failing, 600)
    waiting, done = in_thread(lambda: put(alone, "2", 600))
    assert not done
    alone.remove(failing)
    waiting.join(PATIENCE_S)
    assert done == [alone.folder / "2.arrow"]


def test_rows_that_were_written_are_claimed_no_more(disk, share):
    first = disk.node("c-0")
    for number in range(4):  # the batches of one file
        first.reserve(first.folder / "1.arrow", 100)
        (first.folder / "1.arrow").write_bytes(b"x" * 100 * (number + 1))
    first.stored(first.folder / "1.arrow")
    assert share().take(500, 0)


def test_what_a_killed_node_has_claimed_may_still_be_written_by_its_tasks(disk):
    put(killed := disk.node("c-0", pid=DEAD_PID), "1", 100)
    killed.reserve(killed.folder / "2.arrow", 600)
    second = disk.node("c-1")
    with pytest.raises(FeedError, match="a partition does not fit onto the disk"):
        put(second, "3", 350)
    shutil.rmtree(killed.folder.parent)  # as the next agent of the host does
    put(second, "3", 350)


@pytest.mark.parametrize("nodes", [2, 4])
def test_nodes_on_one_small_disk_store_more_than_it_holds_without_filling_it(small_disk, nodes):
    """8 MB of rows go to each; one node reads slowly, and waits for the rows that it has not read."""
    errors = []

    def work(rank):
        folder = small_disk / f"c-{rank}-{os.getpid()}"
        folder.mkdir()
        own = Spool(folder / "spool")
        own.open(0, epochs=1)
        stored = threading.Semaphore(0)

        def store():
            try:
                for number in range(80):
                    put(own, str(number), 100_000)
                    stored.release()
            except (FeedError, OSError) as error:
                errors.append(error)
                stored.release()

        task = threading.Thread(target=store, daemon=True)
        task.start()
        for number in range(80):
            assert stored.acquire(timeout=PATIENCE_S)
            time.sleep(0.002 * rank)
            own.was_read(own.folder / f"{number}.arrow")
            if errors:
                return
        task.join(PATIENCE_S)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert errors == []
