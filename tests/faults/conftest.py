"""What goes wrong, done on purpose, to real clusters; with a quick TensorFlow their fork servers are warm at once."""

import pytest

from tests.faults.scene import Scene
from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import NodeFailed


@pytest.fixture(autouse=True)
def _runs_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))


@pytest.fixture
def run(request):
    """``tfos_lab.run`` for two quick nodes: on the executors of a test's ``spark`` if it is no local one, or here."""
    spark = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    is_here = spark is None or request.getfixturevalue("spark_mode") == "local"
    defaults = {"spark": spark, "local": "processes" if is_here else "off", "grace": 2.0, "env": QUICK_ENV}
    with running_clusters(defaults) as start:
        yield start


@pytest.fixture
def scene(request, run, tmp_path, monkeypatch):
    """A cluster to which something is done."""
    spark = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    return Scene(
        run,
        tmp_path,
        spark=spark,
        monkeypatch=monkeypatch,
        # Not one of the test's own fixtures: it would count as one that needs a session.
        close_sessions=lambda: request.getfixturevalue("spark_sessions").close(),
    )


@pytest.fixture
def next_cluster_runs(run):
    """A function that proves that whatever happened, the next cluster runs."""

    def prove():
        assert set(run(lambda: "next").wait(timeout=120).values()) == {"next"}

    return prove


def failure_of(cluster):
    """Wait for the failure of a cluster that runs."""
    with pytest.raises(NodeFailed) as caught:
        cluster.wait(timeout=120)
    return caught.value
