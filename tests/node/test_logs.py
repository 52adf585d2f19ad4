"""A node's log on its way where its host has little room: what does not fit is lost whole, and that is told once."""
# ruff: noqa: T201 - what nodes print is what is tested

import contextlib
import os
import sys
import time

from tests.node.conftest import start_for
from tfos_lab.core import messages as m

TAIL = "lone \\udc80 surrogate ✓\nPassword: ".encode()
FULL = b" bytes of this log are missing: the disk of the node's host was full"


def print_much(go):
    print("up", flush=True)
    while not go.exists():
        time.sleep(0.01)
    for _ in range(1000):
        print("y" * 999, flush=True)


def test_lines_that_the_disk_has_no_room_for_are_lost_whole_and_told_once(launch, small_disk, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    node = launch(owner=f"small-{os.getpid()}")
    node.send(start_for(print_much, tmp_path / "go"))
    node.wait_for_output(b"up")
    with contextlib.suppress(OSError), (small_disk / "others").open("wb", buffering=0) as others:
        while others.write(bytes(4096)):
            pass
    (tmp_path / "go").touch()
    node.wait_for(m.Ended)
    (small_disk / "others").unlink()
    node.finish()
    assert len(node.output()) < 1_000_000
    assert {len(line) for line in node.output().splitlines()} <= {len("up"), 999}
    assert node.output("stderr").count(FULL) == 1


def test_a_line_of_one_stream_is_not_cut_by_the_other_or_by_the_end(run):
    def map_fun():
        for number in range(50):
            os.write(1, b"out ")
            os.write(2, b"err %d\n" % number)
            time.sleep(0.001)
            os.write(1, b"%d\n" % number)
        print("lone \udc80 surrogate ✓")
        os.write(1, b"Password: ")
        sys.stderr.write("the end\n")
        os._exit(3)  # what a process has written last is in its log all the same

    node = run(map_fun)
    assert node.outcome().exit_code == 3
    node.finish()
    records = [record for message in node.all(m.Logs) for record in message.records]
    assert node.output() == b"".join(b"out %d\n" % number for number in range(50)) + TAIL
    assert node.output("stderr") == b"".join(b"err %d\n" % number for number in range(50)) + b"the end\n"
    assert all(record.time_s for record in records)
