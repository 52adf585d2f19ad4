"""Extreme output and results: floods, garbage, too large, or impossible to send."""
# ruff: noqa: T201 - printing is what is tested

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.misfortune.conftest import PATIENCE_S
from tests.support.clusters import runtime_of
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.engine.state.events import LogText
from tfos_lab.errors import PayloadError

pytestmark = pytest.mark.leaves_nothing


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("breakpoint()", "breakpoint()"),
        ("input('name? ')", "input()"),
        ("import sys; sys.stdin.readline()", "input()"),
        ("import pdb; pdb.set_trace(); x = 1", "the debugger"),
    ],
)
def test_reading_from_the_keyboard_raises_an_error_with_advice(fails, source, asked):
    def do(source, ctx):
        exec(source)

    error = fails(do, source, cluster_size=1)
    assert error.kind == "NoKeyboard"
    assert error.message.startswith(
        f"{asked} waits for somebody to type, and a node has no keyboard: run the cell with"
    )
    assert f'File "{__file__}", line' in error.traceback
    assert "tfos_lab/" not in error.traceback


def test_stdin_read_whole_is_empty_and_a_configured_breakpoint_hook_is_called(run):
    def ask():
        try:
            return input()
        except EOFError:
            os.environ["PYTHONBREAKPOINT"] = "0"
            breakpoint()  # noqa: T100 - that is the test
            return sys.stdin.read(), list(sys.stdin), sys.stdin.isatty()

    assert run(ask, cluster_size=1).wait(timeout_s=100)["chief:0"] == ("", [], False)


def test_a_line_of_a_hundred_megabytes_arrives_whole(run):
    size = 100_000_000
    cluster = run(lambda size: print("x" * size) or "printed", size, cluster_size=1)
    assert cluster.wait(timeout_s=120)["chief:0"] == "printed"
    path = cluster.run_dir / "chief-0.log"
    assert path.stat().st_size == size + 1
    with path.open("rb") as file:
        file.seek(-3, 2)
        assert file.read() == b"xx\n"
    assert len(cluster.logs("chief:0", tail=1)) <= size


def test_a_gigabyte_of_lines_arrives_whole_without_being_held_in_memory(run):
    lines, count = b"x" * 99 + b"\n", 10_000_000

    def map_fun(args, ctx):
        for _ in range(count // 10_000):
            sys.stdout.buffer.write(lines * 10_000)

    before = psutil.Process().memory_info().rss
    cluster = run(map_fun, cluster_size=1)
    cluster.wait(timeout_s=180)
    grown = psutil.Process().memory_info().rss - before
    path = cluster.run_dir / "chief-0.log"
    try:
        assert path.stat().st_size == count * len(lines)
        assert cluster.logs("chief:0", tail=2) == "\n".join(["x" * 99] * 2)
        assert grown < 300_000_000
    finally:
        path.unlink()


def test_a_full_disk_under_the_logs_stops_no_node(run, tmp_path):
    def print_later(go, ctx):
        while not go.exists():
            time.sleep(0.02)
        print("shown")
        return "done"

    cluster = run(print_later, tmp_path / "go")
    (cluster.run_dir / "worker-0.log").symlink_to("/dev/full")
    with runtime_of(cluster).bus.subscribe() as subscription:
        (tmp_path / "go").touch()
        assert set(cluster.wait(timeout_s=60).values()) == {"done"}
        texts = [event for event in subscription.take() if isinstance(event, LogText)]
    for node in ("chief:0", "worker:0"):
        assert "".join(event.text for event in texts if event.node == node) == "shown\n"
    assert (cluster.run_dir / "chief-0.log").read_text() == "shown\n"
    [note] = cluster.view().notes
    assert "worker-0.log (No space left on device): nodes go on" in note


def test_the_streams_do_not_split_each_other_s_lines(run):
    def map_fun(args, ctx):
        for number in range(2000):
            print("out", number)
            print("err", number, file=sys.stderr)

    cluster = run(map_fun)
    cluster.wait(timeout_s=60)
    wanted = sorted(f"{stream} {number}" for stream in ("out", "err") for number in range(2000))
    for node in ("chief:0", "worker:0"):
        assert sorted(cluster.logs(node).splitlines()) == wanted


def test_random_bytes_arrive_whole_and_do_no_harm(run):
    def map_fun(args, ctx):
        garbage = os.urandom(1 << 20)
        sys.stdout.buffer.write(garbage)
        return garbage

    cluster = run(map_fun)
    for node, garbage in cluster.wait(timeout_s=60).items():
        assert (cluster.run_dir / f"{node.replace(':', '-')}.log").read_bytes() == garbage
    assert isinstance(cluster.logs(), str)


def test_a_slow_subscriber_loses_events_and_learns_how_many_while_files_are_whole(run):
    cluster = run(lambda args, ctx: [print("line", number, flush=True) for number in range(20_000)] and None)
    with runtime_of(cluster).bus.subscribe(capacity=2) as slow:
        cluster.wait(timeout_s=60)
        assert len(slow.take()) <= 2
        assert slow.take_dropped() > 0
    expected = "".join(f"line {number}\n" for number in range(20_000))
    assert cluster.logs("chief:0") == cluster.logs("worker:0") == expected


def test_a_result_that_is_too_large_is_refused_with_its_size_and_what_to_do(fails):
    def map_fun(args, ctx):
        import numpy as np

        return {"weights": np.zeros(3 << 30, np.uint8)}

    error = fails(map_fun, cluster_size=1)
    assert error.kind == "ResultTooLarge"
    assert "weights" in error.message
    assert "takes 3,221.2 MB, and all of it may take 2,147.5 MB" in error.message
    assert "Save it under ctx.log_dir and return the path" in error.message


def test_a_result_that_cannot_be_sent_is_named_with_the_reason(fails):
    error = fails(lambda args, ctx: {"guard": [threading.Lock()]}, cluster_size=1)
    assert error.kind == "ResultNotSendable"
    assert "guard" in error.message
    assert "lock" in error.message
    assert "Return plain data" in error.message


def test_a_large_result_within_the_limit_arrives(run):
    def map_fun(args, ctx):
        import numpy as np

        return np.arange(8 << 20)

    results = run(map_fun).wait(timeout_s=120)
    assert all(array.shape == (8 << 20,) and int(array[-1]) == (8 << 20) - 1 for array in results.values())


def test_a_large_result_comes_in_pieces_where_the_run_s_folder_is_on_another_disk(run, monkeypatch):
    disk = Path("/dev/shm")
    if not os.access(disk, os.W_OK) or disk.stat().st_dev == scratch_root().stat().st_dev:
        pytest.skip("there is no other disk")

    def map_fun(args, ctx):
        import numpy as np

        return {"rank": ctx.rank, "weights": np.arange(1 << 20)}

    with tempfile.TemporaryDirectory(dir=disk) as folder:
        monkeypatch.setenv("TFOS_LAB_RUNS", folder)
        cluster = run(map_fun)
        results = cluster.wait(timeout_s=120)
        stored = cluster.run_dir / "results"
        assert {path.name for path in stored.iterdir()} == {"chief-0", "worker-0"}
        assert [value["rank"] for value in results.values()] == [0, 1]
        assert all(int(value["weights"][-1]) == (1 << 20) - 1 for value in results.values())
        assert not list(stored.iterdir())


def test_a_captured_object_that_cannot_be_pickled_is_refused_before_anything_starts(run):
    import tfos_lab

    before = len(tfos_lab.clusters())
    guard = threading.Lock()
    with pytest.raises(PayloadError, match=r"'guard' \(lock\) cannot be sent to the nodes: locks and threads"):
        run(lambda args, ctx: guard.acquire())
    assert len(tfos_lab.clusters()) == before


def test_an_error_with_a_message_of_megabytes_is_still_an_error(fails):
    def map_fun(args, ctx):
        raise ValueError("y" * 10_000_000)

    error = fails(map_fun, cluster_size=1)
    assert error.kind == "ValueError"
    assert len(error.message) < 100_000


def test_an_error_whose_message_fails_is_still_an_error(fails):
    def map_fun(args, ctx):
        class Failing(Exception):
            def __str__(self):
                raise RuntimeError("no message")

        raise Failing

    assert fails(map_fun, cluster_size=1).kind == "Failing"


def test_large_arguments_are_fetched_once_for_the_nodes_of_a_host_and_leave_no_file(run):
    def map_fun(args, ctx):
        return sum(args[:: 1 << 20]), len(args)

    args = bytes(range(256)) * (1 << 17)
    cluster = run(map_fun, args, cluster_size=3)
    results = cluster.wait(timeout_s=60)
    assert set(results.values()) == {(sum(args[:: 1 << 20]), 32 << 20)}
    deadline = time.monotonic() + PATIENCE_S
    while list(scratch_root().glob(f"payload-{cluster.id}-*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_flood_of_reports_is_thinned_on_the_node_and_told_once(run):
    def map_fun(args, ctx):
        for step in range(args):
            ctx.report(step, loss=1.0)

    cluster = run(map_fun, 50_000)
    cluster.wait(timeout_s=60)
    for node in ("chief:0", "worker:0"):
        steps = cluster.metrics.query("node == @node")["step"]
        assert 1000 <= len(steps) < 25_000
        assert steps.iloc[-1] == 49_999
        assert cluster.logs(node).count("ctx.report is called more than") == 1
