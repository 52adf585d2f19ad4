"""JupyterLab's panel as a dashboard: wide clusters, ended runs, the way to the cell, and notices when a run ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.support.axe import violations_in
from tests.support.eventually import eventually
from tests.support.jupyter_rig import JupyterRig, Notebook
from tests.support.quick import QUICK_ENV
from tests.support.recorded_runs import failure, write_live, write_run
from tests.support.staged_views import FORTY, make_hang, staged_cluster
from tfos_lab.core import cluster_records

pytestmark = pytest.mark.browser

expect.set_options(timeout=60_000)

LOAD = "%load_ext tfos_lab\nimport time\nfrom pathlib import Path\ngo = Path('go').absolute()"
TRAIN = f"""%%tfos name=quick background local=processes env={QUICK_ENV}
while not go.exists():
    ctx.report(step=12_116, total_steps=41_890, loss=0.6931)
    time.sleep(0.1)"""
FILLERS = [f"# {'far below ' * number}" for number in range(40)]
TRAIN_CELL = 1
GO_TO_THE_END = "() => window.jupyterapp.shell.currentWidget.content.scrollToItem(41, 'end')"


@pytest.fixture(scope="module")
def notebook(rig: JupyterRig) -> Notebook:
    opened = rig.open_notebook("train.ipynb", [LOAD, TRAIN, *FILLERS], width=1200)
    opened.command("tfos-lab:show-clusters")
    return opened


class Wide:
    """A cluster of 40 nodes, one of which hangs, without nodes: its record is published to the Jupyter servers."""

    def __init__(self) -> None:
        self.cluster = staged_cluster(FORTY)
        make_hang(self.cluster, "worker:6")
        self.publish()
        cluster_records.publish(cluster_records.ClusterRecord.here(self.cluster.id, str(self.cluster.run_dir)))

    def publish(self) -> None:
        write_live(self.cluster.run_dir, self.cluster.view())

    def wait_for_stop(self) -> None:
        mark = cluster_records.stop_mark(self.cluster.id)
        eventually(mark.exists)
        self.close()

    def close(self) -> None:
        cluster_records.remove(self.cluster.id)


@pytest.fixture
def wide(rig: JupyterRig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wide]:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(rig.notebooks.parent / "runtime"))
    made = Wide()
    yield made
    made.close()


def card(notebook: Notebook, name: str) -> Locator:
    return notebook.panel.locator('[aria-label="Running clusters"] li').filter(has_text=name)


def ended(notebook: Notebook, name: str) -> Locator:
    return notebook.panel.get_by_role("list", name="Ended runs").get_by_role("listitem").filter(has_text=name)


def toast(notebook: Notebook, text: str) -> Locator:
    return notebook.page.locator(".Toastify__toast").filter(has_text=text)


def test_a_cluster_of_forty_nodes_fits_and_is_stopped_from_anywhere(notebook: Notebook, wide: Wide) -> None:
    shown = card(notebook, "mnist")
    expect(shown).to_contain_text("40/40 nodes")
    expect(shown).to_contain_text(FORTY.verdict)
    expect(shown.get_by_text("no step for 64 s")).to_be_visible()
    rows = shown.locator(".tfos-members tr[data-dash]")
    expect(rows).to_have_count(39)
    expect(rows.first).to_be_hidden()
    shown.get_by_label("Rows of 39 nodes").click()
    details = shown.get_by_label("Details of worker:4", exact=True)
    details.click()
    expect(shown.locator("dl:visible")).to_contain_text("exec-")
    wide.cluster.change("worker:6", hung="")
    wide.publish()
    expect(shown).not_to_contain_text("no step for 64 s")
    expect(shown.locator("dl:visible")).to_contain_text("exec-")
    expect(details).to_be_focused()
    rows.last.scroll_into_view_if_needed()
    expect(rows.first).not_to_be_in_viewport()
    stop = shown.get_by_role("button", name="Stop mnist")
    expect(stop).to_be_in_viewport(ratio=1)
    stop.click()
    wide.wait_for_stop()
    expect(shown).to_have_count(0)


def test_ended_runs_are_listed_with_their_outcome_the_newest_first(notebook: Notebook, rig: JupyterRig) -> None:
    runs = rig.notebooks / "runs"
    for number in range(25):
        write_run(runs, f"old{number}-1", ago_s=1000 - number)
    write_run(runs, "wrong-1", ago_s=15.4, **failure())
    expect(toast(notebook, "wrong failed after 15.4 s: worker:0: ValueError: no such label: 11")).to_be_visible()
    expect(ended(notebook, "wrong")).to_contain_text("worker:0: ValueError: no such label: 11")
    listed = notebook.panel.get_by_role("list", name="Ended runs").get_by_role("listitem")
    expect(listed).to_have_count(20)
    expect(listed.first).to_contain_text("wrong")
    expect(listed.nth(1)).to_contain_text("old24")


def test_the_panel_is_accessible_in_both_themes(notebook: Notebook, wide: Wide) -> None:
    card(notebook, "mnist").get_by_label("Details of worker:6").focus()
    notebook.page.keyboard.press("Enter")
    expect(card(notebook, "mnist").locator("dl:visible")).to_contain_text("exec-2")
    assert violations_in(notebook.page, "#tfos-lab-clusters") == []
    notebook.use_dark_theme()
    assert violations_in(notebook.page, "#tfos-lab-clusters") == []
    wide.close()
    expect(card(notebook, "mnist")).to_have_count(0)


def test_the_card_of_a_run_leads_to_its_cell(notebook: Notebook) -> None:
    notebook.run_cell(0)
    notebook.run_cell(TRAIN_CELL)
    shown = card(notebook, "quick")
    expect(shown).to_contain_text("12,116/41,890")
    box = shown.locator(".tfos-table-box")
    assert box.evaluate("(box) => box.scrollWidth - box.clientWidth") == 0, "its loss is in sight"
    notebook.page.evaluate(GO_TO_THE_END)
    expect(notebook.output(TRAIN_CELL)).not_to_be_in_viewport()
    shown.get_by_role("button", name="Show the cell of quick in train.ipynb").click()
    expect(notebook.output(TRAIN_CELL)).to_be_in_viewport()
    active = notebook.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")
    expect(active).to_contain_text("name=quick background")


def test_a_background_run_that_ends_is_notified(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.page.evaluate(GO_TO_THE_END)
    (rig.notebooks / "go").touch()
    note = toast(notebook, "quick is done after")
    expect(note).to_contain_text("(train.ipynb): loss 0.6931")
    note.get_by_role("button", name="Show").click()
    expect(notebook.output(TRAIN_CELL)).to_be_in_viewport()
    expect(ended(notebook, "quick")).to_contain_text("1/1 nodes done")
