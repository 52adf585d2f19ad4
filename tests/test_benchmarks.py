"""The benchmarks' own rules; what they measure is no test's business."""

from __future__ import annotations

import subprocess
import sys

import psutil


def test_benchmarks_that_are_ended_end_what_they_have_started():
    suite = """
import sys, time, types
import benchmarks.__main__ as bench
from benchmarks.by_hand import run_python

def measure():
    process = run_python("import time; print(flush=True); time.sleep(600)")
    process.stdout.readline()
    print(process.pid, flush=True)
    while True:
        time.sleep(0.1)  # a signal that comes just before Python blocks for long would be seen after that only

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
