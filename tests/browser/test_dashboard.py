"""The output of a cell in a real JupyterLab, in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.support.jupyter_rig import JupyterRig, Notebook
from tests.support.lazy import Lazy
from tests.support.log_stream import stream_cells, watch_stream
from tests.support.quick import QUICK_ENV, quick_cell

nbformat = Lazy("nbformat")

pytestmark = pytest.mark.browser

# On a busy machine everything takes long; only what never comes should fail.
expect.set_options(timeout=60_000)

STREAM_S = 3


# The nodes' losses differ: those of nodes that agree would be one line.
ENDLESS = """\
import itertools, time
for step in itertools.count(1):
    print("of the first", step, "<script>document.title = 'owned'</script> is text", flush=True)
    ctx.report(step=step, loss=(1 + ctx.worker_num) / step)
    if ctx.is_chief and step in (1, 21, 41):
        ctx.show([[0.0, 1.0], [1.0, 0.0]], "digit <b>", step=step)
    time.sleep(0.05)
"""

# The worker fails when there is a file `go`.
FAILING = """\
import itertools, time
from pathlib import Path
for step in itertools.count(1):
    ctx.report(step=step, loss=1 / step)
    time.sleep(0.05)
    if not ctx.is_chief and go.exists():
        raise ValueError("label 11 is outside the 10 classes")
"""

# Twelve runs, of which three fail and three wait until they are stopped; then what has returned.
PARALLEL = f"""
import tfos_lab

def train(args, ctx):
    import threading
    if args["units"] == 48:
        raise ValueError("48 units do not divide 32 inputs")
    if args["units"] == 64:
        threading.Event().wait()
    ctx.report(step=10, total_steps=10, loss=args["lr"])
    return args["units"]

grid = [{{"lr": lr, "units": units}} for units in (16, 32, 48, 64) for lr in (0.1, 0.03, 0.01)]
tfos_lab.parallel(train, grid, name="search", slots=4, local="processes", env={QUICK_ENV})
"""

# One notebook and one kernel for all tests; each runs cells of its own.
CELLS = {
    "load": "%load_ext tfos_lab\nfrom pathlib import Path\ngo = Path('go').absolute()",
    "endless": quick_cell("name=endless", ENDLESS),
    **dict(zip(("mark", "stream", "measure"), stream_cells(2500, STREAM_S), strict=True)),
    "waiting": quick_cell("name=waiting", "import threading\nprint('one\\ntwo')\nthreading.Event().wait(600)"),
    "fail": quick_cell("name=titanic", FAILING),
    "first": quick_cell("name=first background", ENDLESS),
    "second": quick_cell("name=second background", "raise ValueError('of the second')"),
    "status": "%tfos",
    "parallel": PARALLEL,
}


@pytest.fixture(scope="module")
def opened(rig: JupyterRig) -> Notebook:
    notebook = rig.open_notebook("dashboard.ipynb", CELLS)
    notebook.run_cell("load")
    return notebook


@pytest.fixture
def notebook(opened: Notebook) -> Iterator[Notebook]:
    yield opened
    opened.interrupt()
    opened.wait_until_ready()
    assert opened.errors == []


def row(notebook: Notebook, node: str) -> Locator:
    return notebook.live.get_by_role("row").filter(has=notebook.page.get_by_role("button", name=node, exact=True))


def has_static_picture(notebook: Notebook, name: str) -> Locator:
    expect(notebook.picture(name)).to_be_visible()
    expect(notebook.live).to_have_count(0)
    return notebook.picture(name)


def test_log_text_is_text_and_stop_arrives_while_the_cell_blocks(notebook: Notebook) -> None:
    notebook.start_cell("endless")
    notebook.in_state("running")
    panel = notebook.live.get_by_role("region", name="Log")
    expect(panel).to_contain_text("<script>document.title = 'owned'</script> is text")
    assert "owned" not in notebook.page.title()
    # Jupyter has shortcuts of its own on the arrow keys; in here they walk the tabs.
    notebook.page.get_by_role("radio", name="chief:0").focus()
    notebook.page.keyboard.press("ArrowRight")
    expect(notebook.page.get_by_role("radio", name="worker:0")).to_be_focused()
    expect(notebook.live.locator(".tfos-chart")).to_have_count(1)
    expect(row(notebook, "worker:0")).to_contain_text(re.compile(r"1\d\s*0\."))
    notebook.live.get_by_role("radio", name="All").click()
    digit = notebook.live.get_by_role("img", name="digit <b>, step")
    expect(digit).to_be_visible()
    assert digit.evaluate("(image) => image.naturalWidth") == 2
    notebook.live.get_by_label("Log axis").check()
    expect(notebook.live.locator('[data-look="log"]')).to_be_visible()
    expect(notebook.live.get_by_text("2 earlier steps")).to_be_visible()
    expect(notebook.live.get_by_label("Log axis")).to_be_checked()
    notebook.page.get_by_role("button", name="Stop endless").click()
    notebook.wait_for_end("endless", timeout_s=60)
    picture = has_static_picture(notebook, "endless")
    expect(picture.locator(".tfos-header")).to_contain_text("stopped")
    assert picture.get_by_role("img", name="digit <b>").evaluate("(image) => image.naturalWidth") == 2
    picture.get_by_label("By time").check()
    expect(picture.locator('[data-look="time"]')).to_be_visible()
    expect(notebook.output("endless")).to_contain_text("KeyboardInterrupt")


def test_ten_thousand_lines_a_second_of_real_nodes_arrive_whole(notebook: Notebook) -> None:
    seen = watch_stream(notebook, notebook.index("mark"), STREAM_S)
    assert seen.whole == dict.fromkeys(["chief:0", "worker:0", "worker:1", "worker:2"], True)
    assert "owned" not in notebook.page.title()
    picture = has_static_picture(notebook, "stream")
    expect(picture).to_contain_text("4/4 nodes done")
    expect(picture.locator(".tfos-metrics").first.locator(".tfos-line path")).to_have_count(4)
    picture.get_by_text("worker:1 last").click()
    expect(picture).to_contain_text(f"worker:1 line {STREAM_S * 2500 - 1:07d} <b>a</b><script>")


def test_stacks_and_log_of_a_real_node_come_while_the_cell_blocks(notebook: Notebook) -> None:
    notebook.start_cell("waiting")
    expect(row(notebook, "worker:0")).to_contain_text("running")
    notebook.live.get_by_label("Details of worker:0").click()
    notebook.live.get_by_role("button", name="Stacks of worker:0").click()
    stacks = notebook.live.locator(".tfos-stacks")
    expect(stacks).to_contain_text("threading.Event().wait(600)")
    expect(row(notebook, "worker:0").locator("td", has_text="MB")).to_have_count(1)
    notebook.live.get_by_role("radio", name="worker:0").click()
    with notebook.page.expect_download() as download:
        notebook.live.get_by_role("link", name="Download").click()
    assert download.value.path().read_text() == "one\ntwo\n"
    notebook.page.get_by_role("button", name="Stop waiting").click()
    notebook.wait_for_end("waiting")
    picture = has_static_picture(notebook, "waiting")
    expect(picture.locator(".tfos-stacks summary")).to_contain_text("Stacks of worker:0 at")


def test_independent_runs_have_a_row_each_and_are_stopped_by_one_click(notebook: Notebook) -> None:
    notebook.start_cell("parallel")
    output = notebook.output("parallel")
    expect(output.locator(".tfos-facts").first).to_contain_text("6 of 12 done, 3 failed, 3 running")
    rows = output.locator("tbody tr:not([hidden], .tfos-detail)")
    expect(rows).to_have_count(12)
    expect(rows.nth(11)).to_contain_text("lr=0.01, units=64")
    expect(output.locator(".tfos-detail").first).to_contain_text("ValueError: 48 units do not divide 32 inputs")
    notebook.page.get_by_role("button", name="Stop search").click()
    notebook.wait_for_end("parallel")
    expect(output.locator(".tfos-static .tfos-facts").first).to_contain_text("6 of 12 done, 3 failed")
    expect(output).to_contain_text("the runs of 'search' are stopped; 6 of 12 had returned")


def test_a_saved_notebook_shows_the_picture_when_it_is_opened_again(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.use_dark_theme()
    notebook.start_cell("fail")
    notebook.in_state("running")
    expect(notebook.live.locator(".tfos-chart")).to_have_count(1)
    (rig.notebooks / "go").touch()
    notebook.wait_for_end("fail")
    has_static_picture(notebook, "fail")
    notebook.save()
    saved = nbformat.read(rig.notebooks / notebook.name, as_version=4)
    [output] = [one for one in saved.cells[notebook.index("fail")].outputs if one.output_type == "display_data"]
    assert set(output.data) == {"text/html", "text/plain"}
    again = rig.open_notebook(notebook.name, width=900)
    expect(has_static_picture(again, "fail")).to_contain_text("worker:0: ValueError: label 11 is outside")
    assert "model not found" not in again.page.inner_text("body")
    again.close()


def test_clusters_in_the_background_keep_to_their_own_cells(notebook: Notebook) -> None:
    notebook.run_cell("mark")
    notebook.run_cell("first")
    notebook.run_cell("second")
    failed = notebook.picture("second")
    expect(failed.locator(".tfos-header")).to_contain_text("failed")
    expect(failed.get_by_text("Why it failed").locator("..")).to_contain_text("ValueError: of the second")
    expect(notebook.live).to_have_count(1)
    notebook.in_state("running")
    expect(notebook.live.get_by_role("region", name="Log")).to_contain_text("of the first")
    expect(notebook.live.locator(".tfos-metrics").first.locator(".tfos-line path")).to_have_count(2)
    notebook.run_cell("status")
    table = notebook.output("status").get_by_role("table")
    expect(table.get_by_role("row").filter(has_text="first")).to_contain_text(re.compile(r"● running.*2/2.*loss"))
    expect(table.get_by_role("row").filter(has_text="second")).to_contain_text("✗ failed")
    for name in ("mark", "status", "second"):
        expect(notebook.output(name)).not_to_contain_text("of the first")
