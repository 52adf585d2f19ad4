"""``tfos-lab lab``: JupyterLab with the tutorials, set up so that local Spark is quiet and finds the right Python."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tfos_lab.cli.paths import find_checkout, kernel_environ
from tfos_lab.cli.terminal import complain, say
from tfos_lab.engine.doctor import check_java

HELP = """usage: tfos-lab lab [FOLDER] [arguments of JupyterLab]

Start JupyterLab in FOLDER; by default with the tutorials of the checkout, or else here.
All further arguments go to JupyterLab: tfos-lab lab --no-browser --port=9000"""


def run(arguments: Sequence[str]) -> int:
    """Become JupyterLab; returns an exit code if that cannot be."""
    if arguments and arguments[0] in ("-h", "--help"):
        say(HELP)
        return 0
    checkout = find_checkout()
    folder, further = choose_folder(arguments, checkout)
    if not folder.is_dir():
        complain(f"there is no folder {folder}")
        return 2
    if importlib.util.find_spec("jupyterlab") is None:
        complain("JupyterLab is not installed here: pip install 'tfos_lab[lab]'")
        return 1
    java = check_java(os.environ)
    if not java.ok:
        complain(f"{java.sentence}. Notebooks without Spark run all the same.")
    command = lab_command(folder, further, as_root=os.geteuid() == 0)
    # It takes our place, so that the terminal's signals and the exit code are its own.
    os.execve(command[0], command, kernel_environ(os.environ, checkout))  # noqa: S606
    return 0


def choose_folder(arguments: Sequence[str], checkout: Path | None) -> tuple[Path, list[str]]:
    """Return the folder to show, and the arguments that are JupyterLab's."""
    words = list(arguments)
    if words and not words[0].startswith("-"):
        return Path(words[0]), words[1:]
    return checkout / "notebooks" if checkout else Path.cwd(), words


def lab_command(folder: Path, further: Sequence[str], *, as_root: bool) -> list[str]:
    """Return the command that starts JupyterLab."""
    # Root, as in a container, is who the user is; JupyterLab would refuse to start, and listens on this machine only.
    root = ["--allow-root"] if as_root and "--allow-root" not in further else []
    return [sys.executable, "-m", "jupyterlab", str(folder), *root, *further]
