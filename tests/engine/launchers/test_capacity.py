"""How many nodes a machine can run, and the resource that limits them."""

from __future__ import annotations

import re
import resource

import pytest

from tfos_lab.engine.launchers.capacity import (
    ALWAYS,
    NODE_BYTES,
    NODE_FILES,
    NODE_TASKS,
    NODES_PER_CORE,
    Room,
    look_around,
)

GB = 10**9


@pytest.fixture
def machine(tmp_path):
    """A function that writes files of /proc and /sys below a new folder, and returns the folder."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_this_machine_can_run_a_usual_number_of_nodes():
    fits, text = look_around().holds()
    assert fits >= 12
    assert text


@pytest.mark.parametrize(
    ("room", "fits", "text"),
    [
        (Room(cores=2), 2 * NODES_PER_CORE, "it has 2 cores, for at most 64 nodes each"),
        (Room(cores=1), NODES_PER_CORE, "it has 1 core, for at most 64 nodes each"),
        (Room(cores=64, free_bytes=24 * GB), 24 * GB // NODE_BYTES, "takes 110 MB and more, and 24.0 GB are free"),
        (Room(cores=64, free_files=924), 286, "open files .*, which may open 924 more .ulimit -n"),
        (Room(cores=64, free_tasks=50 * NODE_TASKS), 50, "takes 110 threads, and 5,500 more may be started"),
        (Room(cores=2, free_bytes=0, free_files=0, free_tasks=0), ALWAYS, "."),
    ],
    ids=["cores", "a core", "memory", "files", "threads", "nothing is known well enough to refuse a few"],
)
def test_the_scarcest_resource_is_the_limit_and_is_named(room, fits, text):
    count, limit = room.holds()
    assert count == fits
    assert re.search(text, limit)


def test_twelve_nodes_on_two_cores_with_24_gb_are_allowed():
    fits, _ = Room(cores=2, free_bytes=20 * GB, free_files=1024 - 200, free_tasks=32_000).holds()
    assert fits > 100


def test_free_memory_includes_swap(machine):
    root = machine({"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:    3000 kB\nSwapFree:  1000 kB\n"})
    assert look_around(root).free_bytes == 4000 * 1024


@pytest.mark.parametrize(
    ("files", "free"),
    [
        (
            {
                "proc/self/cgroup": "0::/pod/box\n",
                "sys/fs/cgroup/pod/box/memory.max": "max\n",
                "sys/fs/cgroup/pod/box/memory.current": "5\n",
                "sys/fs/cgroup/pod/memory.max": "3000000000\n",
                "sys/fs/cgroup/pod/memory.current": "1000000000\n",
                "sys/fs/cgroup/pod/memory.stat": "anon 1\ninactive_file 500000000\n",
                "sys/fs/cgroup/pod/pids.max": "4096\n",
                "sys/fs/cgroup/pod/pids.current": "96\n",
            },
            (2_500_000_000, 4000),
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/docker/abc\n3:pids:/docker/abc\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "500000000\n",
                "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 100000000\n",
                "sys/fs/cgroup/pids/pids.max": "max\n",
                "sys/fs/cgroup/pids/pids.current": "96\n",
            },
            (1_600_000_000, None),
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "500000000\n",
            },
            (None, None),
        ),
        ({}, (None, None)),
    ],
    ids=["version 2", "version 1", "without a limit", "nothing is told"],
)
def test_limits_of_a_container_are_read_from_both_versions_of_control_groups(machine, files, free, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    room = look_around(machine(files))
    assert (room.free_bytes, room.free_tasks, room.free_files) == (*free, None)


def test_limits_on_threads_of_the_kernel_and_of_the_user_count(machine, monkeypatch):
    root = machine(
        {
            "proc/loadavg": "0.1 0.2 0.3 2/700 12345\n",
            "proc/sys/kernel/pid_max": "32768\n",
            "proc/sys/kernel/threads-max": "90000\n",
            "proc/10/task/10/stat": "",
            "proc/10/task/11/stat": "",
        }
    )
    assert look_around(root).free_tasks == 32768 - 700
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (1000, 1000))
    monkeypatch.setattr("tfos_lab.engine.launchers.capacity._binds_user", lambda: True)
    assert look_around(root).free_tasks == 998


def test_open_files_are_those_that_this_process_may_still_open(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (1024, 4096))
    free = look_around().free_files
    assert 0 < free < 1024
    assert Room(cores=64, free_files=free).holds()[0] < 1024 // NODE_FILES
