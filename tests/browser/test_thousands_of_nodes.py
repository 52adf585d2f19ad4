"""The live view of 4,096 nodes: groups, the worst on top, bands of metrics; pictures in ``tests/artefacts``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.support.axe import violations_in
from tests.support.fake_cluster import FakeCluster
from tests.support.jupyter_rig import ARTEFACTS
from tests.support.stage import Stage
from tests.support.staged_views import COMPUTE, make_hang, make_straggle, staged_cluster
from tfos_lab.driver.state.events import MetricsReported

pytestmark = pytest.mark.browser


def troubled_cluster() -> FakeCluster:
    """Return a cluster of 4,096 nodes, some of which need attention."""
    cluster = staged_cluster(dataclasses.replace(COMPUTE, nodes=4096, metrics=("loss", "accuracy")))
    cluster.change("worker:2718", state="lost", detail="not heard of for 5 s")
    cluster.change("worker:31", state="failed", detail="ValueError: label 11 is outside the 10 classes")
    make_hang(cluster, "worker:1414")
    for node in ("worker:1732", "worker:577"):
        make_straggle(cluster, node)
    return cluster


@pytest.fixture(params=["light", "dark"])
def large(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Stage]:
    size = {"width": 1000, "height": 1400}
    made = Stage(chromium.new_page(viewport=size, color_scheme=request.param), troubled_cluster())
    for step in range(0, 60, 4):  # of so many nodes, the kernel sends bands
        for band, shift in (("max", 0.3), ("median", 0.1), ("min", 0.0)):
            metrics = {"loss": 2.3 * math.exp(-step / 30) + shift}
            made.report(MetricsReported(time_s=float(step), node=band, step=step, total_steps=None, metrics=metrics))
    yield made
    assert made.errors == []
    made.page.locator(".tfos").screenshot(path=ARTEFACTS / f"live-4096-nodes-{request.param}.png")
    made.page.close()


def test_the_worst_are_on_top_all_are_counted_and_states_unfold(large: Stage) -> None:
    page = large.page
    names = page.locator(".tfos-node-link:visible")
    expect(names).to_have_text(["worker:31", "worker:2718", "worker:1414", "worker:577", "worker:1732", "chief:0"])
    groups = page.locator("tr.tfos-group")
    expect(groups).to_have_count(4)
    expect(groups.filter(has_text="running")).to_contain_text("4,093")
    expect(page.get_by_role("status")).to_have_text("mnist: worker:1414 hangs")
    legend = page.get_by_role("group", name="Lines of nodes")
    expect(legend.locator(".tfos-legend-item")).to_have_text(["max", "median", "min"])
    expect(page.locator(".tfos-band")).to_have_count(1)
    assert violations_in(page, ".tfos") == []
    page.get_by_label("Rows of running").click()
    expect(names).to_have_count(6 + 12)
    large.change("worker:1732", state="failed", detail="ValueError: no")
    expect(names.nth(1)).to_have_text("worker:1732")
    expect(names).to_have_count(6 + 12)  # it stays unfolded
    assert violations_in(page, ".tfos") == []
    assert page.locator(".tfos *").count() < 3_000
