"""The command line: ``tfos-lab doctor | pack | demo | lab | bench | compat | mnist | run-script | history | warm``.

Each command is a module of this package with a function ``run(arguments) -> exit code``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from tfos_lab.cli.terminal import echo, echo_error
from tfos_lab.core.version import __version__

COMMANDS = {
    "doctor": "check that everything needed is there, and what to do if not",
    "pack": "pack this environment for executors that have Python and nothing else",
    "demo": "train MNIST with the first notebook on local Spark, and report",
    "lab": "start JupyterLab with the tutorials, or in a folder of your own",
    "bench": "run the benchmarks",
    "compat": "run a program of TensorFlowOnSpark unchanged",
    "mnist": "write MNIST as the files from which the examples train",
    "run-script": "run a Python file on the nodes of a cluster, each with its role and parameters",
    "history": "list the runs of this folder, newest first, with how they ended and their last metrics",
    "warm": "keep TensorFlow imported, so that the first cluster of a kernel starts at once",
}

USAGE = "\n".join(
    [
        "usage: tfos-lab COMMAND [arguments]",
        "",
        *(f"  {name:<10} {meaning}" for name, meaning in COMMANDS.items()),
        "",
        "tfos-lab COMMAND --help explains a command; tfos-lab --version prints the version.",
    ]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        echo(USAGE)
        return 0 if given else 2
    if given[0] == "--version":
        echo(f"tfos-lab {__version__}")
        return 0
    if given[0] not in COMMANDS:
        echo_error(f"tfos-lab has no command {given[0]!r}; there are {', '.join(COMMANDS)}")
        return 2
    command = importlib.import_module(f"tfos_lab.cli.{given[0].replace('-', '_')}")
    try:
        code: int = command.run(given[1:])
    except KeyboardInterrupt:
        echo_error("interrupted")
        return 130
    return code
