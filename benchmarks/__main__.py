"""Runs the benchmarks, prints a table, and writes ``benchmarks/results.json``: ``python -m benchmarks [NAME ...]``."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import json
import os
import platform
import signal
import sys
from pathlib import Path

from benchmarks.measure import Row
from tfos_lab.cli.paths import find_checkout, kernel_environ

SUITES = (
    "importing",
    "startup",
    "standalone",
    "failing",
    "parallel",
    "search",
    "memory",
    "training",
    "log_stream",
    "card",
    "feed",
    "overlap",
    "inference",
    "objects",
    "tfrecords",
    "files",
    "rows",
    "storage",
    "scale",
    "peers",
    "strangers",
    "strangers_at_node",
)
RESULTS = Path(__file__).with_name("results.json")


def main() -> int:
    """Run the suites named on the command line, all by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="NAME", help=", ".join(SUITES))
    names = parser.parse_args().suites or SUITES
    if unknown := set(names) - set(SUITES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    os.environ.update(kernel_environ(os.environ, find_checkout()))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["TFOS_LAB_FORK_SERVER"] = "kernel"  # nothing is warm but what a benchmark has warmed itself
    # SIGTERM ends the ``with`` blocks, too, and so the clusters and processes that were started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rows: list[Row] = []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        measured: list[Row] = []
        for row in importlib.import_module(f"benchmarks.{name}").measure():
            measured.append(row)
            print(f"  {row}", file=sys.stderr, flush=True)
        keep(RESULTS, name, measured)
        rows += measured
    print(as_table(rows))
    return 0


def keep(path: Path, suite: str, rows: list[Row]) -> None:
    """Write a suite's rows into the file of results; other suites keep theirs, with the date of their own run."""
    results = json.loads(path.read_text()) if path.exists() else {}
    results[suite] = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()},
        "rows": [row.as_dict() for row in rows],
    }
    ordered = {name: results[name] for name in SUITES if name in results}
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def as_table(rows: list[Row]) -> str:
    """Return the rows as a table with aligned columns."""
    cells = [("what", "tfos_lab", "beside", "ratio", "goal", "met"), *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in cells)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
