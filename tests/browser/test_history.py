"""The history of runs and a comparison, in a real JupyterLab."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.support.axe import violations_in
from tests.support.jupyter_rig import JupyterRig, Notebook
from tests.support.recorded_runs import write_some

pytestmark = pytest.mark.browser

expect.set_options(timeout=60_000)

CELLS = {
    "load": "%load_ext tfos_lab",
    "history": "%tfos history",
    "compare": "%tfos history 1f2e 2a3b 3c4d",
    "open": "%tfos history titanic",
}


@pytest.fixture(scope="module")
def notebook(rig: JupyterRig) -> Iterator[Notebook]:
    write_some(rig.notebooks / "runs")
    opened = rig.open_notebook("history.ipynb", CELLS, height=1100)
    for name in CELLS:
        opened.run_cell(name)
    yield opened
    assert opened.errors == []


def output(notebook: Notebook, name: str) -> Locator:
    shown = notebook.output(name)
    shown.scroll_into_view_if_needed()
    return shown


def test_runs_are_sorted_filtered_and_unfolded_by_clicking(notebook: Notebook) -> None:
    shown = output(notebook, "history")
    names = shown.locator("tbody th code")
    expect(names).to_have_text(["6c7d", "5a6b", "7e8f.1", "7e8f.0", "4e5f", "3c4d", "2a3b", "1f2e"])
    shown.get_by_role("button", name="loss", exact=True).click()
    expect(names).to_have_text(["3c4d", "4e5f", "6c7d", "5a6b", "1f2e", "2a3b", "7e8f.1", "7e8f.0"])
    expect(shown.get_by_role("columnheader", name="loss")).to_have_attribute("aria-sort", "descending")
    shown.get_by_role("button", name="loss").click()
    expect(names.first).to_have_text("2a3b")
    shown.get_by_role("button", name="Run", exact=True).click()
    expect(names.last).to_have_text("4e5f")
    filtering = shown.get_by_role("searchbox", name="Filter runs")
    filtering.fill("mnist 0.01")
    expect(names.filter(visible=True)).to_have_text(["1f2e", "5a6b"])
    expect(shown.get_by_role("status")).to_have_text("2 of 8")
    filtering.fill("")
    expect(shown.get_by_role("figure")).to_have_count(0)
    shown.get_by_role("row", name="mnist 2a3b").get_by_text("done").click()
    expect(shown.get_by_role("figure")).to_have_count(2)
    assert violations_in(notebook.page, ".tfos-history") == []
    shown.locator("summary").and_(shown.get_by_label("Details of mnist 2a3b")).click()
    expect(shown.get_by_role("figure")).to_have_count(0)


def test_the_history_a_comparison_and_an_old_run_are_accessible_in_both_themes(notebook: Notebook) -> None:
    expect(output(notebook, "compare").get_by_role("img", name=re.compile("^(loss|accuracy): A .*, B "))).to_have_count(
        2
    )
    opened = output(notebook, "open")
    opened.locator("summary", has_text="Inputs and options").click()
    expect(opened.get_by_role("row", name="args.lr 0.01", exact=True)).to_be_visible()
    assert violations_in(notebook.page, ".tfos") == []
    notebook.use_dark_theme()
    assert violations_in(notebook.page, ".tfos") == []


def test_what_is_told_of_a_run_is_read_without_scrolling_on_a_narrow_page(notebook: Notebook) -> None:
    notebook.page.set_viewport_size({"width": 560, "height": 1100})
    shown = output(notebook, "history")
    shown.get_by_label("Details of mnist 2a3b").click()
    expect(shown.get_by_role("figure")).to_have_count(2)
    table, box = (shown.locator(part).first.bounding_box() for part in ("table", ".tfos-table-box"))
    assert table["width"] > box["width"]
    parts = shown.locator(".tfos-detail div, .tfos-more-row dl, figure").filter(visible=True)
    told = [one.bounding_box() for one in parts.all()]
    assert len(told) > 3
    assert all(one["x"] + one["width"] <= box["x"] + box["width"] for one in told)
    opened = output(notebook, "open")
    opened.get_by_label("Details of chief:0").click()
    facts = opened.locator(".tfos-more-row .tfos-row-facts > div").filter(visible=True)
    tops = {one.bounding_box()["y"] for one in facts.all()}
    assert len(tops) == 1 < facts.count(), "in a line, and not as JupyterLab lays out lists"
