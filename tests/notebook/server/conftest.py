"""A real Jupyter server with our routes; it shares a runtime folder with the tests."""

from __future__ import annotations

import contextlib
import os
import sys

import pytest

from tests.notebook.server.server import BASE, TOKEN
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
    """A server as behind a hub, where only those routes are open that allow it."""
    with serving(folder, "--ServerApp.allow_unauthenticated_access=False") as url:
        yield url


@pytest.fixture(scope="module", params=["behind a hub", "by itself"])
def either_url(request, folder):
    """That server; and one as Jupyter is by default, where routes are open that ask for no login."""
    if request.param == "behind a hub":
        yield request.getfixturevalue("url")
        return
    with serving(folder) as url:
        yield url


@contextlib.contextmanager
def serving(folder, *options):
    paths = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "RUNTIME", "DATA")}
    command = [
        *(sys.executable, "-m", "jupyter_server", "--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"),
        *("--ServerApp.allow_root=True", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.base_url={BASE}"),
        "--ServerApp.jpserver_extensions={'tfos_lab.notebook.server': True}",
        *(f"--ServerApp.root_dir={folder}", *options),
    ]
    environ = {**os.environ, **paths, "PYTHONPATH": os.pathsep.join(sys.path)}
    with Daemon("jupyter server", command, log=folder / f"log{len(options)}", env=environ) as server:
        yield server.wait_for_url(rf"(http://127\.0\.0\.1:\d+{BASE})", timeout_s=120)
