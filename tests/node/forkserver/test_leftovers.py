"""What killed processes have left in the user's folder is removed, and never what others use or are about to use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.support.fork_servers import PATIENCE_S, wait_until_warm
from tests.support.quick import QUICK_ENV
from tfos_lab.core.runtime_files import files_in, package_root, scratch_root
from tfos_lab.node.folder_lock import lock
from tfos_lab.node.forkserver import leftovers
from tfos_lab.node.forkserver.client import ForkServerSpec
from tfos_lab.node.forkserver.health import ServerRecord
from tfos_lab.node.forkserver.leftovers import sweep

_OLD_S = 25 * 3600.0
# Makes a stale folder of an owner over and over, and has it swept, beside others that do the same.
_SWEEPS = """
import os, sys
from pathlib import Path
from tfos_lab.node.folder_lock import keeping
from tfos_lab.node.forkserver.leftovers import sweep
root, mine = Path(sys.argv[1]), sys.argv[2]
for number in range(400):
    stale = root / f"{number % 7:012x}"
    try:
        stale.mkdir(exist_ok=True)
        (stale / "plain-x.log").touch()
        os.utime(stale, (0, 0))
    except (FileNotFoundError, FileExistsError):
        pass  # another process removes it at this moment
    sweep(root)
    # As a fork server starts, in a folder that another process may be about to remove.
    with keeping(stale):
        os.utime(stale, (0, 0))
        (stale / mine).write_text("used")
        sweep(root)
        assert (stale / mine).read_text() == "used"
print("done")
"""


@pytest.fixture
def root(short_folder, monkeypatch):
    """The user's folder, in a place of its own, for fork servers too."""
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    yield scratch_root()
    for path in files_in(scratch_root().glob("*"), "*.lock"):
        if record := ServerRecord.read(path):
            record.kill()


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch):
    """A sweep ends when it is through, however busy the machine is."""
    monkeypatch.setattr(leftovers, "_SWEEP_S", 60.0)


def aged(path, age_s=_OLD_S):
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


def owner_folder(root, name, *, age_s=_OLD_S):
    """Create what the fork servers of an owner that has ended have left."""
    folder = root / name
    folder.mkdir()
    for file in ("plain-4ef7b660a1b7.lock", "plain-4ef7b660a1b7.log"):
        (folder / file).write_bytes(b"x")
    return aged(folder, age_s)


def test_folders_of_owners_that_have_ended_are_removed_after_a_while(tmp_path):
    owner_folder(tmp_path, "0123456789ab")
    owner_folder(tmp_path, "user-0123456789ab")
    kept = [owner_folder(tmp_path, "0123456789ac", age_s=60.0), owner_folder(tmp_path, "code-0123456789ab")]
    sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_what_is_temporary_or_noted_goes_after_a_day_unless_it_is_in_use(tmp_path):
    for name in ("tmpa1b2c3d4", "tmpused", "tmpnew"):
        (tmp_path / name).mkdir()
    (tmp_path / "c-0-1.failed").write_text("worker:0: ValueError")
    for name in ("tmpa1b2c3d4", "tmpused", "c-0-1.failed"):
        aged(tmp_path / name)
    descriptor = lock(tmp_path / "tmpused")
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tmpnew", "tmpused"]
    os.close(descriptor)
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tmpnew"]


def test_a_start_that_finds_too_much_leaves_the_rest_to_the_next_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(leftovers, "_SWEEP_S", 0.0)
    for number in range(5):
        owner_folder(tmp_path, f"{number:012x}")
    for left in (4, 3, 2, 1, 0):
        sweep(tmp_path)
        assert len(list(tmp_path.iterdir())) == left


def test_thousands_of_entries_go(tmp_path, monkeypatch):
    monkeypatch.setattr(leftovers, "_SWEEP_S", 0.02)
    for number in range(1000):
        owner_folder(tmp_path, f"{number:012x}")
        note = tmp_path / f"c-{number}-1.failed"
        note.touch()
        aged(note)
    until = time.monotonic() + PATIENCE_S
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_processes_that_sweep_and_start_at_once_do_each_other_no_harm(tmp_path):
    environ = {**os.environ, "PYTHONPATH": str(package_root())}
    command = [sys.executable, "-c", _SWEEPS, str(tmp_path)]
    processes = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ)
        for number in range(3)
    ]
    for process in processes:
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert output.decode() == "done\n"


@pytest.fixture
def spec(root):
    """A quick fork server of a kernel that the test can end."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as kernel:
        spec = ForkServerSpec.tensorflow(f"kernel {kernel.pid}", dict(os.environ), kernel.pid, QUICK_ENV)
        wait_until_warm(spec)
        yield spec
        kernel.kill()


def stopped(spec):
    process = psutil.Process(ServerRecord.read(spec.socket_path).pid)
    process.suspend()
    while process.status() != psutil.STATUS_STOPPED:
        time.sleep(0.005)
    return process


def end_kernel(spec):
    os.kill(spec.watched_pid, signal.SIGKILL)
    psutil.Process(spec.watched_pid).wait(PATIENCE_S)


def test_a_folder_with_a_fork_server_stays_however_old_it_is_and_goes_with_it(root, spec):
    folder = aged(spec.socket_path.parent)
    sweep(root)
    assert spec.socket_path.exists()
    process = psutil.Process(ServerRecord.read(spec.socket_path).pid)
    end_kernel(spec)
    process.wait(PATIENCE_S)
    sweep(root)
    assert folder.exists(), "its log may be wanted"
    aged(folder)
    sweep(root)
    assert not folder.exists()


def test_a_fork_server_starts_in_a_folder_that_has_been_removed(root, spec):
    other = ForkServerSpec.plain("another kernel", dict(os.environ), spec.watched_pid)
    path = other.socket_path
    aged(path.parent)
    sweep(root)
    assert not path.parent.exists()
    other.warm()
    assert ServerRecord.read(path).is_alive


def test_a_stopped_fork_server_whose_kernel_was_killed_is_killed_by_the_next_sweep(root, spec):
    process = stopped(spec)
    sweep(root)
    assert process.status() == psutil.STATUS_STOPPED, "its kernel will replace it"
    end_kernel(spec)
    sweep(root)
    process.wait(PATIENCE_S)


def test_the_other_fork_server_of_a_kernel_that_was_killed_kills_a_stopped_one(root, spec):
    plain = ForkServerSpec.plain(f"kernel {spec.watched_pid}", dict(os.environ), spec.watched_pid)
    wait_until_warm(plain)
    assert plain.socket_path.parent == spec.socket_path.parent
    process, other = stopped(spec), psutil.Process(ServerRecord.read(plain.socket_path).pid)
    end_kernel(spec)
    process.wait(PATIENCE_S)
    other.wait(PATIENCE_S)


def test_a_stopped_fork_server_that_another_kernel_uses_stays(root, spec):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        with spec.connect() as connection:
            connection.ask_if_warm(watched_pid=other.pid)
            connection.replies(PATIENCE_S)
        process = stopped(spec)
        end_kernel(spec)
        sweep(root)
        assert process.status() == psutil.STATUS_STOPPED
        other.kill()
    sweep(root)
    process.wait(PATIENCE_S)
