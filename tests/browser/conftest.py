"""A bare page with the dashboard in it, for tests of its parts; JupyterLab with our extensions. Both start once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import running_chromium
from tests.support.fake_cluster import FakeCluster
from tests.support.jupyter_rig import REPOSITORY, JupyterRig
from tests.support.lab_extension import built_lab_extension
from tests.support.stage import Stage

expect.set_options(timeout=30_000)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def open_stage(chromium: Browser) -> Iterator[Callable[..., Stage]]:
    """A function that opens a page with the dashboard of a cluster."""
    stages: list[Stage] = []

    def open_stage(cluster: FakeCluster, width: int = 900, height: int = 700, **options: Any) -> Stage:
        page = chromium.new_page(viewport={"width": width, "height": height}, **options)
        stages.append(Stage(page, cluster))
        return stages[-1]

    yield open_stage
    for made in stages:
        assert made.errors == []
        made.page.close()


@pytest.fixture
def stage(open_stage: Callable[..., Stage]) -> Stage:
    return open_stage(FakeCluster())


@pytest.fixture(scope="package")
def server(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterRig]:
    folder = tmp_path_factory.mktemp("jupyter")
    shutil.copytree(REPOSITORY / "extensions/jupyter-config", folder / "etc/jupyter_server_config.d")
    shutil.copytree(built_lab_extension(), folder / "share/labextensions/tfos-lab")
    env = {"JUPYTER_CONFIG_PATH": str(folder / "etc"), "JUPYTER_PATH": str(folder / "share")}
    with JupyterRig(folder, base_url="/user/alice/", env=env, browser=chromium) as made:
        yield made


@pytest.fixture(scope="module")
def rig(server: JupyterRig) -> Iterator[JupyterRig]:
    """JupyterLab and Notebook 7 with our extensions of this tree, behind a path such as a hub gives them."""
    yield server
    server.clear()
