"""Executes the tutorials, or those whose names begin as said, and writes them with their outputs to gallery/."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from tfos_lab.cli.paths import find_checkout, kernel_environ

ROOT = Path(__file__).resolve().parents[1]
CELL_TIMEOUT_S = 900


def main(beginnings: list[str]) -> int:
    """Return the exit code: 1 if a tutorial did not run to its end; what it had shown until then is written, too."""
    os.environ.update(kernel_environ(os.environ, find_checkout()))
    folder = ROOT / "gallery"
    folder.mkdir(exist_ok=True)
    failed = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if beginnings and not path.name.startswith(tuple(beginnings)):
            continue
        notebook, began_s = nbformat.read(path, as_version=4), time.monotonic()
        try:
            NotebookClient(
                notebook, timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": str(path.parent)}}
            ).execute()
        except Exception as error:  # noqa: BLE001 - whatever a cell raises; the other tutorials are executed, too
            failed.append(f"{path.name}: {error}")
        nbformat.write(notebook, folder / path.name)
        (folder / f"{path.stem}.html").write_text(HTMLExporter().from_notebook_node(notebook)[0], "utf-8")
        print(f"gallery/{path.stem}.html ({time.monotonic() - began_s:.0f} s)", flush=True)
    print(*failed, sep="\n", end="" if not failed else "\n", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
