"""The benchmarks' own rules; what they measure is no test's business."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psutil
import pytest

from benchmarks import peers
from benchmarks.__main__ import as_table, keep
from benchmarks.measure import Row, not_measured
from benchmarks.peers import environment
from benchmarks.peers.peer import Peer, PeerFailed


def test_peers_that_cannot_be_installed_are_a_row_that_says_why(monkeypatch, tmp_path):
    script = "echo 'No solution found:' >&2; echo '  no such release' >&2; exit 2"
    installer = _program(tmp_path / "install", script)
    monkeypatch.setattr(environment, "_INSTALL", str(installer))
    (row,) = peers.measure()
    assert row.goal == f"not measured: {installer} failed: No solution found: no such release"
    assert row.as_dict()["ratio"] is None


def test_the_table_leaves_cells_empty_where_nothing_was_measured():
    rows = [Row("fast", "s", 1.0, 4.0, "≤ 2 s", met=True, runs=3), not_measured("slow", "no network")]
    _, fast, slow = as_table(rows).splitlines()
    assert fast.split() == ["fast", "1", "s", "4", "s", "0.25", "≤", "2", "s", "yes"]
    assert slow.split() == ["slow", "not", "measured:", "no", "network"]


def test_a_suite_that_is_run_again_leaves_the_results_of_others(tmp_path):
    path = tmp_path / "results.json"
    for suite, seconds in [("feed", 1.0), ("importing", 2.0), ("feed", 3.0)]:
        keep(path, suite, [Row("fast", "s", seconds, 4.0, "≤ 2 s", met=True, runs=3)])
    results = json.loads(path.read_text())
    assert [(suite, run["rows"][0]["ours"]) for suite, run in results.items()] == [("importing", 2.0), ("feed", 3.0)]


def test_benchmarks_that_are_ended_end_what_they_have_started():
    suite = """
import sys, types
import benchmarks.__main__ as bench
from benchmarks.by_hand import run_python

def measure():
    process = run_python("import time; print(flush=True); time.sleep(600)")
    process.stdout.readline()
    print(process.pid, flush=True)
    process.communicate()

sys.modules["benchmarks.endless"] = types.SimpleNamespace(measure=measure)
bench.SUITES = ("endless",)
sys.argv = ["bench", "endless"]
bench.main()
"""
    process = subprocess.Popen([sys.executable, "-c", suite], stdout=subprocess.PIPE, text=True)
    started = psutil.Process(int(process.stdout.readline()))
    process.terminate()
    assert process.wait(60) == 143
    started.wait(60)
    process.stdout.close()


def test_a_peer_that_ends_is_told_with_its_last_line(tmp_path):
    with _peer(tmp_path, "read question; echo 'no Java here' >&2") as peer:
        with pytest.raises(PeerFailed, match=r"^ended during feed; its last line: no Java here$"):
            peer.ask("feed")
        with pytest.raises(PeerFailed, match=r"^ended (before|during) start; its last line: no Java here$"):
            peer.ask("start")


def test_what_goes_wrong_in_a_peer_is_told_and_it_can_be_asked_again(tmp_path):
    answers = """read question; echo '{"error": "ValueError: 0 nodes"}'; read question; echo '{"rows": 2}'"""
    with _peer(tmp_path, answers) as peer:
        with pytest.raises(PeerFailed, match=r"^start: ValueError: 0 nodes$"):
            peer.ask("start", nodes=0)
        assert peer.ask("feed") == {"rows": 2}


def _peer(folder, script):
    """Make a peer whose Python is a shell script."""
    return Peer(_program(folder / "python", script), "local", {}, env=os.environ, log=folder / "log")


def _program(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
