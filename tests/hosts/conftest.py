"""Several hosts for the tests of a module: those that its ``HOSTS`` describes, with a session on them.

Where this machine can have no such rig, its tests are skipped with a sentence. Tests marked ``minutes`` are run by
``make hosts`` only.
"""

import os

import pytest

from tests.hosts import network
from tests.hosts.rig import running_rig
from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV

_ALL = "TFOS_TEST_HOSTS"


def pytest_configure(config):
    config.addinivalue_line("markers", "minutes: takes minutes; `make hosts` runs it")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("minutes") and not os.environ.get(_ALL):
            item.add_marker(pytest.mark.skip(reason="takes minutes: `make hosts` runs it"))


@pytest.fixture(scope="session")
def _possible():
    if problem := network.problem():
        pytest.skip(problem)


@pytest.fixture(scope="module")
def rig(request, _possible, spark_sessions, tmp_path_factory):
    """The hosts of ``HOSTS``; the module's ``RIG`` holds further arguments of `running_rig`."""
    spark_sessions.close()
    folder = tmp_path_factory.mktemp("rig")
    with running_rig(folder, *request.module.HOSTS, **getattr(request.module, "RIG", {})) as rig:
        yield rig


@pytest.fixture(scope="module")
def session(request, rig):
    """A session on the hosts, with the module's ``SPARK`` as its settings."""
    with rig.session(getattr(request.module, "SPARK", {})) as session:
        yield session


@pytest.fixture(autouse=True)
def _runs_are_here(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))


@pytest.fixture
def run(session):
    """``tfos_lab.run`` on the hosts, with nodes that start at once; clusters are stopped at the end of the test."""
    with running_clusters({"spark": session, "local": "off", "env": QUICK_ENV}) as start:
        yield start
