"""Nodes of one host divide the disk under their spools among themselves, whichever clusters they belong to."""

from __future__ import annotations

import os
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
        held = sum(path.stat().st_size for path in self.root.rglob("*.arrow"))
        return max(0, self.size_bytes - held)


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
