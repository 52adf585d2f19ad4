"""Sessions on the stand-in for Kubernetes, configured as docs/deployment.md says; all on loopback."""

import os
from contextlib import ExitStack

import pytest
import yaml

from tests.support.clusters import running_clusters
from tests.support.kube import running_kube
from tests.support.kube_documents import confs_of, manifests_of
from tests.support.quick import QUICK_ENV
from tests.support.spark import spark_session

# What a test cannot take from the page: addresses, and the sizes of a machine that runs other tests, too.
ON_THIS_MACHINE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.port": "0",
    "spark.driver.blockManager.port": "0",
    "spark.executor.instances": "2",
    "spark.executor.memory": "512m",
    # Spark holds the session back until most executors are there; here some never come.
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s",
    "spark.kubernetes.executor.eventProcessingInterval": "100ms",
    "spark.kubernetes.allocation.batch.delay": "200ms",
}


@pytest.fixture(scope="module")
def kube():
    """The stand-in, in whose image are this Python and the mark of this test run."""
    image = {name: os.environ[name] for name in ("PATH", "TFOS_LAB_TEST_RUN")}
    with running_kube(image) as kube:
        yield kube


@pytest.fixture(scope="module")
def open_session(kube, spark_sessions, tmp_path_factory):
    """A function that makes a session by the page's confs below a heading; the session ends with the module."""
    spark_sessions.close()
    folder = tmp_path_factory.mktemp("kubernetes")
    (folder / "executor.yaml").write_text(yaml.safe_dump(*manifests_of("### Pod template")))
    with ExitStack() as stack:

        def make(heading, **changes):
            confs = confs_of(heading) | ON_THIS_MACHINE | {name.replace("_", "."): to for name, to in changes.items()}
            if "spark.kubernetes.executor.podTemplateFile" in confs:
                confs["spark.kubernetes.executor.podTemplateFile"] = str(folder / "executor.yaml")
            confs.pop("spark.master")
            return stack.enter_context(spark_session(kube.master, folder, conf=confs))

        yield make


@pytest.fixture
def run(session, monkeypatch, tmp_path):
    """``tfos_lab.run`` for quick nodes in pods; clusters that still run at the end of the test are stopped."""
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    with running_clusters({"spark": session, "grace": 2.0, "env": QUICK_ENV}) as start:
        yield start
