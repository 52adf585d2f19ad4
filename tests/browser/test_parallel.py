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
# With this seed, trial 0 gets x = 0, and so on. Trials 3 and 0 are cut; 2 is best first, and 1 in the end. Trial 1
# reports when they are, since among three only one would go on.
BEST_FIRST = f"""
def improve(args, ctx):
    import time
    from pathlib import Path
    here = Path(ctx.working_dir)
    while args["x"] == 1 and not (here / "two are cut").exists():
        time.sleep(0.05)
    while not (here / "search on").exists():
        ctx.report(step=1, total_steps=3, loss=[9.0, 2.0, 0.5, 4.0][args["x"]])
        time.sleep(0.05)
    if args["x"] == 1:
        ctx.report(step=3, total_steps=3, loss=0.25)

tfos_lab.search(
    improve, {{"x": range(4)}}, strategy="halving", seed=6, name="best", slots=4, local="processes",
    env={QUICK_ENV},
)
"""
CELLS = {"search": SEARCH, "results": "from pathlib import Path; print(list(found)[:3], len(found.failures))",
         "endless": ENDLESS, "best first": "import tfos_lab" + BEST_FIRST}  # fmt: skip


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
    rows = output.locator("tbody tr:not(.tfos-detail)")
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


def test_a_search_shows_the_best_trial_first(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.start_cell(3)
    output = notebook.output(3)
    facts = output.locator(".tfos-facts").first
    expect(facts).to_contain_text("0 of 4 done, 2 stopped early, 2 running · best loss 0.5 (trial 2: x=2)")
    (rig.notebooks / "two are cut").touch()
    rows = output.locator("tbody tr")
    expect(output.locator("tbody .tfos-node-link")).to_have_text(["trial 2", "trial 1", "trial 3", "trial 0"])
    expect(output.locator("thead")).to_contain_text("Best loss")
    expect(rows.nth(3)).to_contain_text("stopped early")
    assert rows.evaluate_all("rows => rows.map((row) => row.className)") == [f"tfos-hue{n}" for n in (2, 1, 3, 0)]
    notebook.screenshot("search-live", output)
    (rig.notebooks / "search on").touch()
    notebook.wait_for_end(3)
    expect(output.locator(".tfos-static .tfos-facts").first).to_contain_text("2 of 4 done, 2 stopped early")
    expect(output.locator(".tfos-static tbody tr").first).to_contain_text("trial 1")
    expect(output.locator(".tfos-static tbody tr").first).to_have_class("tfos-hue1")
    notebook.screenshot("search-ended", output)
