"""The command line: ``tfos-lab doctor | demo | lab | bench``.

Each command is a module here with a function ``run(arguments) -> exit code``; this one only picks it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from tfos_lab.cli.terminal import complain, say
from tfos_lab.core.version import __version__

COMMANDS = {
    "doctor": "look whether all that is needed is there, and say what to do",
    "demo": "train MNIST from the first notebook on local Spark, and report",
    "lab": "JupyterLab with the tutorials, or with a folder of your own",
    "bench": "run the benchmarks",
}

USAGE = "\n".join(
    [
        "usage: tfos-lab COMMAND [arguments]",
        "",
        *(f"  {name:<8} {meaning}" for name, meaning in COMMANDS.items()),
        "",
        "tfos-lab COMMAND --help tells more; tfos-lab --version the version.",
    ]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        say(USAGE)
        return 0 if words else 2
    if words[0] == "--version":
        say(f"tfos-lab {__version__}")
        return 0
    if words[0] not in COMMANDS:
        complain(f"tfos-lab has no command {words[0]!r}; there are {', '.join(COMMANDS)}")
        return 2
    command = importlib.import_module(f"tfos_lab.cli.{words[0]}")
    try:
        code: int = command.run(words[1:])
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    return code
