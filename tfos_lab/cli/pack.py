"""``tfos-lab pack``: packs this environment for executors that have Python and nothing else."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tfos_lab.cli.terminal import echo, echo_error
from tfos_lab.engine.environment.pack import pack
from tfos_lab.errors import ConfigError


def run(arguments: Sequence[str]) -> int:
    """Pack, and print how to use the archive; returns 1 if the environment cannot be packed."""
    given = make_parser("tfos-lab pack").parse_args(arguments)
    try:
        echo(pack(given.output, exclude=given.exclude, python=given.python).describe())
    except (ConfigError, OSError) as error:
        echo_error(str(error))
        return 1
    return 0


def make_parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Pack this Python environment as a relocatable archive for spark.archives, with the sources of "
        "editable packages. What has been packed before is used again until a package changes.",
    )
    parser.add_argument("output", nargs="?", help="the file to write; a file in ~/.cache/tfos_lab by default")
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="PACKAGE", help="leave a package out; * stands for anything"
    )
    parser.add_argument("--python", metavar="PATH", help="where executors have Python, if elsewhere than this machine")
    return parser
