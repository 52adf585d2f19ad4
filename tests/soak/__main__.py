"""A soak: clusters, feeds, inferences and streams in one session for minutes, with a random fault in every fourth.

    make soak                      20 minutes
    make soak MINUTES=5 SEED=1234  the same rounds and faults again

After each round, nothing of it may be left: no process, thread, descriptor, folder or job of Spark, and the kernel's
memory stays flat. The first thing left ends the soak, with the seed that chose the rounds.
"""
# ruff: noqa: T201 - a program that tells how far it is

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

# However little time there is: one of each kind, and two faults.
_FEWEST = 10
# By how much the kernel may grow after them; allocators and caches take some.
_GROWTH_BYTES = 48 << 20
_ROUND_TIMEOUT_S = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak; return 0 if nothing was left."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--master", choices=["local", "standalone"], default="local")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    print(f"SEED={seed} MINUTES={options.minutes:g} MASTER={options.master}", flush=True)
    faulthandler.enable()
    # A background job of a shell ignores SIGINT, and one of the faults is ■.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Fork servers end with this process, as everything else.
    os.environ["TFOS_LAB_FORK_SERVER"] = "kernel"
    until = time.monotonic() + options.minutes * 60
    with own_folder() as folder:
        return _soak(folder, options.master, random.Random(seed), until, seed)


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Yield a folder of this process alone, in which nodes and runs have theirs."""
    with tempfile.TemporaryDirectory(prefix="soak-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        os.environ["TFOS_LAB_RUNS"] = str(Path(folder) / "runs")
        os.environ["JUPYTER_RUNTIME_DIR"] = str(Path(folder) / "jupyter")
        yield Path(folder)


def _soak(folder: Path, master: str, rng: random.Random, until: float, seed: int) -> int:
    from tests.soak.rounds import Stage
    from tests.support import leftovers
    from tests.support.spark import spark_session
    from tests.support.standalone import standalone_cluster

    leftovers.mark_this_run()
    with contextlib.ExitStack() as stack:
        stack.callback(_tell_seed, seed, master)
        url = "local[3]"
        if master == "standalone":
            url = stack.enter_context(standalone_cluster(folder / "standalone")).master_url
        spark = stack.enter_context(spark_session(url, folder / "spark"))
        problem = _rounds(Stage(spark, "processes" if master == "local" else "off", folder), rng, until)
        if problem:
            print(problem, flush=True)
    return int(bool(problem))


def _tell_seed(seed: int, master: str) -> None:
    print(f"The same rounds again: make soak SEED={seed} MASTER={master}", flush=True)


def _rounds(stage, rng: random.Random, until: float) -> str:
    """Play rounds until the time is over; return what was left, or ""."""
    from tests.soak.rounds import ROUNDS
    from tests.soak.traces import Traces, rss_bytes

    traces, number, rss, ends = Traces(stage.spark), 0, [], Counter()
    while time.monotonic() < until or number < _FEWEST:
        is_warm = number >= len(ROUNDS)
        kind, fault = _draw(rng, number)
        what = f"round {number}: {kind}{f', {fault.do.__name__}' if fault else ''}"
        end, times, left = _watched_round(stage, rng, kind, fault, traces, is_warm=is_warm)
        if left:
            return f"{what} ({end}) left: {'; '.join(left)}"
        rss.append(rss_bytes())
        if not is_warm:
            traces.settle()
        print(f"{what}: {end}, {times}, {rss[-1] >> 20} MiB, {traces.figures()}", flush=True)
        grown = rss[-1] - max(rss[: len(ROUNDS)])
        if grown > _GROWTH_BYTES:
            return f"{what}: memory has grown by {grown >> 20} MiB since the first {len(ROUNDS)} rounds"
        ends[end.partition(":")[0]] += 1
        number += 1
    print(f"{number} rounds: {dict(ends)}; memory {rss[0] >> 20}, {max(rss[: len(ROUNDS)]) >> 20}, {rss[-1] >> 20} MiB")
    return ""


def _draw(rng: random.Random, number: int):
    """Return the kind of a round, and its fault or None: first one round of each kind, then a fault in every fourth.

    What the first rounds open is what all later ones use.
    """
    from tests.soak.faults import FAULTS
    from tests.soak.rounds import ROUNDS

    later = number - len(ROUNDS)
    kind = rng.choice([*ROUNDS]) if later >= 0 else [*ROUNDS][number]
    return kind, rng.choice(FAULTS) if later >= 0 and later % 4 == 0 else None


def _watched_round(stage, rng: random.Random, kind, fault, traces, *, is_warm: bool) -> tuple[str, str, list[str]]:
    """Play a round; return how it ended, its times, and what it left. One that hangs ends the soak with all stacks."""
    faulthandler.dump_traceback_later(_ROUND_TIMEOUT_S, exit=True)
    began = time.monotonic()
    traces.begin(is_stream=kind == "stream")
    try:
        end = _round(stage, random.Random(rng.random()), kind, fault)
        played = time.monotonic()
        left = traces.left(all_is_open=is_warm)
    finally:
        faulthandler.cancel_dump_traceback_later()
    return end, f"{played - began:.1f} s, all gone after {time.monotonic() - played:.1f} s", left


def _round(stage, rng: random.Random, kind, fault) -> str:
    """Play one round; return how it ended. An end that no fault explains is raised."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from tests.soak.faults import done_to
    from tests.soak.rounds import Round
    from tfos_lab.driver import start
    from tfos_lab.errors import TfosError

    options = fault.chaos_options if fault else {}
    raises = f"worker:{rng.randrange(2)}" if options.get("raises") else ""
    game = Round(stage, rng, kind, raises=raises, hang_timeout=options.get("hang_timeout", 0.0))
    try:
        with done_to(game, fault, rng) if fault else contextlib.nullcontext():
            game.play()
        return "ok"
    except (TfosError, PySparkException, Py4JError, KeyboardInterrupt) as error:
        if fault is None:
            raise
        return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    finally:
        game.cluster.stop(grace=0.5)
        # A process lists all its clusters; what is left when one is forgotten is a leak.
        start._clusters.remove(game.cluster)


if __name__ == "__main__":
    sys.exit(main())
