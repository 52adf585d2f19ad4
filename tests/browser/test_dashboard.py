"""The output of a cell in a real JupyterLab, in a real Chromium, with a fake cluster.

Pictures are kept in ``tests/artefacts``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from tests.support.jupyter_rig import ARTEFACTS, JupyterRig, Notebook
from tests.support.log_stream import stream_cells, watch_stream
from tests.support.quick import QUICK_ENV

pytestmark = pytest.mark.browser

# On a busy machine everything takes long; only what never comes should fail.
expect.set_options(timeout=60_000)

WATCH = '''
%load_ext tfos_lab
from pathlib import Path
from tests.support.fake_cluster import FakeCluster
from tfos_lab.jupyter.display import open_display

go = Path("go").absolute()

def watch(**options):
    """Wait for a cluster as a %%tfos cell does."""
    cluster = FakeCluster(**options).start()
    with open_display(cluster) as display:
        try:
            while not cluster.wait(0.05):
                display.poll()
        except KeyboardInterrupt:
            cluster.stop()
            cluster.wait(5)
            raise
'''

STREAM_S = 10


def quick_cell(options: str, body: str) -> str:
    """Return a real cell for two quick nodes."""
    return f"%%tfos {options} cluster_size=2 local=processes env={QUICK_ENV}\n{body}"


ENDLESS = """\
import itertools, time
for step in itertools.count(1):
    print("of the first", step, flush=True)
    ctx.report(step=step, loss=1 / step)
    time.sleep(0.05)
"""

# It ignores SIGTERM: Stop must not wait for the grace of the cluster.
STUBBORN = """\
import signal, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("here", flush=True)
threading.Event().wait(600)
"""

# One notebook and one kernel for all tests; each runs cells of its own.
CELLS = {
    "watch": WATCH,
    "train": "watch(steps=10, gate=go)",
    "endless": "watch(scenario='forever', name='endless')",
    "flood": "watch(scenario='flood', lines_per_s=2500, flood_s=120)",
    **dict(zip(("mark", "stream", "measure"), stream_cells(2500, STREAM_S), strict=True)),
    "stubborn": quick_cell("name=stubborn", STUBBORN),
    "waiting": quick_cell("name=waiting", "import threading\nthreading.Event().wait(600)"),
    "fail": "watch(scenario='fail', steps=24, name='titanic', gate=go)",
    "reload": "watch(steps=30, gate=go)",
    "background": "cluster = FakeCluster(scenario='forever').start()\ndisplay = open_display(cluster, blocking=False)",
    "first": quick_cell("name=first background", ENDLESS),
    "second": quick_cell("name=second background", "raise ValueError('of the second')"),
    "status": "%tfos",
    "refused": quick_cell("name=first", "1"),
    "replaced": quick_cell("name=first background replace", "print('of the new one')"),
    "print": "print('another cell')",
    "sleep": "import time; time.sleep(2)",
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterRig]:
    with JupyterRig(tmp_path_factory.mktemp("jupyter")) as made:
        yield made


@pytest.fixture(scope="module")
def opened(rig: JupyterRig) -> Notebook:
    notebook = rig.open_notebook("dashboard.ipynb", list(CELLS.values()))
    notebook.run_cell(cell("watch"))
    return notebook


@pytest.fixture
def notebook(opened: Notebook) -> Iterator[Notebook]:
    yield opened
    opened.interrupt()
    opened.wait_until_ready()
    assert opened.errors == []


def cell(name: str) -> int:
    return list(CELLS).index(name)


def live(notebook: Notebook) -> Locator:
    return notebook.page.locator(".tfos-live")


def row(notebook: Notebook, node: str) -> Locator:
    return live(notebook).get_by_role("row").filter(has=notebook.page.get_by_role("button", name=node, exact=True))


def in_state(notebook: Notebook, state: str) -> None:
    expect(live(notebook).locator(".tfos-header .tfos-state")).to_have_attribute("data-state", state)


def has_static_picture(notebook: Notebook, name: str) -> Locator:
    picture = has_static_picture_of(notebook, name)
    expect(live(notebook)).to_have_count(0)
    return picture


def has_static_picture_of(notebook: Notebook, name: str) -> Locator:
    picture = notebook.output(cell(name)).locator(".tfos-static")
    expect(picture).to_be_visible()
    return picture


@pytest.fixture
def go(rig: JupyterRig) -> Iterator[Path]:
    """The gate at which fake clusters wait for what a page shows, however late it is."""
    file = rig.notebooks / "go"
    yield file
    file.unlink(missing_ok=True)


def test_the_table_is_live_before_all_nodes_have_reserved(notebook: Notebook, go: Path) -> None:
    notebook.start_cell(cell("train"))
    expect(row(notebook, "chief:0")).to_contain_text("reserved")
    expect(row(notebook, "worker:2")).to_contain_text("waiting")
    expect(live(notebook)).to_contain_text("1/4 nodes reserved")
    notebook.screenshot("dashboard-reserving")
    go.touch()
    expect(row(notebook, "worker:2")).to_contain_text(re.compile(r"running\s*\d+/10"))
    expect(live(notebook).get_by_role("status")).to_have_text("mnist: running")
    expect(live(notebook).get_by_role("table").get_by_role("progressbar")).to_have_count(4)
    go.unlink()
    notebook.wait_for_end(cell("train"))
    expect(has_static_picture(notebook, "train")).to_contain_text("4/4 nodes done")
    notebook.screenshot("cell-ended-light", notebook.cell(cell("train")))


def test_log_text_is_text_and_stop_arrives_while_the_cell_blocks(notebook: Notebook) -> None:
    notebook.start_cell(cell("endless"))
    in_state(notebook, "running")
    panel = live(notebook).get_by_role("tabpanel")
    expect(panel).to_contain_text("worker:1 joins")
    expect(panel).to_contain_text("<script>document.title = 'owned'</script> is text")
    assert "owned" not in notebook.page.title()
    # Jupyter has shortcuts of its own on the arrow keys; in here they walk the tabs.
    notebook.page.get_by_role("tab", name="chief:0").focus()
    notebook.page.keyboard.press("ArrowRight")
    expect(notebook.page.get_by_role("tab", name="worker:0")).to_be_focused()
    expect(panel).not_to_contain_text("worker:1 joins")
    expect(live(notebook).locator(".tfos-chart")).to_have_count(2)
    expect(row(notebook, "worker:2")).to_contain_text(re.compile(r"1\d\s*0\."))
    live(notebook).get_by_role("tab", name="All").click()
    notebook.screenshot("cell-running-light", notebook.cell(cell("endless")))
    notebook.page.get_by_role("button", name="Stop endless").click()
    notebook.wait_for_end(cell("endless"), timeout_s=10)
    expect(has_static_picture(notebook, "endless").locator(".tfos-header")).to_contain_text("stopped")
    expect(notebook.output(cell("endless"))).to_contain_text("KeyboardInterrupt")


def test_ten_thousand_lines_a_second_of_real_nodes_arrive_whole(notebook: Notebook) -> None:
    seen = watch_stream(notebook, cell("mark"), STREAM_S)
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    (ARTEFACTS / "log-stream.json").write_text(json.dumps(asdict(seen), indent=1) + "\n")
    assert seen.whole == dict.fromkeys(["chief:0", "worker:0", "worker:1", "worker:2"], True)
    assert "owned" not in notebook.page.title()
    picture = has_static_picture(notebook, "stream")
    expect(picture).to_contain_text("4/4 nodes done")
    expect(picture.locator(".tfos-line path")).to_have_count(4)
    picture.get_by_text("worker:1 last").click()
    expect(picture).to_contain_text(f"worker:1 line {STREAM_S * 2500 - 1:07d} <b>a</b><script>")


def test_stacks_of_a_real_node_come_while_the_cell_blocks_and_stay_in_the_picture(notebook: Notebook) -> None:
    notebook.start_cell(cell("waiting"))
    expect(row(notebook, "worker:0")).to_contain_text("running")
    notebook.page.get_by_label("Details of worker:0").click()
    notebook.page.get_by_role("button", name="Stacks of worker:0").click()
    stacks = live(notebook).locator(".tfos-stacks")
    expect(stacks).to_contain_text("threading.Event().wait(600)")
    expect(row(notebook, "worker:0").locator("[data-key=memory]")).to_contain_text("MB")
    notebook.page.get_by_role("button", name="Stop waiting").click()
    notebook.wait_for_end(cell("waiting"))
    picture = has_static_picture(notebook, "waiting")
    expect(picture.locator(".tfos-stacks summary")).to_contain_text("Stacks of worker:0 at")


def test_the_live_log_is_followed_without_a_gap_while_it_floods(notebook: Notebook) -> None:
    notebook.start_cell(cell("flood"))
    panel = live(notebook).get_by_role("tabpanel")
    expect(panel).to_contain_text("earlier lines not kept here; whole files in")
    for node in ("chief:0", "worker:0", "worker:1", "worker:2"):
        notebook.page.get_by_role("tab", name=node).click()
        expect(panel).to_contain_text(f"{node} line 0")
    assert "dropped" not in panel.inner_text()
    with notebook.page.expect_download() as download:
        live(notebook).get_by_role("button", name="Download").click()
    lines = Path(download.value.path()).read_text().splitlines()
    numbers = [int(line.split()[2]) for line in lines if " line " in line]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 5000, "the page itself keeps no more of a node"
    notebook.interrupt()
    notebook.wait_for_end(cell("flood"))


def test_a_saved_notebook_shows_the_picture_when_it_is_opened_again(
    notebook: Notebook, rig: JupyterRig, go: Path
) -> None:
    notebook.use_dark_theme()
    go.touch()
    notebook.start_cell(cell("fail"))
    in_state(notebook, "running")
    expect(live(notebook).locator(".tfos-chart")).to_have_count(2)
    notebook.screenshot("cell-running-dark", notebook.cell(cell("fail")))
    go.unlink()
    notebook.wait_for_end(cell("fail"))
    has_static_picture(notebook, "fail")
    notebook.screenshot("cell-ended-dark", notebook.cell(cell("fail")))
    notebook.save()
    saved = nbformat.read(rig.notebooks / notebook.name, as_version=4)
    [output] = saved.cells[cell("fail")].outputs
    assert set(output.data) == {"text/html", "text/plain"}
    again = rig.open_notebook(notebook.name, width=900)
    expect(has_static_picture(again, "fail")).to_contain_text("worker:1 failed: ValueError: label 11 is outside")
    expect(again.output(cell("fail")).locator(".tfos-said").get_by_text("model.fit(dataset)")).to_be_visible()
    assert "model not found" not in again.page.inner_text("body")
    again.screenshot("static-bundle", again.output(cell("fail")))
    again.close()


def test_clusters_in_the_background_keep_to_their_own_cells(notebook: Notebook) -> None:
    notebook.run_cell(cell("mark"))
    notebook.run_cell(cell("first"))
    notebook.run_cell(cell("second"))
    failed = has_static_picture_of(notebook, "second")
    expect(failed.locator(".tfos-header")).to_contain_text("failed")
    expect(failed.get_by_text("Why it failed").locator("..")).to_contain_text("ValueError: of the second")
    expect(live(notebook)).to_have_count(1)
    in_state(notebook, "running")
    expect(live(notebook).get_by_role("tabpanel")).to_contain_text("of the first")
    expect(live(notebook).locator(".tfos-line path")).to_have_count(2)
    notebook.run_cell(cell("status"))
    table = notebook.output(cell("status")).get_by_role("table")
    expect(table.get_by_role("row").filter(has_text="first")).to_contain_text(re.compile(r"● running.*2/2.*loss"))
    expect(table.get_by_role("row").filter(has_text="second")).to_contain_text("✗ failed")
    notebook.run_cell(cell("refused"))
    expect(notebook.output(cell("refused"))).to_contain_text("the cluster 'first' is still running")
    notebook.run_cell(cell("replaced"))
    expect(has_static_picture_of(notebook, "first").locator(".tfos-header")).to_contain_text("stopped")
    expect(has_static_picture_of(notebook, "replaced")).to_contain_text("2/2 nodes done")
    for name in ("mark", "status", "refused", "second"):
        expect(notebook.output(cell(name))).not_to_contain_text("of the first")
