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
import subprocess
import sys
import time

# So many runs are healthy for each that loses a node.
_LOSES_EVERY = 20
_PATIENCE_S = 300.0
_TELL_EVERY = 50


def main() -> int:
    """Make the runs; return 0 if no healthy node was called lost, and each lost one was told by its name."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.alarms", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--load", type=int, default=8, help="how many processes do nothing but compute")
    options = parser.parse_args()
    from tests.soak.__main__ import own_folder

    # Fork servers end with this process, as everything else.
    os.environ["TFOS_LAB_FORK_SERVER"] = "kernel"
    wrong, told_s = 0, [0.0]
    with own_folder(), contextlib.ExitStack() as busy:
        for _ in range(options.load):
            busy.callback(subprocess.Popen([sys.executable, "-c", "while True: pass"]).kill)
        for number in range(1, options.runs + 1):
            problem, after_s = _run(loses=number % _LOSES_EVERY == 0)
            told_s.append(after_s)
            if problem:
                wrong += 1
                print(f"run {number}: {problem}", flush=True)
            if number % _TELL_EVERY == 0:
                print(f"{number} runs, {wrong} wrong, load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"{options.runs} runs at load {options.load}: {wrong} wrong; lost nodes were told after {max(told_s):.1f} s")
    return int(wrong > 0)


def _run(*, loses: bool) -> tuple[str, float]:
    """Make one run; return what was wrong with it, or "", and after how long its lost node was told."""
    import tfos_lab
    from tests.faults.scene import agents_of
    from tests.soak import nodes
    from tests.support.eventually import eventually
    from tests.support.quick import QUICK_ENV
    from tfos_lab.errors import NodeFailed

    args = {"raises": "", "steps": 10_000 if loses else 10}
    options = {"local": "processes", "env": QUICK_ENV, "tensorboard": False, "grace": 0.5}
    cluster = tfos_lab.run(nodes.work, args, name="alarms", cluster_size=2, **options)
    rank, began_s = random.randrange(2), 0.0
    victim = cluster.nodes[rank].name
    try:
        if loses:
            eventually(lambda: all(view.step for view in cluster.nodes), _PATIENCE_S)
            agents_of(cluster.id)[rank].send_signal(signal.SIGSTOP)
            began_s = time.monotonic()
        cluster.wait(timeout=_PATIENCE_S)
    except NodeFailed as error:
        is_right = loses and (error.node, error.kind) == (victim, "Lost")
        return "" if is_right else " ".join(str(error).split())[:300], time.monotonic() - began_s if loses else 0.0
    finally:
        cluster.stop(grace=0.5)
    return f"{victim} was stopped, and not missed" if loses else "", 0.0


if __name__ == "__main__":
    sys.exit(main())
