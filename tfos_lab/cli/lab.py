"""``tfos-lab lab``: JupyterLab with the tutorials, set up so that local Spark is quiet and uses this Python."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tfos_lab.cli.paths import find_checkout, kernel_environ
from tfos_lab.cli.terminal import echo, echo_error
from tfos_lab.engine.doctor.programs import check_java

HELP = """usage: tfos-lab lab [FOLDER] [arguments of JupyterLab]

Start JupyterLab in FOLDER; by default with the tutorials of the checkout, or else here.
All further arguments go to JupyterLab: tfos-lab lab --no-browser --port=9000"""


def run(arguments: Sequence[str]) -> int:
    """Replace this process by JupyterLab; returns an exit code if that is impossible."""
    if arguments and arguments[0] in ("-h", "--help"):
        echo(HELP)
        return 0
    checkout = find_checkout()
    folder, further = choose_folder(arguments, checkout)
    if not folder.is_dir():
        echo_error(f"there is no folder {folder}")
        return 2
    if importlib.util.find_spec("jupyterlab") is None:
        echo_error("JupyterLab is not installed here: pip install 'tfos_lab[lab]'")
        return 1
    java = check_java(os.environ)
    if not java.ok:
        echo_error(f"{java.sentence}. Notebooks without Spark run anyway.")
    command = lab_command(folder, further, as_root=os.geteuid() == 0)
    # It replaces this process, so that the terminal's signals reach it and the exit code is its own.
    os.execve(command[0], command, kernel_environ(os.environ, checkout))  # noqa: S606
    return 0


def choose_folder(arguments: Sequence[str], checkout: Path | None) -> tuple[Path, list[str]]:
    """Return the folder to open, and the arguments for JupyterLab."""
    further = list(arguments)
    if further and not further[0].startswith("-"):
        return Path(further[0]), further[1:]
    return checkout / "notebooks" if checkout else Path.cwd(), further


def lab_command(folder: Path, further: Sequence[str], *, as_root: bool) -> list[str]:
    """Return the command that starts JupyterLab."""
    # In containers the user is root. JupyterLab would refuse to start; it listens on this machine only.
    root = ["--allow-root"] if as_root and "--allow-root" not in further else []
    return [sys.executable, "-m", "jupyterlab", str(folder), *root, *further]
