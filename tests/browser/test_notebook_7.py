"""A cell that runs on a cluster, and the panel of clusters, in a real Notebook 7."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.support.jupyter_rig import JupyterRig, Notebook

pytestmark = pytest.mark.browser

expect.set_options(timeout=60_000)

# They are raised by Notebook 7.6 while its page loads, without our extension too; the second one as its file browser
# opens the page's path, where that comes before the command.
NOT_OURS = {"Cannot read properties of undefined (reading 'schema')", "Command 'filebrowser:open-path' not registered."}

CELLS = {
    "load": """%load_ext tfos_lab
import threading
from tests.support.quick import QUICK_ENV
from tests.support.unix_http import write_events""",
    "train": """%%tfos cluster_size=2 name=mnist tensorboard local=processes env=QUICK_ENV
if ctx.is_chief:
    write_events(ctx.log_dir, loss=[1 / (i + 1) for i in range(30)])
ctx.report(step=1, loss=0.5)
threading.Event().wait(600)""",
}


@pytest.fixture(scope="module")
def notebook(rig: JupyterRig) -> Notebook:
    opened = rig.open_in_notebook_7("notebook-7.ipynb", CELLS, width=1300)
    opened.run_cell("load")
    opened.start_cell("train")
    return opened


def card(notebook: Notebook) -> Locator:
    return notebook.page.locator('#tfos-lab-clusters [aria-label="Running clusters"] li')


def test_the_cell_shows_the_table_of_its_nodes(notebook: Notebook) -> None:
    assert notebook.page.evaluate("() => window.jupyterapp.name") == "Jupyter Notebook"
    live = notebook.output("train").locator(".tfos-live")
    expect(live.locator(".tfos-header .tfos-state")).to_have_attribute("data-state", "running")
    rows = live.get_by_role("table").get_by_role("row")
    for node in ("chief:0", "worker:0"):
        row = rows.filter(has=notebook.page.get_by_role("button", name=node, exact=True))
        expect(row).to_contain_text("running")
        expect(row).to_contain_text("0.5")


def test_the_panel_of_the_view_menu_opens_tensorboard_in_a_window(notebook: Notebook) -> None:
    notebook.page.get_by_role("menuitem", name="View", exact=True).click()
    notebook.page.get_by_role("menuitem", name="Show Clusters").click()
    expect(card(notebook)).to_contain_text("mnist")
    expect(card(notebook)).to_contain_text("2/2 nodes")
    with notebook.page.expect_popup() as popup:
        card(notebook).get_by_role("button", name="TensorBoard of mnist").click()
    expect(popup.value.locator("card-view").first).to_be_visible()
    popup.value.close()


def test_the_panel_stops_the_cluster_while_the_cell_blocks(notebook: Notebook) -> None:
    card(notebook).get_by_role("button", name="Stop mnist").click()
    expect(card(notebook)).to_have_count(0)
    expect(notebook.page.locator("#tfos-lab-clusters")).to_contain_text("No cluster runs")
    notebook.wait_for_end("train")
    expect(notebook.output("train").locator(".tfos-static .tfos-header")).to_contain_text("stopped")
    assert set(notebook.errors) <= NOT_OURS
