"""A real Jupyter server with our routes; it shares a runtime folder with the tests."""

from __future__ import annotations

import os
import sys

import pytest

from tests.jupyter_server.server import BASE, TOKEN
from tests.support.daemon import Daemon


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module", autouse=True)
def runtime(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
        yield


@pytest.fixture(scope="module")
def url(folder):
    paths = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "RUNTIME", "DATA")}
    command = [
        *(sys.executable, "-m", "jupyter_server", "--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"),
        *("--ServerApp.allow_root=True", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.base_url={BASE}"),
        "--ServerApp.jpserver_extensions={'tfos_lab.jupyter_server': True}",
        "--ServerApp.allow_unauthenticated_access=False",  # as behind a hub: only routes that allow it are open
        f"--ServerApp.root_dir={folder}",
    ]
    environ = {**os.environ, **paths, "PYTHONPATH": os.pathsep.join(sys.path)}
    with Daemon("jupyter server", command, log=folder / "log", env=environ) as server:
        yield server.wait_for_url(rf"(http://127\.0\.0\.1:\d+{BASE})", timeout_s=120)
