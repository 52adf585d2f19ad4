"""JupyterLab's panel as a dashboard: wide clusters, ended runs, the way to the cell, and notices when a run ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.support.acted_cluster import ActedCluster, write_ended_run
from tests.support.axe import violations_in
from tests.support.jupyter_rig import JupyterRig, Notebook
from tests.support.quick import QUICK_ENV
from tfos_lab.core.messages import NodeActivity
from tfos_lab.driver.record.format import ErrorRecord

pytestmark = pytest.mark.browser

expect.set_options(timeout=60_000)

HUNG = 7
ACTIVITY = NodeActivity(
    step=41,
    step_s=0.0521,
    waits_rows=0.62,
    computes=0.3,
    python=0.08,
    where="train, Cell In[3], line 12",
    cpu=1.9,
    memory_bytes=1_700_000_000,
    host_cpu=0.98,
    host_memory=0.4,
    idle_s=64,
    last_sign="step 41",
    slower=2.1,
)
VERDICT = "Waits for rows 62 % of the time: Spark delivers 4,100 rows/s. Use more partitions."

LOAD = "%load_ext tfos_lab\nimport time\nfrom pathlib import Path\ngo = Path('go').absolute()"
TRAIN = f"""%%tfos name=quick background local=processes env={QUICK_ENV}
while not go.exists():
    ctx.report(step=3, total_steps=9, loss=0.25)
    time.sleep(0.1)"""
FILLERS = [f"# {'far below ' * number}" for number in range(40)]
TRAIN_CELL = 1
GO_TO_THE_END = "() => window.jupyterapp.shell.currentWidget.content.scrollToItem(41, 'end')"


@pytest.fixture(scope="module")
def notebook(extended_rig: JupyterRig) -> Notebook:
    opened = extended_rig.open_notebook("train.ipynb", [LOAD, TRAIN, *FILLERS], width=1200)
    opened.command("tfos-lab:show-clusters")
    return opened


@pytest.fixture(scope="module")
def runtime_dir(extended_rig: JupyterRig) -> Path:
    return extended_rig.notebooks.parent / "runtime"


@pytest.fixture
def wide(runtime_dir: Path) -> Iterator[ActedCluster]:
    with ActedCluster(runtime_dir, name="wide", nodes=40) as acted:
        for place in range(40):
            host = f"exec-{place // 4 + 1}.cluster.internal"
            acted.alter_node(
                place, step=41 + place % 3, total_steps=400, metrics={"loss": 0.125, "accuracy": 0.9}, host=host, pid=41
            )
        acted.alter_node(HUNG, hung="no step for 64 s; last: step 41", activity=ACTIVITY)
        acted.cluster.alter(progress=0.1, seconds_left=1250, verdict=VERDICT)
        acted.set_state("running")
        yield acted


def panel(notebook: Notebook) -> Locator:
    return notebook.page.locator("#tfos-lab-clusters")


def card(notebook: Notebook, name: str) -> Locator:
    return panel(notebook).locator(".tfos-lab-card").filter(has_text=name)


def ended(notebook: Notebook, name: str) -> Locator:
    return panel(notebook).get_by_role("list", name="Ended runs").get_by_role("listitem").filter(has_text=name)


def toast(notebook: Notebook, text: str) -> Locator:
    return notebook.page.locator(".Toastify__toast").filter(has_text=text)


def active_cell(notebook: Notebook) -> Locator:
    return notebook.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")


def test_a_cluster_of_forty_nodes_fits_and_is_stopped_from_anywhere(notebook: Notebook, wide: ActedCluster) -> None:
    shown = card(notebook, "wide")
    expect(shown).to_contain_text("40/40 nodes")
    expect(shown).to_contain_text("step 41/400 · loss 0.125 · 20:50 left")
    expect(shown).to_contain_text(VERDICT)
    expect(shown.locator(".tfos-lab-card-trouble")).to_have_text("worker:6 hangs")
    expect(shown.locator(".tfos-lab-squares span")).to_have_count(40)
    expect(shown.get_by_role("list", name="Nodes of wide")).to_be_hidden()
    notebook.screenshot("panel-40-nodes-folded", panel(notebook))
    shown.get_by_text("40/40 nodes").click()
    rows = shown.get_by_role("list", name="Nodes of wide").locator("summary")
    expect(rows).to_have_count(40)
    rows.filter(has_text="worker:6").click()
    details = shown.locator("dl:visible")
    for text in ("no step for 64 s", "exec-2.cluster.internal", "52 ms", "waits for rows 62 %", "CPU 98 %"):
        expect(details).to_contain_text(text)
    notebook.screenshot("panel-40-nodes", panel(notebook))
    wide.alter_node(HUNG, hung="")
    wide.publish()
    expect(shown.locator(".tfos-lab-card-trouble")).to_be_hidden()
    expect(details).not_to_contain_text("no step for 64 s")
    expect(rows.filter(has_text="worker:6")).to_be_focused()
    rows.last.scroll_into_view_if_needed()
    expect(rows.first).not_to_be_in_viewport()
    stop = shown.get_by_role("button", name="Stop wide")
    expect(stop).to_be_in_viewport(ratio=1)
    stop.click()
    wide.wait_for_stop()
    expect(shown).to_have_count(0)


def test_ended_runs_are_listed_with_their_outcome_the_newest_first(
    notebook: Notebook, extended_rig: JupyterRig
) -> None:
    runs = extended_rig.notebooks / "runs"
    for number in range(25):
        write_ended_run(runs, f"old{number}-1", started_s=1.7e9, ended_s=1.7e9 + 100 + number)
    error = ErrorRecord(
        type="NodeFailed", message="label 11 is outside the 10 classes", node="worker:1", kind="ValueError"
    )
    write_ended_run(runs, "wrong-1", state="failed", error=error)
    expect(toast(notebook, "wrong failed after 3:20: worker:1: ValueError: label 11")).to_be_visible()
    expect(ended(notebook, "wrong")).to_contain_text("failed after 3:20 · loss 0.03125")
    expect(ended(notebook, "wrong")).to_contain_text("worker:1: ValueError: label 11 is outside the 10 classes")
    listed = panel(notebook).get_by_role("list", name="Ended runs").get_by_role("listitem")
    expect(listed).to_have_count(20)
    expect(listed.first).to_contain_text("wrong")
    expect(listed.nth(1)).to_contain_text("old24")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_the_panel_is_accessible(notebook: Notebook, wide: ActedCluster, theme: str) -> None:
    notebook.command("apputils:change-theme", theme=theme)
    notebook.page.wait_for_selector(f'body[data-jp-theme-name="{theme}"]', state="attached")
    card(notebook, "wide").get_by_text("40/40 nodes").click()
    row = card(notebook, "wide").locator("summary", has_text="worker:6")
    row.focus()
    notebook.page.keyboard.press("Enter")
    expect(card(notebook, "wide").locator("dl:visible")).to_contain_text("exec-2")
    notebook.screenshot(f"panel-{theme.split()[1].lower()}")
    assert violations_in(notebook.page, "#tfos-lab-clusters") == []
    wide.close()
    expect(card(notebook, "wide")).to_have_count(0)


def test_the_card_of_a_run_leads_to_its_cell(notebook: Notebook) -> None:
    notebook.run_cell(0)
    notebook.run_cell(TRAIN_CELL)
    shown = card(notebook, "quick")
    expect(shown).to_contain_text("step 3/9 · loss 0.25")
    notebook.page.evaluate(GO_TO_THE_END)
    expect(notebook.output(TRAIN_CELL)).not_to_be_in_viewport()
    shown.get_by_role("button", name="Show the cell of quick in train.ipynb").click()
    expect(notebook.output(TRAIN_CELL)).to_be_in_viewport()
    expect(active_cell(notebook)).to_contain_text("name=quick background")


def test_a_background_run_that_ends_is_notified(notebook: Notebook, extended_rig: JupyterRig) -> None:
    notebook.page.evaluate(GO_TO_THE_END)
    (extended_rig.notebooks / "go").touch()
    note = toast(notebook, "quick is done after")
    expect(note).to_contain_text("(train.ipynb): loss 0.25")
    notebook.screenshot("panel-end-note")
    note.get_by_role("button", name="Show").click()
    expect(notebook.output(TRAIN_CELL)).to_be_in_viewport()
    expect(ended(notebook, "quick")).to_contain_text("done after")
