"""Pictures of the runs in ``tests/golden``; ``make golden`` takes them anew."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib import resources

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.support.axe import violations_in
from tests.support.fake_cluster import FakeCluster
from tests.support.golden_runs import GOLDEN, RUNS, html_of
from tests.support.jupyter_rig import REPOSITORY
from tests.support.staged_views import COMPUTE, FORTY, Staged, make_straggle, staged_cluster
from tfos_lab.notebook.display.table import LiveTable

pytestmark = pytest.mark.browser

# Fonts and their edges differ between machines: parts that have moved, gone or changed their colour differ by more.
LENGTH_MAY_DIFFER, AREA_MAY_DIFFER = 0.03, 0.02
STYLES = resources.files("tfos_lab.notebook.display") / "static"
ARTEFACTS = REPOSITORY / "tests/artefacts"
PANEL_CSS = REPOSITORY / "extensions/jupyterlab/style/base.css"


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page()
    yield page
    page.close()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_looks_as_it_did(page: Page, name: str) -> None:
    page.set_viewport_size({"width": 300 if name == "panel" else 900, "height": 600})
    page.emulate_media(color_scheme="light")
    sheets = [STYLES / "dashboard.css", PANEL_CSS] if name == "panel" else [STYLES / "summary.css"]
    style = "".join(sheet.read_text() for sheet in sheets)
    body = f'<div class="tfos-lab-panel">{html_of(name)}</div>' if name == "panel" else html_of(name)
    page.set_content(f"<style>body {{ margin: 8px; font: 13px sans-serif }} {style}</style><body>{body}")
    golden = GOLDEN / f"{name}.png"
    writes = os.environ.get("TFOS_TEST_GOLDEN") == "write"
    path = golden if writes else ARTEFACTS / f"golden-{name}.png"
    page.locator("body > *").first.screenshot(path=path)
    expect(page.locator("script")).to_have_count(0)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert violations_in(page, ".tfos") == [], scheme
    if name in ("panel", "done"):
        boxes = page.locator(".tfos-table-box").all()
        assert [box.evaluate("(box) => box.scrollWidth - box.clientWidth") for box in boxes] == [0], "no column is cut"
    if not writes:
        assert difference(path, golden) is None


@pytest.mark.parametrize("name", ["compute-bound", "done", "a-thousand-nodes"])
def test_columns_leave_before_a_card_scrolls_sideways(page: Page, name: str) -> None:
    page.set_content(f"<style>{(STYLES / 'summary.css').read_text()}</style><body>{html_of(name)}")
    check_columns_leave(page)


@pytest.mark.parametrize("staged", [COMPUTE, FORTY])
def test_columns_leave_before_a_live_card_scrolls_sideways(page: Page, staged: Staged) -> None:
    cluster = staged_cluster(staged)
    set_live(page, cluster)
    check_columns_leave(page)
    make_straggle(cluster, "worker:0")
    set_live(page, cluster)
    check_columns_leave(page)


def test_the_heartbeat_of_a_late_node_is_in_sight_or_among_its_details(page: Page) -> None:
    cluster = staged_cluster(COMPUTE)
    cluster.change("worker:1", last_heartbeat_s=time.time() - 30)
    set_live(page, cluster)
    page.get_by_label("Details of worker:1").click()
    for width in (400, 440, 500, 600, 1200):
        page.set_viewport_size({"width": width, "height": 600})
        expect(page.get_by_text("30 s ago").filter(visible=True)).to_have_count(1)


def set_live(page: Page, cluster: FakeCluster) -> None:
    """Show the table of a live card, each of whose nodes sends heartbeats."""
    for node in cluster.view().nodes:
        cluster.change(node.name, last_heartbeat_s=node.last_heartbeat_s or time.time())
    table = LiveTable(can_ask=True).render(cluster.view(), time.time())
    style = (STYLES / "dashboard.css").read_text()
    page.set_content(f'<style>{style}</style><body><div class="tfos tfos-live">{table}</div>')


def check_columns_leave(page: Page) -> None:
    """Check that a table never scrolls sideways, and that wider pages show more of its columns, up to all."""
    box, titles = page.locator(".tfos-table-box"), page.locator(".tfos-table thead th")
    shown = []
    for width in (560, 640, 700, 780, 840, 900, 1000, 1100, 1200, 1280):
        page.set_viewport_size({"width": width, "height": 600})
        assert box.evaluate("(box) => box.scrollWidth - box.clientWidth") == 0, f"at {width} pixels"
        shown.append(titles.filter(visible=True).count())
    assert shown == sorted(shown)
    assert shown[-1] == titles.count()


def difference(path: object, golden: object) -> str | None:
    """Return how a picture differs from the golden one, if it does."""
    with Image.open(path) as one, Image.open(golden) as other:
        if any(abs(a - b) > LENGTH_MAY_DIFFER * b for a, b in zip(one.size, other.size, strict=True)):
            return f"{one.size} pixels, not {other.size}"
        small = (other.width // 6, other.height // 6)
        seen, wanted = (np.asarray(image.convert("RGB").resize(small), int) for image in (one, other))
    part = (abs(seen - wanted).max(axis=2) > 60).mean()
    return f"{part:.1%} of it differ" if part > AREA_MAY_DIFFER else None
