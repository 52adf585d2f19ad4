"""The live view of staged runs, in light and in dark; what is saved of such runs is in ``tests/golden``."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.support.axe import violations_in
from tests.support.stage import Stage
from tests.support.staged_views import COMPUTE, HUNG, INPUT, Staged, make_hang, reports_of, staged_cluster
from tfos_lab.core import messages as m
from tfos_lab.driver.shown import ShownFiles
from tfos_lab.notebook.display.card import NodeStacks, render_stacks

pytestmark = pytest.mark.browser

STACKS = '  File "Cell In[5]", line 12, in map_fun\n    model.fit(dataset, epochs=3)\n'


@pytest.fixture
def open_staged(open_stage: Callable[..., Stage]) -> Callable[[Staged], Stage]:
    """A function that opens a staged view, with figures and lines of its nodes."""

    def open_staged(staged: Staged) -> Stage:
        cluster = staged_cluster(staged)
        stage = open_stage(cluster, 1000, 1300, reduced_motion="reduce")
        stage.report(*reports_of(cluster, staged))
        for node in cluster.nodes[:4]:
            stage.write((node, f"Epoch 1/3\n60/96 of {node} - loss: 0.4132\n"))
        expect(stage.page.locator(".tfos-line").first).to_be_visible()
        return stage

    return open_staged


def is_accessible(stage: Stage) -> None:
    for scheme in ("light", "dark"):
        stage.page.emulate_media(color_scheme=scheme)
        assert violations_in(stage.page, ".tfos") == [], scheme


def show_things(stage: Stage, step: int) -> None:
    files = ShownFiles(stage.cluster.run_dir)
    counts = m.Matrix(["cat", "dog", "owl"], [[48.0, 2.0, 0.0], [5.0, 40.0, 5.0], [1.0, 3.0, 46.0]])
    table = m.Table(["word", "p"], [[f"word {row}", row / 40] for row in range(40)], 1200)
    png = io.BytesIO()
    Image.effect_noise((112, 112), 64).save(png, "PNG")
    for number in range(1, step + 1):
        files.take(m.Shown("samples", number, m.Picture(png.getvalue()), float(number), rank=0), "chief:0")
    for name, content in (("confusion", counts), ("worst", table), ("large", m.Unshown("A picture of 2 MB."))):
        files.take(m.Shown(name, None, content, 9.0, rank=0), "chief:0")
    stage.alter(shown=files.views)


def test_what_nodes_show_is_below_the_charts_and_stays_open(open_staged: Callable[[Staged], Stage]) -> None:
    stage = open_staged(COMPUTE)
    show_things(stage, 3)
    expect(stage.page.get_by_role("img", name="samples, step 3")).to_be_visible()
    stage.page.get_by_text("2 earlier steps").click()
    show_things(stage, 4)
    expect(stage.page.get_by_role("img", name="samples, step 4")).to_be_visible()
    expect(stage.page.get_by_role("img", name="samples, step 2")).to_be_visible()
    expect(stage.page.get_by_role("region", name="confusion")).to_contain_text("48")
    is_accessible(stage)


def test_a_hung_node_is_marked_and_tells_its_stacks(open_staged: Callable[[Staged], Stage]) -> None:
    stage = open_staged(HUNG)
    make_hang(stage.cluster, "worker:1")
    stage.show()
    expect(stage.row("worker:1")).to_contain_text("hangs")
    expect(stage.page.locator("tr.tfos-detail")).to_contain_text("no step for 64 s; last: step 41")
    expect(stage.page.get_by_role("status")).to_have_text("mnist: worker:1 hangs")
    button = stage.page.get_by_role("button", name="Stacks of worker:1")
    button.click()
    assert stage.wait_for_message("stacks") == {"kind": "stacks", "node": "worker:1"}
    stage.table.asked = ["worker:1"]
    stage.show()
    expect(stage.page.locator("tr.tfos-detail button")).to_have_attribute("aria-disabled", "true")
    stage.table.asked = []
    stage.show()
    answered = render_stacks([NodeStacks("worker:1", f"{STACKS}<b>no tag</b>", 1000.0)], live=True)
    stage.page.evaluate("(stacks) => window.show({ stacks })", answered)
    answer = stage.page.locator(".tfos-stacks")
    expect(answer).to_have_attribute("open", "")
    expect(answer.locator("pre")).to_contain_text("<b>no tag</b>")
    expect(button).not_to_have_attribute("aria-disabled", "true")
    is_accessible(stage)


# ---- table, metrics and log pane -------------------------------------------------------------------------------------


def test_what_has_no_column_is_among_the_details(open_staged: Callable[[Staged], Stage]) -> None:
    stage = open_staged(INPUT)
    titles = stage.page.get_by_role("columnheader")
    for title in ("val_accuracy", "PID", "Memory"):
        expect(titles.filter(has_text=title).filter(visible=True)).to_have_count(0)
    details = stage.page.locator("tr.tfos-more-row:visible")
    expect(details).to_have_count(0)
    stage.unfold()
    stage.page.get_by_label("Details of worker:0").click()
    expect(details).to_contain_text(re.compile(r"val_accuracy.*Memory1.24 GB.*PID41217", re.DOTALL))
    stage.page.set_viewport_size({"width": 1200, "height": 1300})
    expect(details).not_to_contain_text("exec-1", use_inner_text=True)
    stage.page.set_viewport_size({"width": 500, "height": 1300})
    expect(details).to_contain_text("exec-1", use_inner_text=True)
    stage.page.set_viewport_size({"width": 1000, "height": 1300})
    stage.change("worker:0", step=61)
    expect(stage.row("worker:0")).to_contain_text("61/96")
    expect(details.get_by_role("button", name="Stacks of worker:0")).to_be_visible()
    assert violations_in(stage.page, ".tfos") == []
    stage.page.get_by_label("Details of worker:0").click()
    expect(details).to_have_count(0)


def test_the_log_pane_is_as_high_as_its_lines(open_staged: Callable[[Staged], Stage]) -> None:
    stage = open_staged(INPUT)
    stage.tab("chief:0").click()
    stage.has_lines("Epoch 1/3", "60/96 of chief:0 - loss: 0.4132")
    low = stage.panel.bounding_box()["height"]
    assert low < 70
    stage.write(("chief:0", "".join(f"{number}\n" for number in range(200))))
    expect(stage.panel).to_contain_text("199")
    high = stage.panel.bounding_box()["height"]
    assert 200 < high < 300, "then it scrolls"
    stage.panel.evaluate("(panel) => { panel.style.height = '400px'; }")
    assert stage.panel.bounding_box()["height"] == 400, "its reader may pull it"
