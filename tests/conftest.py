"""Fixtures for all tests: SparkSessions in every mode, a standalone cluster, and a check for leftovers.

The fixture ``spark`` is a session on ``local[2]``. A suite for several modes overrides one fixture, and runs once for
each::

    @pytest.fixture(params=["local", "standalone", "connect", "yarn"])
    def spark_mode(request):
        return request.param

A test of one mode is marked ``@pytest.mark.parametrize("spark_mode", ["standalone"])``. Tests of one mode run together
and share its session, so they have to leave it unchanged. A test that changes the session's configuration, stops it or
kills its JVM uses ``new_spark`` instead. Where several processes share the tests, those of one rig are one process'
(`_group_of`).
"""

import gc
import os
import signal
import sys
from collections import Counter
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path

import hypothesis
import pytest

from tests.rigs.yarn import RigMissing, place_on, yarn_cluster
from tests.support import leftovers
from tests.support.connect_server import connect_server
from tests.support.digits import digits_environ
from tests.support.spark import Place, SparkSessions, spark_session
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
    os.environ.update(digits_environ())
    # Nothing is left behind: fork servers end with the process that has started them.
    os.environ["TFOS_LAB_FORK_SERVER"] = "kernel"


@pytest.hookimpl(tryfirst=True)  # the groups must be there when pytest-xdist looks for them
def pytest_collection_modifyitems(items):
    """Run what one process does for minutes first, then quick tests, then those of a local session.

    Processes then end together. For minutes go tests that have a timeout of their own, and a session or none, those in
    a browser, and those that share a cluster.
    """
    order = ["yarn", "standalone", "long", "connect", None, "local", "own"]

    def place(item):
        session = _session_of(item)
        is_long = session in ("own", None) and any(map(item.get_closest_marker, ("timeout", "browser")))
        return order.index("long" if is_long else session)

    items.sort(key=place)
    for item in items:
        if _session_of(item) is not None:
            item.add_marker("spark")
        if _is_full(item):
            item.add_marker("full")
        item.add_marker(pytest.mark.xdist_group(_group_of(item)))


def pytest_collection_finish():
    """Have no garbage collection look at thousands of tests and all modules again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


# Suites of rigs, of minutes, and of what is built on the core.
_FULL_FOLDERS = {
    "browser",
    "compat",
    "examples",
    "gfile",
    "hosts",
    "kubernetes",
    "ml",
    "rigs",
    "scale",
    "scoring",
    "soak",
    "support",
}
_FULL_MARKS = {"browser", "whole_notebook", "package"}
_FULL_FIXTURES = {"standalone", "standalone_cluster", "yarn", "new_spark"}


def _is_full(item):
    """Whether a test is for ``make test-all`` only: it needs a cluster, a browser or another rig, or takes long."""
    return (
        _session_of(item) not in (None, "local")
        or bool(_FULL_FIXTURES & set(getattr(item, "fixturenames", ())))
        or bool(_FULL_FOLDERS & set(item.path.relative_to(item.config.rootpath).parts))
        or any(item.get_closest_marker(name) for name in _FULL_MARKS)
    )


def _group_of(item):
    """Return which tests run in the same process as this one, as they share what takes seconds to start.

    YARN, the servers of stores, the Connect server, the standalone cluster, JupyterLab, the kernels of notebooks, the
    session of the examples, TensorFlow for the ordinary models and that of Spark's workers that score start once, and
    tests that import TensorFlow themselves do so once. Other tests share what their file keeps.
    """
    if "here" in getattr(item.get_closest_marker("tensorflow"), "args", ()):
        return "tensorflow"
    names = set(getattr(item, "fixturenames", ()))
    mode = _session_of(item)
    folder = item.path.relative_to(item.config.rootpath).parts[1]
    if rigs := names & {"yarn", "secured", "store_servers"}:
        return rigs.pop()
    if mode in ("connect", "yarn"):
        return mode
    if mode == "standalone" or names & {"standalone", "standalone_cluster"}:
        return "standalone"
    if folder in ("browser", "examples", "ordinary_models"):
        return folder
    if folder in ("ml", "scoring"):
        return f"{folder}, {mode}"
    if place := getattr(getattr(item, "callspec", None), "params", {}).get("kernel"):
        return f"{folder}, {place}"
    return f"{item.path}, {mode}"


def _session_of(item):
    """Return the mode of the shared session that a test uses, ``"own"``, or None if it needs no session."""
    names = getattr(item, "fixturenames", ())
    if "yarn_spark" in names:
        return "yarn"
    if "new_spark" in names or ("spark_sessions" in names and "spark" not in names):
        return "own"
    if "spark" not in names:
        return None
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("spark_mode", "local") if callspec else "local"


# ---- minutes by kind ------------------------------------------------------------------------------------------------

_KINDS = ("browser", "whole_notebook", "package", "spark", "tensorflow")
_seconds = Counter()


def pytest_runtest_logreport(report):
    """Add up what tests take, by kind; name those that fail at once, as the summary may be half an hour away."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid}", file=sys.__stderr__, flush=True)
    kind = next((kind for kind in _KINDS if kind in report.keywords), "pure")
    _seconds[kind] += report.duration
    _seconds[f"  {Path(report.fspath).parts[1]}, {kind}"] += report.duration


def pytest_terminal_summary(terminalreporter):
    """Print the minutes by kind, and the folders that take most of them, of all processes together."""
    if sum(_seconds.values()) < 60:
        return
    terminalreporter.section("minutes by kind, and by folder")
    kinds = [(kind, seconds) for kind, seconds in _seconds.items() if not kind.startswith(" ")]
    folders = [(kind, seconds) for kind, seconds in _seconds.items() if kind.startswith(" ")]
    for kind, seconds in [*sorted(kinds, key=itemgetter(1)), *sorted(folders, key=itemgetter(1))[-25:]][::-1]:
        terminalreporter.write_line(f"{seconds / 60:6.1f}  {kind}")


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
def connect(tmp_path_factory):
    """The address of a Spark Connect server."""
    with connect_server(tmp_path_factory.mktemp("connect")) as server:
        yield server.url


@pytest.fixture(scope="session")
def yarn(tmp_path_factory):
    """YARN and HDFS (`tests.rigs.yarn.YarnCluster`); skips where this machine cannot run them."""
    try:
        with yarn_cluster(tmp_path_factory.mktemp("yarn")) as cluster:
            yield cluster
    except RigMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark_sessions(request, tmp_path_factory):
    """The one session that is alive, in the mode that was last asked for."""

    def place_of(mode):
        if mode == "local":
            return Place("local[2]")
        rig = request.getfixturevalue(mode)
        request.node.addfinalizer(sessions.close)  # it comes before the end of the rig
        return place_on(rig) if mode == "yarn" else Place(rig)

    sessions = SparkSessions(tmp_path_factory.mktemp("spark"), place_of)
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
def _leaves_the_path():
    """Fail a test that leaves another PYTHONPATH: nodes of later tests would find its quick TensorFlow there."""
    before = os.environ.get("PYTHONPATH")
    yield
    assert os.environ.get("PYTHONPATH") == before


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
