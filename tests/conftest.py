"""Fixtures for all tests: SparkSessions in every mode, a standalone cluster, and a check for leftovers.

The fixture ``spark`` is a session on ``local[2]``. A suite for several modes overrides one fixture, and runs once for
each::

    @pytest.fixture(params=["local", "standalone", "local-cluster", "connect"])
    def spark_mode(request):
        return request.param

A test of one mode is marked ``@pytest.mark.parametrize("spark_mode", ["standalone"])``. Tests of one mode run together
and share its session, so they have to leave it unchanged. A test that changes the session's configuration, stops it or
kills its JVM uses ``new_spark`` instead.
"""

from __future__ import annotations

import gc
import os
import signal
from contextlib import ExitStack

import hypothesis
import pytest

from tests.support import leftovers
from tests.support.spark import SPARK_MODES, SparkSessions, spark_session
from tests.support.standalone import standalone_cluster as run_standalone_cluster

# The same examples each time, for as long as they take: neither chance nor a busy machine decides.
hypothesis.settings.register_profile(
    "tests", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")


def pytest_configure(config):
    gc.disable()  # what is imported and collected stays: see `pytest_collection_finish`
    # Tests send SIGINT to themselves and their processes; background jobs of a shell script start by ignoring it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    leftovers.mark_this_run()
    # Nothing is left behind: fork servers end with the process that has started them.
    os.environ["TFOS_LAB_FORK_SERVER"] = "kernel"


def pytest_collection_modifyitems(items):
    """Run quick tests first, then those that share a session, mode by mode, then those that make their own.

    The long ones of these, which have a timeout of their own, come before the others: processes then end together.
    """
    order = [None, *SPARK_MODES, "own"]

    def place(item):
        session = _session_of(item)
        return order.index(session), session == "own" and item.get_closest_marker("timeout") is None

    items.sort(key=place)
    for item in items:
        if _session_of(item) is not None:
            item.add_marker("spark")


def pytest_collection_finish():
    """Have no garbage collection look at thousands of tests and all modules again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _session_of(item):
    """Return the mode of the shared session that a test uses, ``"own"``, or None if it needs no session."""
    names = getattr(item, "fixturenames", ())
    if "new_spark" in names or ("spark_sessions" in names and "spark" not in names):
        return "own"
    if "spark" not in names:
        return None
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("spark_mode", "local") if callspec else "local"


@pytest.fixture(scope="session")
def standalone_cluster(tmp_path_factory):
    """A standalone cluster of two workers with two cores each."""
    with run_standalone_cluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def standalone(standalone_cluster):
    """The master URL of the standalone cluster."""
    return standalone_cluster.master_url


@pytest.fixture(scope="session")
def spark_sessions(request, tmp_path_factory):
    """The one session that is alive, in the mode that was last asked for."""
    sessions = SparkSessions(tmp_path_factory.mktemp("spark"), lambda: request.getfixturevalue("standalone"))
    yield sessions
    sessions.close()


@pytest.fixture
def spark_mode():
    """The mode of ``spark``; see `tests.support.spark.SPARK_MODES`."""
    return "local"


@pytest.fixture
def spark(spark_sessions, spark_mode):
    """A SparkSession, shared with other tests of the mode."""
    return spark_sessions.get(spark_mode)


@pytest.fixture
def new_spark(spark_sessions, tmp_path):
    """A function that makes a session for this test: ``new_spark(master, connect=False, conf=None, python=None)``."""
    spark_sessions.close()
    with ExitStack() as stack:
        yield lambda master, **options: stack.enter_context(spark_session(master, tmp_path, **options))


@pytest.fixture(autouse=True)
def _leaves_nothing(request):
    """Fail a test marked ``leaves_nothing`` if it leaves a thread or process, and name it."""
    if request.node.get_closest_marker("leaves_nothing") is None:
        yield
        return
    stock = leftovers.Stock()
    yield
    left = stock.leftovers()
    if left:
        pytest.fail(f"{request.node.name} left behind: {', '.join(left)}", pytrace=False)
