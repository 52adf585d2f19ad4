"""How many nodes a machine can run, and the resource that limits them."""

import re

import pytest

from tfos_lab.launchers.capacity import ALWAYS, NODE_BYTES, NODES_PER_CORE, cores, room

POD = {
    "proc/self/cgroup": "0::/pod/box\n",
    "sys/fs/cgroup/pod/box/memory.max": "max\n",
    "sys/fs/cgroup/pod/box/memory.current": "5\n",
    "sys/fs/cgroup/pod/memory.max": "3000000000\n",
    "sys/fs/cgroup/pod/memory.current": "2300000000\n",
    "sys/fs/cgroup/pod/memory.stat": "anon 1\ninactive_file 100000000\n",
}
MACHINE = {"proc/meminfo": "MemTotal: 4000000 kB\nMemAvailable: 1000000 kB\nSwapFree: 100000 kB\n"}


@pytest.mark.parametrize(
    ("files", "fits", "text"),
    [
        ({}, NODES_PER_CORE * cores(), f"it has {cores()} cores?, for at most 16 nodes each"),
        (MACHINE, 1_126_400_000 // NODE_BYTES, "takes 110 MB and more, and 1.1 GB are free"),
        ({**MACHINE, **POD}, 800_000_000 // NODE_BYTES, "and 0.8 GB are free"),
        ({"proc/meminfo": "MemAvailable: 0 kB\n"}, ALWAYS, "and 0.0 GB are free"),
    ],
    ids=["cores", "memory", "that of its container", "nothing is known well enough to refuse a few"],
)
def test_the_scarcest_resource_is_the_limit_and_is_named(files, fits, text, tmp_path):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    count, limit = room(tmp_path)
    assert count == fits
    assert re.search(text, limit)
