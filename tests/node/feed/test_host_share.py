"""Nodes of one host divide the disk under their spools among themselves, whichever clusters they belong to."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tfos_lab.errors import FeedError
from tfos_lab.node.feed import host_share, spool
from tfos_lab.node.feed.host_share import HostShare
from tfos_lab.node.feed.spool import Spool

PATIENCE_S = 60.0
DEAD_PID = 2**22 + 1  # above the kernel's largest


@pytest.fixture(autouse=True)
def _looks_always(monkeypatch):
    monkeypatch.setattr(host_share, "_FRESH_S", 0.0)


class Disk:
    """A disk of a size, on which files of the folders count."""

    def __init__(self, root: Path, size_bytes: int) -> None:
        self.root, self.size_bytes = root, size_bytes

    def free(self, _folder: Path) -> int:
        return max(0, self.size_bytes - sum(map(_size, self.root.rglob("*.arrow"))))


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # another thread removes it
        return path.stat().st_size
    return 0


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path, 1000)


def node(disk, name, *, pid=None, **options):
    folder = disk.root / f"{name}-{pid or os.getpid()}"
    folder.mkdir()
    node = Spool(folder / "spool", HostShare(folder, disk.free))
    node.open(0, **{"epochs": 1, **options})
    return node


def put(spool, name, size):
    path = spool.folder / f"{name}.arrow"
    spool.reserve(path, size)
    path.write_bytes(b"x" * size)
    spool.committed(path)
    return path


def test_a_node_alone_takes_most_of_the_disk(disk):
    share = node(disk, "c-0")._share
    assert (share.limit(0), share.nodes) == (800, 1)


def test_two_nodes_have_half_each_whatever_one_of_them_holds_already(disk):
    first, second = node(disk, "c-0"), node(disk, "c-1")
    put(first, "rows", 300)
    assert first._share.limit(300) == second._share.limit(0) == 400


def test_nodes_of_another_cluster_count(disk):
    node(disk, "another-0")
    assert node(disk, "c-0")._share.limit(0) == 400


def test_a_node_that_was_killed_has_no_share(disk):
    node(disk, "c-0", pid=DEAD_PID)
    assert node(disk, "c-1")._share.limit(0) == 800


def test_a_node_that_ends_leaves_its_share_to_the_others(disk):
    first, second = node(disk, "c-0"), node(disk, "c-1")
    assert first._share.limit(0) == 400
    for path in (second.folder, second.folder.parent / "spool.size"):
        path.rmdir() if path.is_dir() else path.unlink()
    assert first._share.limit(0) == 800


def test_rows_that_have_to_fit_into_a_share_and_do_not_say_who_shares_the_disk(disk):
    node(disk, "c-0")
    second = node(disk, "c-1", epochs=2)
    with pytest.raises(FeedError, match=r"spool of 4e-07 GB in .* \(the disk is shared by 2 nodes\), and have to"):
        put(second, "rows", 500)


def test_a_limit_of_the_user_s_is_not_shared_out(disk):
    first = node(disk, "c-0", epochs=2)
    node(disk, "c-1")
    first.open(700, epochs=2)
    put(first, "rows", 600)


def test_a_partition_that_the_disk_cannot_hold_is_refused_before_it_is_full(disk):
    alone = node(disk, "c-0")
    put(alone, "1", 700)
    alone.was_read(alone.folder / "1.arrow")
    told = rf"on {socket.gethostname()}, a partition does not fit onto the disk .* MB left; cut the rows into more"
    with pytest.raises(FeedError, match=told):
        put(alone, "2", 1100)


def test_a_node_without_rows_waits_for_space_that_another_takes(disk, monkeypatch):
    monkeypatch.setattr(spool, "_WAIT_STEP_S", 0.01)
    first = node(disk, "c-0")
    held = put(first, "1", 780)
    second = node(disk, "c-1")
    waiting = threading.Thread(target=put, args=(second, "2", 300), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    first.was_read(held)
    first.remove(held)
    waiting.join(PATIENCE_S)
    assert (second.folder / "2.arrow").exists()


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr(spool, "_PATIENCE_S", 0.0)


REFUSED = "a partition does not fit onto the disk"


@pytest.mark.usefixtures("_impatient")
def test_what_another_node_is_about_to_write_is_not_free(disk):
    first, second = node(disk, "c-0"), node(disk, "c-1")
    rows, more = first.folder / "1.arrow", second.folder / "2.arrow"
    first.reserve(rows, 600)
    with pytest.raises(FeedError, match=REFUSED):
        second.reserve(more, 600)
    first.remove(rows)  # its task has failed
    second.reserve(more, 600)


@pytest.mark.usefixtures("_impatient")
def test_of_two_nodes_that_look_at_the_disk_at_once_one_gets_its_last_bytes(disk):
    """The first looks how much is free; before it takes that, the second looks and takes."""
    first, second = node(disk, "c-0"), node(disk, "c-1")
    granted = []

    def take(spool):
        with contextlib.suppress(FeedError):
            spool.reserve(spool.folder / "1.arrow", 600)
            granted.append(spool)

    def free(folder):
        seen = disk.free(folder)
        first._share._free_bytes = disk.free
        take(second)
        return seen

    first._share._free_bytes = free
    take(first)
    assert len(granted) == 1


@pytest.mark.usefixtures("_impatient")
def test_two_tasks_of_one_node_do_not_take_the_same_bytes(disk):
    alone = node(disk, "c-0")
    alone.reserve(alone.folder / "1.arrow", 600)
    with pytest.raises(FeedError, match=REFUSED):
        alone.reserve(alone.folder / "2.arrow", 600)


def test_a_task_waits_until_another_of_its_node_has_ended(disk, monkeypatch):
    monkeypatch.setattr(spool, "_WAIT_STEP_S", PATIENCE_S)
    alone = node(disk, "c-0")
    failing = alone.folder / "1.arrow"
    alone.reserve(failing, 600)
    waiting = threading.Thread(target=put, args=(alone, "2", 600), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    alone.remove(failing)
    waiting.join(PATIENCE_S / 2)
    assert not waiting.is_alive()


@pytest.mark.usefixtures("_impatient")
def test_rows_that_were_written_are_claimed_no_more(disk):
    first, second = node(disk, "c-0"), node(disk, "c-1")
    for number in range(4):  # the batches of one file
        first.reserve(first.folder / "1.arrow", 100)
        (first.folder / "1.arrow").write_bytes(b"x" * 100 * (number + 1))
    first.stored(first.folder / "1.arrow")
    put(second, "2", 590)


@pytest.mark.usefixtures("_impatient")
def test_what_a_killed_node_has_claimed_may_still_be_written_by_its_tasks(disk):
    put(killed := node(disk, "c-0", pid=DEAD_PID), "1", 100)
    killed.reserve(killed.folder / "2.arrow", 600)
    second = node(disk, "c-1")
    with pytest.raises(FeedError, match=REFUSED):
        put(second, "3", 300)
    shutil.rmtree(killed.folder.parent)  # as the next agent of the host does
    put(second, "3", 300)


def test_a_node_looks_at_the_others_once_for_many_batches(disk):
    alone = node(disk, "c-0")
    looks = []
    alone._share._free_bytes = lambda folder: looks.append(folder) or disk.free(folder)
    alone._share._limit_bytes = 64 * 300
    for _ in range(30):
        assert alone._share.take(10, 0)
    assert len(looks) == 1


@pytest.fixture
def small_disk(tmp_path):
    """A real disk of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user cannot mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


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


def test_a_neighbour_that_goes_while_a_node_claims_is_no_error(monkeypatch, disk):
    share, neighbour = node(disk, "a-0")._share, disk.root / "b-0-1"
    neighbour.mkdir()
    (neighbour / "1.claim").write_text("10")
    scandir = os.scandir

    def scandir_too_late(path):
        if str(path) == str(neighbour):
            monkeypatch.undo()
            shutil.rmtree(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir_too_late)
    assert share.take(100, 0)
    assert not neighbour.exists()
