"""A bare page with the dashboard in it, for tests of its parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.support.chromium import find_chromium
from tests.support.fake_cluster import FakeCluster
from tests.support.jupyter_rig import CHROMIUM_ARGS
from tests.support.stage import Stage

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(CHROMIUM_ARGS))
        yield browser
        browser.close()


@pytest.fixture
def stage(chromium: Browser) -> Iterator[Stage]:
    page = chromium.new_page(viewport={"width": 900, "height": 700})
    made = Stage(page, FakeCluster())
    yield made
    assert made.errors == []
    page.close()
