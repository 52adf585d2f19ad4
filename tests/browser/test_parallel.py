"""`tfos_lab.parallel` in a plain cell of a real JupyterLab: a live table with a row for each run, then a picture.

Pictures are kept in ``tests/artefacts``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.support.jupyter_rig import JupyterRig, Notebook
from tests.support.quick import QUICK_ENV

pytestmark = pytest.mark.browser

expect.set_options(timeout=60_000)

SEARCH = f"""
import tfos_lab

def train(args, ctx):
    import time
    from pathlib import Path
    if args["units"] == 48:
        raise ValueError("48 units do not divide 32 inputs")
    for step in range(1, 11):
        ctx.report(step=step, total_steps=10, loss=1 / (step * args["lr"] * 100))
        time.sleep(0.05)
    print("trained with", args)
    while args["units"] == 64 and not Path(ctx.working_dir, "go on").exists():
        time.sleep(0.05)
    return args["units"]

grid = [{{"lr": lr, "units": units}} for units in (16, 32, 48, 64) for lr in (0.1, 0.03, 0.01)]
found = tfos_lab.parallel(
    train, grid, name="search", slots=4, raise_failures=False, local="processes", env={QUICK_ENV}
)
"""
ENDLESS = f"""
tfos_lab.parallel(
    lambda: __import__("time").sleep(600), range(5), slots=2, name="endless", local="processes", env={QUICK_ENV}
)
"""
CELLS = {
    "search": SEARCH,
    "results": "from pathlib import Path; print(list(found)[:3], len(found.failures))",
    "endless": ENDLESS,
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterRig]:
    with JupyterRig(tmp_path_factory.mktemp("jupyter")) as made:
        yield made


@pytest.fixture
def notebook(rig: JupyterRig) -> Iterator[Notebook]:
    notebook = rig.open_notebook("parallel.ipynb", list(CELLS.values()))
    yield notebook
    assert notebook.errors == []
    notebook.close()


def test_runs_are_shown_live_and_stay_as_a_picture(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.start_cell(0)
    output = notebook.output(0)
    expect(output.locator(".tfos-facts").first).to_contain_text("6 of 12 done, 3 failed, 3 running")
    rows = output.locator("tbody tr:not([hidden], .tfos-detail)")
    expect(rows).to_have_count(12)
    expect(rows.nth(11)).to_contain_text("lr=0.01, units=64")
    expect(output.locator(".tfos-detail").first).to_contain_text("ValueError: 48 units do not divide 32 inputs")
    notebook.screenshot("parallel-live", output)
    (rig.notebooks / "go on").touch()
    notebook.wait_for_end(0)
    expect(output.locator(".tfos-static .tfos-facts").first).to_contain_text("9 of 12 done, 3 failed")
    notebook.screenshot("parallel-ended", output)
    notebook.run_cell(1)
    expect(notebook.output(1)).to_contain_text("[16, 16, 16] 3")
    notebook.start_cell(2)
    expect(notebook.output(2).locator(".tfos-facts").first).to_contain_text("0 of 5 done, 2 running")
    notebook.output(2).get_by_role("button", name=re.compile("Stop endless")).click()
    notebook.wait_for_end(2)
    expect(notebook.output(2)).to_contain_text("KeyboardInterrupt")
    expect(notebook.output(2)).to_contain_text("the runs of 'endless' are stopped; 0 of 5 had returned")
    notebook.screenshot("parallel-stopped", notebook.output(2))
