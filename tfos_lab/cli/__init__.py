"""The command line: ``tfos-lab doctor | lab | run-script | history | pack | warm``.

A command is a function that takes its arguments and returns the exit code; where it cannot do what it is asked for, it
raises an error, of which the message is printed. What it needs is imported when it runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfos_lab.cli.paths import find_checkout, kernel_environ
from tfos_lab.cli.terminal import StatusLine, echo, echo_error, paint
from tfos_lab.core.version import __version__
from tfos_lab.errors import ConfigError
from tfos_lab.texts import first_line

if TYPE_CHECKING:
    from tfos_lab.driver.doctor.checks import Finding

# Well below the ten idle minutes after which a fork server ends.
_PING_S = 60.0
_LAB_HELP = """usage: tfos-lab lab [FOLDER] [arguments of JupyterLab]

Start JupyterLab in FOLDER; by default with the tutorials of the checkout, or else here.
All further arguments go to JupyterLab: tfos-lab lab --no-browser --port=9000"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        lines = [f"  {name:<10} {command.meaning}" for name, command in COMMANDS.items()]
        last = "tfos-lab COMMAND --help explains a command; tfos-lab --version prints the version."
        echo("\n".join(["usage: tfos-lab COMMAND [arguments]", "", *lines, "", last]))
        return 0 if given else 2
    if given[0] == "--version":
        echo(f"tfos-lab {__version__}")
        return 0
    if given[0] not in COMMANDS:
        echo_error(f"tfos-lab has no command {given[0]!r}; there are {', '.join(COMMANDS)}")
        return 2
    try:
        return COMMANDS[given[0]].run(given[1:])
    except KeyboardInterrupt:
        echo_error("interrupted")
        return 130
    except (ConfigError, OSError) as error:
        echo_error(str(error))
        return 1


# ---- doctor ---------------------------------------------------------------------------------------------------------


def _doctor(arguments: Sequence[str]) -> int:
    """Print what is installed and what is missing; returns 1 if there is a problem."""
    from tfos_lab.driver.doctor import examine
    from tfos_lab.driver.doctor.checks import render_text

    parser = argparse.ArgumentParser(
        prog="tfos-lab doctor", description="Check that everything a cluster needs is there, and what to do if not."
    )
    parser.add_argument("--master", help="start a Spark session there (spark://host:7077) and check its executors too")
    master = parser.parse_args(arguments).master
    try:
        findings = _examine_at(master) if master else examine()
    except Exception as error:  # noqa: BLE001 - whatever Spark says about its start is the finding
        echo_error(f"no Spark session at {master}: {first_line(error)}")
        return 1
    echo(render_text(findings).replace("✓", paint("✓", "green")).replace("✗", paint("✗", "red")))
    return int(not all(finding.ok for finding in findings))


def _examine_at(master: str) -> list[Finding]:
    from tfos_lab.driver.doctor import examine, examine_machine
    from tfos_lab.driver.doctor.checks import check_master

    unreachable = check_master(master)
    if unreachable is not None:
        return [*examine_machine(), unreachable]  # Spark would try for a minute
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("tfos-lab doctor").config("spark.ui.enabled", "false")
    session = builder.config("spark.log.level", "ERROR").master(master).getOrCreate()
    try:
        return examine(session)
    finally:
        session.stop()


# ---- lab ------------------------------------------------------------------------------------------------------------


def _lab(arguments: Sequence[str]) -> int:
    """Replace this process by JupyterLab; returns an exit code if that is impossible."""
    from tfos_lab.driver.doctor.checks import check_java

    if arguments and arguments[0] in ("-h", "--help"):
        echo(_LAB_HELP)
        return 0
    checkout, further = find_checkout(), list(arguments)
    folder = checkout / "notebooks" if checkout else Path.cwd()
    if further and not further[0].startswith("-"):
        folder = Path(further.pop(0))
    if not folder.is_dir():
        echo_error(f"there is no folder {folder}")
        return 2
    if importlib.util.find_spec("jupyterlab") is None:
        echo_error("JupyterLab is not installed here: pip install 'tfos_lab[lab]'")
        return 1
    java = check_java(os.environ)
    if not java.ok:
        echo_error(f"{java.sentence}. Notebooks without Spark run anyway.")
    # In containers the user is root. JupyterLab would refuse to start; it listens on this machine only.
    root = ["--allow-root"] if os.geteuid() == 0 and "--allow-root" not in further else []
    command = [sys.executable, "-m", "jupyterlab", str(folder), *root, *further]
    # It replaces this process, so that the terminal's signals reach it and the exit code is its own.
    os.execve(command[0], command, kernel_environ(os.environ, checkout))  # noqa: S606
    return 0


# ---- run-script, history, pack --------------------------------------------------------------------------------------


def _run_script(arguments: Sequence[str]) -> int:
    from tfos_lab.cli.run_script import run

    return run(arguments)


def _history(arguments: Sequence[str]) -> int:
    from tfos_lab.driver.runs.read import name_place, read_runs
    from tfos_lab.notebook.display.history import SHOWN, HistoryTable

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
    given = parser.parse_args(arguments)
    names, folder = name_place(given.names, given.folder)
    echo(repr(HistoryTable(read_runs(folder), names, None if given.all else given.last)))
    return 0


def _pack(arguments: Sequence[str]) -> int:
    from tfos_lab.driver.pack import pack

    parser = argparse.ArgumentParser(
        prog="tfos-lab pack",
        description="Pack this Python environment as a relocatable archive for spark.archives. "
        "What has been packed before is used again until a package changes.",
    )
    parser.add_argument("output", nargs="?", help="the file to write; a file in ~/.cache/tfos_lab by default")
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="PACKAGE", help="leave a package out; * stands for anything"
    )
    parser.add_argument("--python", metavar="PATH", help="where executors have Python, if elsewhere than this machine")
    given = parser.parse_args(arguments)
    echo(pack(given.output, exclude=given.exclude, python=given.python).describe())
    return 0


# ---- warm -----------------------------------------------------------------------------------------------------------


def _warm(arguments: Sequence[str]) -> int:
    """Keep the fork servers of this environment warm until Ctrl-C, or end them."""
    from tfos_lab.driver.warm_servers import describe, end_warm_servers, wait_until_warm, warm, warm_servers
    from tfos_lab.launchers.this_machine import FORK_SERVER, outlives_kernels

    parser = argparse.ArgumentParser(
        prog="tfos-lab warm",
        description="Import TensorFlow once, for all notebooks of this user and environment on this machine, and keep "
        "it until Ctrl-C. The first cluster of a new or restarted kernel then starts at once.",
    )
    parser.add_argument("action", nargs="?", choices=["stop"], help="end the fork servers that no node needs now")
    if parser.parse_args(arguments).action == "stop":
        echo(end_warm_servers())
        return 0
    if not outlives_kernels():
        why = "fork servers end with their kernel, so none can be kept. Unset it first."
        raise ConfigError([f"{FORK_SERVER}=kernel: {why}"])
    status, began_s = StatusLine(), time.monotonic()
    status.show("importing TensorFlow …")
    try:
        wait_until_warm()
        status.finish(f"warm after {time.monotonic() - began_s:.1f} s; Ctrl-C lets go of it")
        echo(describe(warm_servers()))
        while not threading.Event().wait(_PING_S):
            warm()
    except KeyboardInterrupt:
        status.clear()
        echo("let go: the fork servers end after ten minutes without use; `tfos-lab warm stop` ends them now")
    return 0


class _Command(NamedTuple):
    run: Callable[[Sequence[str]], int]
    meaning: str


COMMANDS = {
    "doctor": _Command(_doctor, "check that everything needed is there, and what to do if not"),
    "lab": _Command(_lab, "start JupyterLab with the tutorials, or in a folder of your own"),
    "run-script": _Command(
        _run_script, "run a Python file on the nodes of a cluster, each with its role and parameters"
    ),
    "history": _Command(
        _history, "list the runs of this folder, newest first, with how they ended and their last metrics"
    ),
    "pack": _Command(_pack, "pack this environment for executors that have Python and nothing else"),
    "warm": _Command(_warm, "keep TensorFlow imported, so that the first cluster of a kernel starts at once"),
}
