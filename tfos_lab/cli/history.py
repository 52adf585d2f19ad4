"""``tfos-lab history``: lists the runs of a folder, as ``%tfos history`` does in a notebook."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tfos_lab.cli.terminal import echo, echo_error
from tfos_lab.engine.runs.read import name_place, read_runs
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.display.history import SHOWN, HistoryTable


def run(arguments: Sequence[str]) -> int:
    """List the runs; returns 1 if there is no such run or folder."""
    given = make_parser().parse_args(arguments)
    try:
        names, folder = name_place(given.names, given.folder)
        echo(repr(HistoryTable(read_runs(folder), names, None if given.all else given.last)))
    except ConfigError as error:
        echo_error(str(error))
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="tfos-lab history",
        description="List the runs in $TFOS_LAB_RUNS, or runs/ here, and in the user's cache, newest first.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="labels or identifiers, patterns such as 'mnist*', or the address of a run_store",
    )
    parser.add_argument("--folder", help="where the runs are, if elsewhere; also an address")
    parser.add_argument("--last", type=int, default=SHOWN, metavar="N", help="at most so many (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="all of them")
    return parser
