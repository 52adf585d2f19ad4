"""Takes the pictures of the tutorials anew, or those that are named, in JupyterLab with the real TensorFlow.

Each tutorial runs, cell by cell, until its pictures are taken. Look at them: the texts beside them say what they show.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.jupyter_rig import JupyterRig, Notebook  # noqa: E402 - tests are no installed package

NOTEBOOKS = ROOT / "notebooks"
IMAGES = NOTEBOOKS / "images"
CELL_TIMEOUT_S = 300


@dataclass(frozen=True)
class Picture:
    """A cell, its output, its card or the page, when the cell's output shows ``seen``, or once the cell has ended."""

    name: str
    tutorial: str
    cell: str
    seen: str = ""
    what: str = "output"
    width: int = 1060


PICTURES = (
    Picture("running", "01", "train-cell", ".tfos-live >> text=Epoch 3/5", "cell", width=1200),
    Picture("feeding", "02", "train-cell", ".tfos-live .tfos-feed >> text=rows fed"),
    Picture("files", "03", "records-cell"),
    Picture("slow", "04", "slow-cell", ".tfos-live .tfos-verdict >> text=in Python"),
    Picture("failed", "05", "exception", what="cell"),
    Picture("hangs", "05", "hang-cell", ".tfos-live .tfos-hung"),
    Picture("search", "08", "search"),
    Picture("panel", "10", "short-cell", what="page", width=960),
    Picture("script", "11", "script-run", what="card"),
    Picture("native", "12", "native-cell", what="cell"),
)


def main(names: list[str]) -> int:
    """Take the pictures; return the exit code."""
    if unknown := {*names} - {picture.name for picture in PICTURES}:
        print(f"No such picture: {', '.join(sorted(unknown))}. There are {', '.join(one.name for one in PICTURES)}.")
        return 2
    wanted = [picture for picture in PICTURES if not names or picture.name in names]
    with (
        tempfile.TemporaryDirectory(prefix="pictures-") as folder,
        JupyterRig(Path(folder), env={"PYTHONPATH": str(ROOT)}) as rig,
    ):
        for tutorial, pictures in itertools.groupby(wanted, lambda picture: picture.tutorial):
            take(rig, next(NOTEBOOKS.glob(f"{tutorial}_*.ipynb")), {picture.cell: picture for picture in pictures})
            rig.clear()
    return 0


def take(rig: JupyterRig, path: Path, left: dict[str, Picture]) -> None:
    """Run a tutorial as far as the pictures of its cells need it."""
    shutil.copy(path, rig.notebooks)
    shutil.copytree(IMAGES, rig.notebooks / IMAGES.name)
    notebook = rig.open_notebook(path.name, width=max(picture.width for picture in left.values()), height=1000)
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type != "code":
            continue
        notebook.start_cell(number)
        picture = left.pop(cell.id, None)
        if picture is not None and picture.seen:
            notebook.output(number).locator(picture.seen).first.wait_for(timeout=CELL_TIMEOUT_S * 1000)
            shoot(notebook, number, picture)
        if not left and picture is not None and picture.seen:
            break
        notebook.wait_for_end(number, timeout_s=CELL_TIMEOUT_S)
        if picture is not None and not picture.seen:
            shoot(notebook, number, picture)
        if not left:
            break
    notebook.close()


def shoot(notebook: Notebook, number: int, picture: Picture) -> None:
    """Take a picture of what is there now."""
    if picture.what == "page":
        notebook.command("tfos-lab:show-clusters")
    notebook.command("notebook:move-cursor-down")  # the buttons of the cell that is chosen would be in the picture
    time.sleep(2)  # what comes with it has been drawn by then
    shown = {
        "cell": notebook.cell(number),
        "output": notebook.output(number),
        "card": notebook.picture(number),
        "page": notebook.page,
    }[picture.what]
    path = IMAGES / f"{picture.name}.png"
    shown.screenshot(path=path)
    print(path.relative_to(ROOT), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
