"""The output of a cell in a real JupyterLab, in a real Chromium, with a cluster that is only acted.

Pictures are kept in ``tests/artefacts``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbconvert
import nbformat
import pytest
from playwright.sync_api import Locator, expect

from tests.support.jupyter_rig import ARTEFACTS, JupyterRig, Notebook

pytestmark = pytest.mark.browser

# On a busy machine everything takes long; what never comes is what fails.
expect.set_options(timeout=60_000)

WATCH = '''
from tests.support.fake_cluster import FakeCluster
from tfos_lab.jupyter.display import open_display

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

# One notebook and one kernel for all tests; each runs cells of its own.
CELLS = {
    "watch": WATCH,
    "train": "watch(steps=10)",
    "endless": "watch(scenario='forever', name='endless')",
    "flood": "watch(scenario='flood', lines_per_s=2500, flood_s=120)",
    "fail": "watch(scenario='fail', steps=12, name='titanic')",
    "reload": "watch(steps=30, speed=2)",
    "background": "cluster = FakeCluster(scenario='forever').start()\ndisplay = open_display(cluster, blocking=False)",
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
    picture = notebook.output(cell(name)).locator(".tfos-static")
    expect(picture).to_be_visible()
    expect(live(notebook)).to_have_count(0)
    return picture


def test_the_table_is_live_before_all_nodes_have_reserved(notebook: Notebook) -> None:
    notebook.start_cell(cell("train"))
    expect(row(notebook, "chief:0")).to_contain_text("reserved")
    expect(row(notebook, "worker:2")).to_contain_text("waiting")
    expect(live(notebook)).to_contain_text(re.compile(r"[1-3]/4 nodes reserved"))
    notebook.screenshot("dashboard-reserving")
    expect(row(notebook, "worker:2")).to_contain_text(re.compile(r"running\s*\d+/10"))
    expect(live(notebook).get_by_role("status")).to_have_text("mnist: running")
    expect(live(notebook).get_by_role("progressbar")).to_have_count(4)
    notebook.wait_for_end(cell("train"))
    expect(has_static_picture(notebook, "train")).to_contain_text("4/4 nodes done")


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
    notebook.screenshot("dashboard-running")
    notebook.page.get_by_role("button", name="Stop endless").click()
    notebook.wait_for_end(cell("endless"), timeout_s=10)
    expect(has_static_picture(notebook, "endless").locator(".tfos-header")).to_contain_text("stopped")
    expect(notebook.output(cell("endless"))).to_contain_text("KeyboardInterrupt")


def test_ten_thousand_lines_a_second_arrive_without_stalls(
    notebook: Notebook, record_property, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.start_cell(cell("flood"))
    panel = live(notebook).get_by_role("tabpanel")
    expect(panel).to_contain_text("earlier lines not kept here; whole files in")
    notebook.watch_frames()
    notebook.page.wait_for_timeout(4000)
    frames = sorted(notebook.frame_times_ms())
    notebook.screenshot("dashboard-flood")
    for node in ("chief:0", "worker:0", "worker:1", "worker:2"):
        notebook.page.get_by_role("tab", name=node).click()
        expect(panel).to_contain_text(f"{node} line 00")
    assert "dropped" not in panel.inner_text()
    notebook.interrupt()
    notebook.wait_for_end(cell("flood"))
    p95, longest = frames[int(len(frames) * 0.95)], frames[-1]
    record_property("p95_frame_ms", p95)
    with capsys.disabled():
        sys.stdout.write(f"\n10,000 lines/s: p95 frame {p95:.0f} ms, longest {longest:.0f} ms, {len(frames)} frames\n")
    assert longest < 5000


def test_a_saved_notebook_shows_the_picture_when_it_is_opened_again(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.use_dark_theme()
    notebook.start_cell(cell("fail"))
    in_state(notebook, "running")
    notebook.screenshot("dashboard-dark")
    notebook.wait_for_end(cell("fail"))
    has_static_picture(notebook, "fail")
    notebook.save()
    saved = nbformat.read(rig.notebooks / notebook.name, as_version=4)
    [output] = saved.cells[cell("fail")].outputs
    assert set(output.data) == {"text/html", "text/plain"}
    again = rig.open_notebook(notebook.name, width=900)
    expect(has_static_picture(again, "fail")).to_contain_text("worker:1 failed: ValueError: label 11 is outside")
    again.output(cell("fail")).get_by_text("worker:1 last").click()
    expect(again.output(cell("fail"))).to_contain_text("model.fit(dataset)")
    assert "model not found" not in again.page.inner_text("body")
    again.screenshot("static-bundle", again.output(cell("fail")))
    again.close()


def test_a_page_loaded_again_while_the_cell_blocks_ends_with_the_picture(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.start_cell(cell("reload"))
    in_state(notebook, "running")
    notebook.save()
    notebook.page.reload()
    expect(has_static_picture(notebook, "reload")).to_contain_text("4/4 nodes done")
    notebook.save()
    assert "widget-view" not in (rig.notebooks / notebook.name).read_text()


def test_a_background_cluster_lives_in_its_own_output(notebook: Notebook) -> None:
    notebook.run_cell(cell("background"))
    in_state(notebook, "running")
    notebook.run_cell(cell("print"))
    notebook.start_cell(cell("sleep"))
    notebook.page.get_by_role("button", name="Stop mnist").click()
    expect(has_static_picture(notebook, "background")).to_contain_text("stopped")
    notebook.wait_for_end(cell("sleep"))
    assert notebook.output(cell("print")).inner_text().strip() == "another cell"
    assert notebook.output(cell("sleep")).inner_text().strip() == "", "an interrupt would have hit the wrong cell"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nbconvert_s_page_is_whole_without_a_network(rig: JupyterRig, tmp_path: Path, scheme: str) -> None:
    from tests.support.fake_cluster import TRACEBACK, FakeCluster
    from tfos_lab.jupyter.static_bundle import make_bundle

    cluster = FakeCluster(name="mnist")
    for node in cluster.nodes:
        cluster.change(node, state="done", host="exec-1", step=500, total_steps=500, metrics={"loss": 0.042})
    cluster.change("worker:1", state="failed")
    cluster.write("worker:1", TRACEBACK)
    cluster.set_state("failed", "worker:1 failed: ValueError: label 11 is outside the 10 classes")
    bundle = make_bundle(cluster.view(), lambda node, lines: cluster.logs(node, tail=lines), cluster.run_dir)
    output = nbformat.v4.new_output("display_data", data=bundle)
    source = nbformat.v4.new_code_cell("%%tfos cluster_size=4\n...", outputs=[output])
    template = {"light": "lab", "dark": "basic"}[scheme]
    body, _ = nbconvert.HTMLExporter(template_name=template).from_notebook_node(
        nbformat.v4.new_notebook(cells=[source])
    )
    page = rig.new_page(color_scheme=scheme, viewport={"width": 900, "height": 500}, offline=True)
    (tmp_path / "page.html").write_text(body)
    page.goto(f"file://{tmp_path}/page.html")
    page.get_by_text("worker:1 last").click()
    expect(page.locator(".tfos-static")).to_contain_text("ValueError")
    page.locator(".tfos-static").screenshot(path=ARTEFACTS / f"nbconvert-{scheme}.png")
    text, ground = page.locator(".tfos-static").evaluate(
        "(box) => [getComputedStyle(box).color, getComputedStyle(box).backgroundColor]"
    )
    assert abs(lightness(text) - lightness(ground)) > 0.5
    page.close()


def lightness(colour: str) -> float:
    red, green, blue = json.loads("[" + re.sub(r"rgba?\((.*?)\)", r"\1", colour) + "]")[:3]
    return (0.3 * red + 0.59 * green + 0.11 * blue) / 255
