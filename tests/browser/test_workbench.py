"""TensorBoard under a cell, and JupyterLab's panel, in a real JupyterLab behind a path such as a hub gives it."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Frame, FrameLocator, expect

from tests.support.eventually import eventually
from tests.support.jupyter_rig import JupyterRig, Notebook

pytestmark = pytest.mark.browser

expect.set_options(timeout=60_000)

TRAIN = """%%tfos cluster_size=2 name=mnist tensorboard local=processes env=QUICK_ENV
if ctx.is_chief:
    write_events(ctx.log_dir, loss=[1 / (i + 1) for i in range(30)],
                 accuracy=[i / 30 for i in range(30)])
ctx.report(step=1, loss=0.5)
threading.Event().wait(600)"""

CELLS = {
    "load": """%load_ext tfos_lab
import threading
from tests.support.quick import QUICK_ENV
from tests.support.unix_http import write_events""",
    "train": TRAIN,
    "again": "%tfos tensorboard mnist",
}


@pytest.fixture(scope="module")
def notebook(rig: JupyterRig) -> Notebook:
    opened = rig.open_notebook("workbench.ipynb", CELLS)
    opened.run_cell("load")
    opened.start_cell("train")
    return opened


def tensorboard_below(notebook: Notebook, name: str) -> FrameLocator:
    return notebook.output(name).frame_locator("iframe[title='TensorBoard of mnist']")


def page_below(notebook: Notebook) -> Frame:
    """The page in the cell's frame, as it is now: JupyterLab loads it anew when the notebook comes back to sight."""
    first = tensorboard_below(notebook, "train").locator("card-view").first
    expect(first).to_be_visible()
    frame = notebook.output("train").locator("iframe").element_handle().content_frame()
    assert frame is not None
    return frame


def tensorboard_tab(notebook: Notebook) -> FrameLocator:
    return notebook.page.frame_locator("#jp-main-dock-panel .jp-IFrame iframe")


def test_scalars_are_drawn_below_the_cell_that_blocks(notebook: Notebook) -> None:
    tensorboard = tensorboard_below(notebook, "train")
    expect(tensorboard.locator("card-view").first).to_be_visible()
    expect(tensorboard.locator("body")).to_contain_text("accuracy")
    expect(tensorboard.locator("line-chart").first).to_be_visible()
    notebook.output("train").locator("iframe").scroll_into_view_if_needed()


def test_the_header_of_the_cell_opens_tensorboard_in_a_tab_of_the_lab(notebook: Notebook) -> None:
    top = notebook.output("train").locator(".tfos-top")
    top.get_by_role("link", name="TensorBoard").click()
    expect(tensorboard_tab(notebook).locator("card-view").first).to_be_visible()
    assert len(notebook.page.context.pages) == 1
    notebook.page.locator("#jp-main-dock-panel .lm-TabBar-tab", has_text="TensorBoard: mnist").locator(
        ".lm-TabBar-tabCloseIcon"
    ).click()
    expect(notebook.page.locator("#jp-main-dock-panel .jp-IFrame")).to_have_count(0)


def test_its_pages_cannot_act_as_the_user(notebook: Notebook, rig: JupyterRig) -> None:
    frame = page_below(notebook)
    assert frame.evaluate("self.origin") == "null"
    asked = "(url) => fetch(url, {credentials: 'include'}).then((answer) => answer.status, String)"
    assert "TypeError" in frame.evaluate(asked, f"{rig.url}api/contents")
    assert frame.evaluate("() => { try { return parent.document.title; } catch (error) { return error.name; } }") == (
        "SecurityError"
    )
    assert rig.token not in frame.url


def saves_its_layout(rig: JupyterRig) -> bool:
    """Whether JupyterLab has saved its layout: the open panel and the tab of TensorBoard."""
    files = list((rig.notebooks.parent / "workspaces").rglob("*.jupyterlab-workspace"))
    saved = [json.loads(file.read_text())["data"]["layout-restorer:data"] for file in files]
    return any(
        one["left"]["current"] == "tfos-lab-clusters" and "tensorboard" in json.dumps(one["main"]) for one in saved
    )


def test_the_panel_opens_tensorboard_in_a_tab(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.save()
    notebook.page.get_by_role("tab", name="Clusters").click()
    card = notebook.panel.locator('[aria-label="Running clusters"] li')
    expect(card).to_contain_text("mnist")
    expect(card).to_contain_text("2/2 nodes")
    card.get_by_role("button", name="TensorBoard of mnist").click()
    expect(tensorboard_tab(notebook).locator("line-chart").first).to_be_visible()
    eventually(lambda: saves_its_layout(rig))


def test_the_panel_stops_a_cluster_after_a_reload_while_the_cell_blocks(notebook: Notebook) -> None:
    notebook.page.reload()
    expect(tensorboard_tab(notebook).locator("line-chart").first).to_be_attached()
    card = notebook.panel.locator('[aria-label="Running clusters"] li')
    expect(card).to_contain_text("running")
    card.get_by_role("button", name="Stop mnist").click()
    expect(card).to_have_count(0)
    expect(notebook.panel.get_by_text("No cluster runs")).to_be_visible()


def test_a_run_that_has_ended_is_shown_again(notebook: Notebook) -> None:
    notebook.page.get_by_role("tab", name="workbench.ipynb").click()
    notebook.wait_until_ready()
    expect(tensorboard_below(notebook, "train").locator("line-chart").first).to_be_attached()
    notebook.run_cell("again")
    expect(tensorboard_below(notebook, "again").locator("card-view").first).to_be_visible()
    assert notebook.errors == []
