"""Runs many seeds, and tells which do not hold: make sim SEEDS=60000.

python -m tests.simulation --seeds 60000             seeds from 0 on
python -m tests.simulation --from 1234 --seeds 1     the story of one seed, and of the least that fails alike
"""
# ruff: noqa: T201 - a program that tells how far it is

from __future__ import annotations

import argparse
import collections
import gc
import multiprocessing
import os
import time
from collections.abc import Sequence

from tests.simulation.plan import Plan
from tests.simulation.run import Run
from tests.simulation.seeds import failing, kind_of, least

_AT_ONCE = 250
# So many are told one by one.
_MOST_TOLD = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 if everything holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=60_000, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first one")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    gc.freeze()
    began_s = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    parts = [range(start, min(start + _AT_ONCE, seeds.stop)) for start in range(seeds.start, seeds.stop, _AT_ONCE)]
    met: collections.Counter[str] = collections.Counter()
    failed: list[tuple[int, str]] = []
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for some_met, some_failed in pool.imap(failing, parts):
            met += some_met
            failed += some_failed
    took_s = time.monotonic() - began_s
    counts = ", ".join(f"{count} {what}" for what, count in met.most_common())
    print(f"{options.seeds:,} seeds in {took_s:.0f} s: {counts}; {len(failed)} do not hold")
    kinds: dict[str, list[tuple[int, str]]] = {}
    for seed, text in failed:
        kinds.setdefault(kind_of(text), []).append((seed, text))
    for cases in sorted(kinds.values(), key=len, reverse=True)[:_MOST_TOLD]:
        seed, text = cases[0]
        plan = least(Plan.drawn(seed))
        print(f"\n{len(cases)} seeds, such as {', '.join(str(one) for one, _ in cases[:5])}: {text}")
        print(Run(plan).live().told())
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
