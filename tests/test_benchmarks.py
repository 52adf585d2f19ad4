"""The benchmarks' own rules; what they measure is no test's business."""

from __future__ import annotations

import json
import subprocess
import sys

import psutil

from benchmarks.__main__ import as_table, keep
from benchmarks.measure import Row, not_measured


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
