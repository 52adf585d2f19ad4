"""Parts of the dashboard in a bare page: charts, what stays when a part changes, and links."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.support.axe import violations_in
from tests.support.fake_cluster import FakeCluster
from tests.support.stage import Stage
from tfos_lab.driver.state.events import FeedView, MetricsReported

pytestmark = pytest.mark.browser


def reported(node: str, step: int | None, time_s: float = 0.0, **metrics: float) -> MetricsReported:
    return MetricsReported(time_s=time_s, node=node, step=step, total_steps=None, metrics=metrics)


def chart(stage: Stage, metric: str):
    return stage.page.locator(".tfos-chart").filter(has=stage.page.get_by_text(metric, exact=True))


# ---- metrics ---------------------------------------------------------------------------------------------------------


def test_a_pointer_or_an_arrow_key_shows_the_values(stage: Stage) -> None:
    expect(stage.page.locator(".tfos-metrics")).to_be_hidden()
    stage.report(*(reported("chief:0", step, loss=10.0 - step) for step in range(11)))
    stage.report(*(reported("worker:0", step, loss=20.0 - step) for step in range(11)))
    svg, tip = chart(stage, "loss").get_by_role("img"), stage.page.locator(".tfos-tip")
    svg.hover()
    expect(tip).to_contain_text(re.compile(r"step [45].*chief:0.*worker:0", re.DOTALL))
    stage.page.mouse.move(0, 0)
    expect(tip).to_be_hidden()
    svg.focus()
    stage.page.keyboard.press("End")
    expect(tip).to_have_text("step 10chief:00worker:010")
    stage.page.keyboard.press("ArrowLeft")
    expect(tip).to_have_text("step 9chief:01worker:011")
    stage.report(reported("chief:0", 11, loss=3.5))
    expect(svg).to_be_focused()
    expect(tip).to_have_text("step 9chief:01worker:011")
    stage.page.keyboard.press("End")
    expect(tip).to_have_text("step 11chief:03.5worker:010")
    stage.page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_the_look_that_was_chosen_stays_when_values_come(stage: Stage) -> None:
    stage.report(*(reported("chief:0", step, loss=10.0 ** -(step % 5)) for step in range(10)))
    loss, boxes = chart(stage, "loss"), stage.page.get_by_role("checkbox")
    look = {name: stage.page.get_by_label(name, exact=True) for name in ("Log axis", "By time", "Smooth")}
    expect(boxes).to_have_count(3)
    expect(loss.locator("svg:visible")).to_have_count(1)
    expect(loss.get_by_role("img").get_by_text("0.01")).to_have_count(0)
    look["Log axis"].check()
    expect(loss.get_by_role("img")).to_have_count(1)
    expect(loss.get_by_role("img").get_by_text("0.01")).to_have_count(1)
    loss.get_by_role("img").hover()
    expect(stage.page.locator(".tfos-tip")).to_contain_text("step")
    look["By time"].check()
    expect(loss.locator('[data-look="time log"]')).to_be_visible()
    expect(loss.get_by_role("img")).to_have_count(1)
    loss.get_by_role("img").hover()
    expect(stage.page.locator(".tfos-tip")).to_contain_text(re.compile(r"^-?[\d.,]+ schief:0[\d.]+"))
    look["Log axis"].uncheck()
    stage.report(reported("chief:0", 11, loss=0.0))  # which has no logarithm
    expect(look["By time"]).to_be_checked()
    expect(loss.locator('[data-look="time"]')).to_be_visible()
    look["Log axis"].check()
    expect(loss.locator('[data-look="time"]')).to_be_visible()
    for name in ("Log axis", "By time"):
        look[name].uncheck()
    smooth = loss.locator(".tfos-smooth:visible")
    expect(smooth).to_have_count(0)
    look["Smooth"].check()
    expect(smooth).to_have_count(1)
    assert violations_in(stage.page, ".tfos") == []


# ---- parts that Python draws -----------------------------------------------------------------------------------------


def test_what_is_selected_stays_when_a_part_changes(stage: Stage) -> None:
    stage.alter(timings={"launched": 0.5, "reserved": 2.0}, verdict="healthy", notes=("first",))
    stage.page.evaluate(
        """() => {
          const phases = document.querySelector(".tfos-phases");
          window.before = [phases, document.querySelector(".tfos-name")];
          window.getSelection().selectAllChildren(phases.firstChild);
        }"""
    )
    stage.alter(
        timings={"launched": 0.5, "reserved": 2.0, "released": 2.5}, state="starting", notes=("first", "second")
    )
    expect(stage.page.locator(".tfos-note", has_text="second")).to_be_visible()
    expect(stage.page.locator(".tfos-phases span")).to_have_count(4)
    assert stage.page.evaluate("() => window.getSelection().toString()") == "launch 0.50 s"
    same = """() => ["tfos-phases", "tfos-name"].every(
      (name, index) => document.querySelector(`.${name}`) === window.before[index])"""
    assert stage.page.evaluate(same)


def test_focus_details_and_scroll_position_stay_when_rows_come_and_go(open_stage: Callable[..., Stage]) -> None:
    cluster = FakeCluster(nodes=100)  # whose rows come in the order of how much they need attention
    for number, node in enumerate(cluster.nodes):
        hung = {"hung": f"no step for {number} s"} if number < 12 else {}
        cluster.change(node, state="running", pid=1000 + number, **hung)
    large = open_stage(cluster)

    def order() -> list[str]:
        return large.page.locator(".tfos-node-link:visible").all_inner_texts()

    before = order()
    box = large.page.locator(".tfos-table-box")
    large.page.get_by_label(f"Details of {before[1]}").click()
    large.page.get_by_role("button", name=before[1], exact=True).focus()
    box.evaluate("(box) => { box.style.maxHeight = '80px'; box.scrollTop = 30; }")
    large.change(before[2], state="failed", detail="ValueError: no")
    expect(large.row(before[2])).to_contain_text("failed")
    assert order() != before
    expect(large.page.get_by_role("button", name=before[1], exact=True)).to_be_focused()
    expect(large.page.locator("tr.tfos-more-row:visible")).to_have_count(1)
    assert box.evaluate("(box) => box.scrollTop") == 30


def test_long_names_of_metrics_push_no_column_out_of_sight(stage: Stage) -> None:
    names = (
        "loss",
        "classification_output_of_sale_loss",
        "regression_output_of_price_loss",
        "root mean <squared> error",
    )
    stage.page.set_viewport_size({"width": 1000, "height": 800})
    stage.change("chief:0", metrics=dict.fromkeys(names, 0.25), step=20, total_steps=20)
    title = stage.page.locator('thead [data-key="metric classification_output_of_sale_loss"]')
    expect(title).to_have_text("classification_output_of_sale_loss")
    box = stage.page.locator(".tfos-table-box")
    assert box.evaluate("(box) => box.scrollWidth - box.clientWidth") == 0


# ---- phases, feed, progress ------------------------------------------------------------------------------------------


def test_overlapping_feeds_are_drawn_below_one_another(stage: Stage) -> None:
    feeds = tuple(FeedView(number=number, started_s=5.0 + number, ended_s=8.0 + number) for number in range(3))
    timings = {"running": 5.0, "done": 20.0}
    for count in (1, 3, 2):
        stage.alter(timings=timings, feeds=feeds[:count], ended_s=stage.cluster.view().started_s + 20)
        bars = [bar.bounding_box() for bar in stage.page.locator(".tfos-span").all()]
        tracks = bars[-count:]
        for upper, lower in itertools.pairwise([bars[0], *tracks]):
            assert lower["y"] >= upper["y"] + upper["height"]
        whole = stage.page.locator(".tfos-timeline").bounding_box()
        assert tracks[-1]["y"] + tracks[-1]["height"] <= whole["y"] + whole["height"], "all of it is seen"
    expect(stage.page.locator(".tfos-phases span").last).to_have_text("feed 2 3.00 s")


ENTRY = "http://lab.test/user/alice/tfos-lab/tb/"
_BE_JUPYTER = """(config) => {
  const script = document.createElement("script");
  Object.assign(script, { id: "jupyter-config-data", type: "application/json", text: JSON.stringify(config) });
  document.head.append(script);
}"""


def in_jupyter(stage: Stage) -> None:
    """Make the page one of a Jupyter server."""
    stage.page.evaluate(_BE_JUPYTER, {"baseUrl": "http://lab.test/user/alice/"})


def test_tensorboard_is_linked_when_it_can_be_opened(stage: Stage) -> None:
    link = stage.page.get_by_role("link", name="TensorBoard")
    stage.alter(tensorboard=True)
    expect(link).to_be_hidden()  # the page is none of Jupyter's
    in_jupyter(stage)
    stage.alter(verdict="healthy")
    expect(link).to_have_attribute("href", f"{ENTRY}{stage.cluster.id}/")
    with stage.page.context.expect_page():  # JupyterLab opens a tab of its own
        link.click()


# ---- logs ------------------------------------------------------------------------------------------------------------


def test_the_whole_file_of_a_node_is_linked_where_the_server_has_it(stage: Stage) -> None:
    link = stage.page.get_by_role("link", name="Download")
    stage.tab("worker:1").click()
    expect(link).to_be_hidden()
    in_jupyter(stage)
    stage.show()
    stage.tab("worker:0").click()
    expect(link).to_have_attribute("href", "http://lab.test/user/alice/files/runs/1/worker:0.log")
    expect(link).to_have_attribute("download", "mnist-worker-0.log")
    stage.tab("All").click()
    expect(link).to_be_hidden()
