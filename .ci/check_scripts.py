"""Checks the types of the dashboard's modules with the compiler of the Lab extension (`make check`).

Where they run they are one module, so types that one of them defines are known to all. Here they are put together in
the same way, and what the compiler says is told of the module and the line that it is about.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.nodejs import find_node
from tfos_lab.jupyter.display.widget import MODULES

ROOT = Path(__file__).resolve().parents[1]
COMPILER = ROOT / "extensions/jupyterlab/node_modules/typescript/bin/tsc"
STATIC = ROOT / "tfos_lab/jupyter/display/static"
ALONE = [ROOT / "tfos_lab/jupyter/display/outputs/tensorboard_frame.js"]
OPTIONS = (
    *("--allowJs", "--checkJs", "--noEmit", "--strict", "--noUnusedLocals", "--noUnusedParameters"),
    *("--noImplicitReturns", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes"),
    *("--target", "ES2022", "--module", "ES2022", "--lib", "ES2023,DOM,DOM.Iterable", "--pretty", "false"),
)


def main() -> int:
    """Print what is wrong, and return whether something is."""
    if not COMPILER.is_file():
        print(f"no types checked: {COMPILER} is not there; .ci/lab-extension brings it")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder) / "joined.js"
        begins = join_modules(joined)
        command = [find_node(), COMPILER, *OPTIONS, joined, *ALONE]
        run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    for line in run.stdout.splitlines():
        print(re.sub(r"^\S*joined\.js\((\d+),", lambda found: place_of(int(found[1]), begins), line))
    return run.returncode


def join_modules(target: Path) -> list[tuple[int, str]]:
    """Write all modules as one, and return the line before which each one begins."""
    text, begins = "", []
    for name in MODULES:
        begins.append((text.count("\n"), name))
        module = (STATIC / name).read_text("utf-8")
        # Every line stays: those of imports become empty.
        module = re.sub(r"^import\b[^;]*;\n", lambda found: "\n" * found[0].count("\n"), module, flags=re.MULTILINE)
        text += re.sub(r"^export (?!default)", "", module, flags=re.MULTILINE)
    target.write_text(text, "utf-8")
    return begins


def place_of(line: int, begins: list[tuple[int, str]]) -> str:
    """Return module and line of a line of the whole."""
    before, name = max(begin for begin in begins if begin[0] < line)
    return f"{(STATIC / name).relative_to(ROOT)}({line - before},"


if __name__ == "__main__":
    sys.exit(main())
