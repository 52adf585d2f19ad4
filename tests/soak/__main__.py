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

# Rounds after which all that is opened once is open.
_WARM_UP = 12
# However little time there is: one of each kind, and two faults.
_FEWEST = 8
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
    with _own_folder() as folder:
        return _soak(folder, options.master, random.Random(seed), options.minutes * 60, seed)


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    """Yield a folder of this soak alone, in which nodes and runs have theirs."""
    with tempfile.TemporaryDirectory(prefix="soak-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        os.environ["TFOS_LAB_RUNS"] = str(Path(folder) / "runs")
        os.environ["JUPYTER_RUNTIME_DIR"] = str(Path(folder) / "jupyter")
        yield Path(folder)


def _soak(folder: Path, master: str, rng: random.Random, seconds: float, seed: int) -> int:
    from tests.soak.rounds import Stage
    from tests.support import leftovers
    from tests.support.spark import spark_session
    from tests.support.standalone import standalone_cluster

    leftovers.mark_this_run()
    with contextlib.ExitStack() as stack:
        url = "local[3]"
        if master == "standalone":
            url = stack.enter_context(standalone_cluster(folder / "standalone")).master_url
        spark = stack.enter_context(spark_session(url, folder / "spark"))
        stage = Stage(spark, "processes" if master == "local" else "false", folder)
        problem = _rounds(stage, rng, time.monotonic() + seconds)
    if problem:
        print(f"{problem}\nThe same rounds again: make soak SEED={seed}", file=sys.stderr, flush=True)
    return int(bool(problem))


def _rounds(stage, rng: random.Random, until: float) -> str:
    """Play rounds until the time is over; return what was left, or ""."""
    from tests.soak.faults import FAULTS
    from tests.soak.rounds import ROUNDS, Stream
    from tests.soak.traces import Traces, rss_bytes

    traces, number, rss, ends = Traces(stage.spark), 0, [], Counter()
    while time.monotonic() < until or number < _FEWEST:
        # First one of each kind.
        kind = ROUNDS[number] if number < len(ROUNDS) else rng.choice(ROUNDS)
        fault = rng.choice(FAULTS) if number % 4 == 3 else None
        what = f"round {number}: {kind.__name__}{f', {fault.__name__}' if fault else ''}"
        faulthandler.dump_traceback_later(_ROUND_TIMEOUT_S, exit=True)
        began = time.monotonic()
        traces.begin(is_stream=kind is Stream)
        try:
            end = _round(stage, random.Random(rng.random()), kind, fault)
            played_s = time.monotonic() - began
            left = traces.left(all_is_open=number >= _WARM_UP)
        finally:
            faulthandler.cancel_dump_traceback_later()
        if left:
            return f"{what} ({end}) left: {'; '.join(left)}"
        rss.append(rss_bytes())
        if number < _WARM_UP:
            traces.settle()
        grown = rss[-1] - max(rss[: _WARM_UP + 1])
        print(f"{what}: {end}, {played_s:.1f} s, gone after {time.monotonic() - began - played_s:.1f} s, {rss[-1] >> 20} MiB, {traces.figures()}", flush=True)
        if grown > _GROWTH_BYTES:
            return f"{what}: memory has grown by {grown >> 20} MiB since the first {_WARM_UP} rounds"
        ends[end.partition(":")[0]] += 1
        number += 1
    print(f"{number} rounds: {dict(ends)}; memory {rss[0] >> 20}, {max(rss[:_WARM_UP]) >> 20}, {rss[-1] >> 20} MiB")
    return ""


def _round(stage, rng: random.Random, kind, fault) -> str:
    """Play one round; return how it ended. An end that no fault explains is raised."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from tests.soak.faults import done_to, raise_in_function, stop_child
    from tfos_lab.engine import registry
    from tfos_lab.errors import TfosError

    raises = f"worker:{rng.randrange(2)}" if fault is raise_in_function else ""
    game = kind(stage, rng, raises=raises, hang_timeout_s=2.0 if fault is stop_child else 0.0)
    try:
        with done_to(game, fault, rng) if fault else contextlib.nullcontext():
            game.play()
        return "ok"
    except (TfosError, PySparkException, Py4JError, KeyboardInterrupt) as error:
        if fault is None:
            raise
        return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    finally:
        game.cluster.stop(grace_s=0.5)
        # A process lists all its clusters; what is left when one is forgotten is a leak.
        registry._clusters.remove(game.cluster)


if __name__ == "__main__":
    sys.exit(main())
