"""Clusters on the session in client mode on YARN; its executors are on two hosts, as YARN sees them."""

import pytest

from tests.support.clusters import running_clusters


@pytest.fixture(scope="module")
def yarn_spark(spark_sessions):
    """The session, for what lives as long as the module, too."""
    return spark_sessions.get("yarn")


@pytest.fixture(scope="module", autouse=True)
def _runs_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFOS_LAB_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield


@pytest.fixture
def run(yarn_spark):
    """``tfos_lab.run`` on YARN; clusters that still run at the end of the test are stopped."""
    with running_clusters({"spark": yarn_spark}) as start:
        yield start
