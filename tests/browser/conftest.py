"""A bare page with the dashboard in it, for tests of its parts; JupyterLab with our extensions. Both start once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

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
def stage(chromium: Browser) -> Iterator[Stage]:
    page = chromium.new_page(viewport={"width": 900, "height": 700})
    made = Stage(page, FakeCluster())
    yield made
    assert made.errors == []
    page.close()


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
