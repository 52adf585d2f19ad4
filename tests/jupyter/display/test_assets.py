"""The built scripts and style sheets."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from tests.support.fake_cluster import FakeCluster
from tfos_lab.engine.state.events import FeedView
from tfos_lab.jupyter.display import assets
from tfos_lab.jupyter.display.assets import inline_script, read_asset, read_style_sheet
from tfos_lab.jupyter.display.static_bundle import render_html

SCRIPTS = ("dashboard.js", "seen_note.js", "tensorboard_frame.js")


def test_the_dashboard_is_one_module_with_one_export() -> None:
    module = read_asset("dashboard.js")
    assert re.findall(r"\bexport\b.*", module) == [module[module.rindex("export") :]]
    assert re.search(r"export\{\S+ as default\};?$", module)
    assert not re.search(r"\bimport\b *[{(\"']", module)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_html_of_text_or_asks_a_foreign_server(name: str) -> None:
    script = read_asset(name)
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://", "import("):
        assert forbidden not in script
    assert set(re.findall(r"http://[^\"]+", script)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", ["dashboard.css", "summary.css"])
def test_style_sheets_load_nothing(name: str) -> None:
    sheet = read_style_sheet(name)
    assert ".tfos{" in sheet
    assert "@import" not in sheet
    assert "url(" not in sheet


def test_what_saved_outputs_set_is_what_their_style_sheet_reads() -> None:
    feeds = tuple(FeedView(number=number, started_s=5.0 + number, ended_s=8.0 + number) for number in range(2))
    view = dataclasses.replace(FakeCluster().view(), timings={"running": 5.0, "done": 20.0}, feeds=feeds)
    page = render_html(view, lambda _node, _lines: "")
    used = {name for style in re.findall(r'style="([^"]*)"', page) for name in re.findall(r"(--tfos-\w+):", style)}
    assert used == {"--tfos-track", "--tfos-tracks"}
    assert used <= set(re.findall(r"var\((--tfos-\w+)", read_style_sheet("summary.css")))


@pytest.mark.parametrize("name", SCRIPTS[1:])
def test_a_script_in_an_output_ends_where_it_should(name: str) -> None:
    options = {"element": "e", "name": "</script><script>alert(1)</script>"}
    script = inline_script(name, options)
    assert script.count("<script>") == script.count("</script>") == 1
    found = re.fullmatch(r"<script>\(\(TFOS_OPTIONS\) => \{.*\}\)\((\{.*\})\)</script>", script, re.DOTALL)
    assert found is not None
    assert json.loads(found[1]) == options


def test_a_file_that_is_not_built_is_named_with_what_to_do(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(assets.resources, "files", lambda _: tmp_path)
    with pytest.raises(FileNotFoundError, match=r"static/dashboard\.js has not been built\. .* run `make setup`"):
        read_asset.__wrapped__("dashboard.js")
