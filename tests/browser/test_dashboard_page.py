"""The front end of the dashboard by itself: its bundle in a bare page of a real Chromium, with a fake model."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.support.stage import Stage

pytestmark = pytest.mark.browser


def test_nodes_that_agree_have_one_row_which_unfolds_by_key_and_stays_so(stage: Stage) -> None:
    for node in stage.cluster.nodes:
        stage.change(node, state="running", step=3, total_steps=12)
    together = stage.page.locator("tr.tfos-together")
    expect(together).to_contain_text("all 4 nodes")
    expect(together.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "25")
    expect(stage.row("worker:1")).to_be_hidden()
    together.locator("summary").focus()
    stage.page.keyboard.press("Enter")
    expect(stage.row("worker:1")).to_be_visible()
    stage.change("chief:0", step=4)
    expect(together).to_contain_text("3 – 4/12")
    expect(stage.row("worker:1")).to_be_visible()
    expect(together.locator("summary")).to_be_focused()
    stage.change("worker:1", state="failed", detail="ValueError: <b>label 11</b>")
    expect(together).to_contain_text("3 nodes")
    expect(stage.row("worker:1")).to_contain_text("failed")
    expect(stage.page.locator("tr.tfos-detail")).to_have_text("ValueError: <b>label 11</b>")
    expect(stage.page.locator(".tfos-tab", has_text="worker:1")).to_have_attribute("data-tone", "bad")


def test_a_row_changes_cell_by_cell(stage: Stage) -> None:
    stage.unfold()
    rows = "Object.fromEntries([...document.querySelectorAll('tbody tr')].map((row) => [row.dataset.key, row]))"
    stage.page.evaluate(f"() => {{ window.before = {rows}; }}")
    stage.change("chief:0", state="reserved")
    expect(stage.row("chief:0")).to_contain_text("reserved")
    expect(stage.row("worker:0")).to_contain_text("waiting")
    kept = "Object.entries(window.before).every(([key, row]) => now[key] === row)"
    same = f"() => {{ const now = {rows}; return {kept}; }}"
    assert stage.page.evaluate(same)
    stage.change("chief:0", host="exec-1", step=3, total_steps=12, state="running")
    expect(stage.page.get_by_role("columnheader")).to_have_text(["Node", "State", "Step", "Host", "Heartbeat"])
    expect(stage.row("chief:0").get_by_role("progressbar")).to_have_attribute("aria-valuenow", "25")


def test_a_silent_kernel_is_reported_until_it_sends_again(stage: Stage) -> None:
    silence = stage.page.locator(".tfos-silence")
    stage.cluster.set_state("running")
    stage.show()
    expect(silence).to_be_hidden()
    stage.page.clock.set_system_time(datetime.now(tz=UTC) + timedelta(minutes=1))
    expect(silence).to_have_text(
        re.compile(r"No word from the kernel since \d\d:\d\d:\d\d: shown is how the run was then. Logs: /runs/1")
    )
    stage.write(("chief:0", "here\n"))
    expect(silence).to_be_hidden()


def test_the_all_tab_names_the_node_once_per_block(stage: Stage) -> None:
    stage.write(("chief:0", "a\nb\n"), ("worker:0", "c\n"), ("worker:0", "d\n"))
    stage.write(("worker:0", "e\n"), ("chief:0", "\n<i>f</i>\n"))
    expect(stage.panel.locator(".tfos-who")).to_have_text(["chief:0", "worker:0", "chief:0"])
    expect(stage.panel.locator(".tfos-chunk")).to_have_text(["chief:0a\nb", "worker:0c\nd", "e", "chief:0\n<i>f</i>"])
    heights = stage.panel.locator(".tfos-chunk").evaluate_all("(all) => all.map((one) => one.offsetHeight)")
    assert [round(height / heights[2]) for height in heights] == [2, 2, 1, 2], "every line is there, also the empty one"


def test_arrow_keys_move_between_tabs(stage: Stage) -> None:
    stage.write(("chief:0", "of the chief\n"), ("worker:2", "of the last\n"))
    stage.tab("All").focus()
    for key, name in [("ArrowRight", "chief:0"), ("ArrowLeft", "All"), ("ArrowLeft", "worker:2")]:
        stage.page.keyboard.press(key)
        expect(stage.tab(name)).to_be_focused()
        expect(stage.tab(name)).to_be_checked()
    stage.page.keyboard.press("Enter")
    stage.has_lines("of the last")
    stage.unfold()
    stage.row("chief:0").get_by_role("button").press("Enter")
    stage.has_lines("of the chief")


def test_the_filter_shows_whole_lines_and_counts_them(stage: Stage) -> None:
    stage.write(("chief:0", "one\n\x1b[31mTwo\x1b[0m half\nthree\n"), ("worker:0", "two\n"))
    stage.page.get_by_role("searchbox").fill("TWO")
    expect(stage.panel.locator(".tfos-chunk")).to_have_text(["chief:0Two half", "worker:0two"])
    expect(stage.panel.locator(".tfos-fg-red")).to_have_text("Two")
    expect(stage.page.locator(".tfos-count")).to_have_text("2 lines")
    stage.write(("chief:0", "four\nbetween two\n"))
    expect(stage.page.locator(".tfos-count")).to_have_text("3 lines")
    stage.page.get_by_role("searchbox").fill("nowhere")
    stage.has_lines("No line matches.")
    stage.page.get_by_role("searchbox").fill("")
    expect(stage.panel).to_contain_text("four")


def test_scrolling_up_stops_following_and_coming_back_resumes_it(stage: Stage) -> None:
    follow = stage.page.get_by_role("button", name="Follow")
    for number in range(20):
        stage.write(("chief:0", f"{number} {'wrapped ' * 40}\n" * 20))
    at_end = "(panel) => panel.scrollTop > -24"
    stage.page.wait_for_function(at_end, arg=stage.panel.element_handle())
    expect(follow).to_have_attribute("aria-pressed", "true")
    stage.panel.hover()
    stage.page.mouse.wheel(0, -400)
    expect(follow).to_have_attribute("aria-pressed", "false")
    stage.write(("chief:0", "more\n" * 20))
    expect(stage.panel).to_contain_text("more")
    assert not stage.panel.evaluate(at_end)
    follow.click()
    stage.page.wait_for_function(at_end, arg=stage.panel.element_handle())
    stage.panel.hover()
    stage.page.mouse.wheel(0, -400)
    expect(follow).to_have_attribute("aria-pressed", "false")
    stage.page.mouse.wheel(0, 100_000)
    expect(follow).to_have_attribute("aria-pressed", "true")


def test_a_page_that_loads_late_gets_the_history(stage: Stage) -> None:
    stage.tab("chief:0").click()
    stage.send({"kind": "log", "seq": 7, "chunks": [], "open": {}})
    stage.has_lines("No output yet.")
    chunk = {"node": "chief:0", "html": "early\n", "lines": 1, "note": ""}
    history = {"kind": "history", "seq": 7, "chunks": [chunk], "open": {}, "forgotten": {"chief:0": 3}}
    stage.send(history)
    stage.has_lines("3 earlier lines not kept here; whole files in /runs/1", "early")


def test_a_page_that_was_there_from_the_start_ignores_the_history_of_others(stage: Stage) -> None:
    stage.tab("chief:0").click()
    stage.write(("chief:0", "first\n"))
    stage.send({"kind": "history", "seq": 1, "chunks": [], "open": {}, "forgotten": {}})
    stage.has_lines("first")


def test_stop_is_one_click_and_falls_back_to_a_message(stage: Stage) -> None:
    stop = stage.page.get_by_role("button", name="Stop")
    stage.page.clock.install()
    stop.click()
    expect(stage.page.locator(".tfos-stop")).to_have_text("Stopping…")
    expect(stage.page.locator(".tfos-stop")).to_be_disabled()
    assert stage.page.evaluate("() => window.sent.some((content) => content.kind === 'stop')")
    stage.cluster.set_state("stopping")
    stage.show()
    expect(stage.page.locator(".tfos-stop")).to_be_disabled()
    stage.page.clock.fast_forward(4000)
    expect(stage.page.locator(".tfos-stop")).to_have_text("Force stop")
    expect(stage.page.locator(".tfos-stop")).to_be_enabled()
    stage.cluster.set_state("stopped")
    stage.show()
    expect(stage.page.locator(".tfos-stop")).to_be_hidden()


def test_closing_a_view_leaves_nothing_behind(stage: Stage) -> None:
    stage.page.evaluate("() => { window.leave(); window.forget(); }")
    assert stage.page.evaluate("() => window.leftovers()") == 0
    assert stage.page.locator(".tfos").count() == 0
