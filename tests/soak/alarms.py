"""Runs beside busy processes: none may be called lost that is not, and who is lost must be told all the same.

    make alarms                    1,000 runs at a load of 8
    make alarms RUNS=100 LOAD=16

Every twentieth run loses a node for real: its agent is stopped as Ctrl-Z does.
"""
# ruff: noqa: T201 - a program that tells how far it is

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

# So many runs are healthy for each that loses a node.
_LOSES_EVERY = 20
_PATIENCE_S = 300.0
_TELL_EVERY = 50
_BUSY = "while True: pass"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs; return 0 if no healthy node was called lost, and each lost one was told by its name."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.alarms", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--load", type=int, default=8, help="how many processes do nothing but compute")
    options = parser.parse_args(arguments)
    from tests.soak.__main__ import own_folder

    # Fork servers end with this process, as everything else.
    os.environ["TFOS_LAB_FORK_SERVER"] = "kernel"
    with own_folder(), _busy(options.load):
        problems, told_s = _runs(options.runs)
    for problem in problems:
        print(problem)
    late = f"{statistics.median(told_s):.1f} s (median), {max(told_s):.1f} s (longest)" if told_s else "never"
    print(
        f"{options.runs} runs at load {options.load}: {len(problems)} wrong; {len(told_s)} lost nodes told after {late}"
    )
    return int(bool(problems))


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keep so many processes computing."""
    processes = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _runs(count: int) -> tuple[list[str], list[float]]:
    problems: list[str] = []
    told_s: list[float] = []
    ends: Counter[str] = Counter()
    for number in range(count):
        loses = number % _LOSES_EVERY == _LOSES_EVERY - 1
        end, after_s = _run(number, loses=loses)
        ends["lost" if loses else "healthy"] += 1
        if end:
            problems.append(f"run {number}: {end}")
        elif loses:
            told_s.append(after_s)
        if (number + 1) % _TELL_EVERY == 0:
            load = os.getloadavg()[0]
            print(f"{number + 1} runs, {len(problems)} wrong, load {load:.1f}, {dict(ends)}", flush=True)
    return problems, told_s


def _run(number: int, *, loses: bool) -> tuple[str, float]:
    """Make one run; return what was wrong with it, or "", and after how long its lost node was told."""
    import tfos_lab
    from tests.faults.scene import agents_of
    from tests.soak import nodes
    from tests.support.eventually import eventually
    from tests.support.quick import QUICK_ENV
    from tfos_lab.errors import NodeFailed

    steps = 10_000 if loses else 10
    cluster = tfos_lab.run(
        nodes.work, {"raises": "", "steps": steps}, name="alarms", cluster_size=2, local="processes", env=QUICK_ENV,
        tensorboard=False, grace=0.5,
    )  # fmt: skip
    stopped_s = time.monotonic()
    rank = random.randrange(len(cluster.nodes))
    victim = cluster.nodes[rank].name
    try:
        if loses:
            eventually(lambda: all(view.step for view in cluster.nodes), _PATIENCE_S)
            agents_of(cluster.id)[rank].send_signal(signal.SIGSTOP)
            stopped_s = time.monotonic()
        cluster.wait(timeout=_PATIENCE_S)
    except NodeFailed as error:
        is_right = loses and (error.node, error.kind) == (victim, "Lost")
        return "" if is_right else " ".join(str(error).split())[:300], time.monotonic() - stopped_s
    finally:
        cluster.stop(grace=0.5)
    return f"{victim} was stopped, and not missed" if loses else "", 0.0


if __name__ == "__main__":
    sys.exit(main())
