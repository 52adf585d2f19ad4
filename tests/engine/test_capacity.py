"""How many nodes a machine can run, and the resource that limits them."""

from __future__ import annotations

import re
import resource

import pytest

from tfos_lab.engine.launchers.capacity import (
    ALWAYS,
    NODE_BYTES,
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
