"""One suite for all launchers: each test of this folder runs once for each back end, a launcher with a session.

Back ends differ in the number of nodes that they can run: `inline` has one rank, ``yarn`` two. Sessions and fork
servers are shared by all tests of a back end, since they take seconds to start. For a new launcher, add it to
`BACK_ENDS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from tests.support.clusters import running_clusters


@dataclass(frozen=True)
class BackEnd:
    """Where nodes live; ``ranks`` is the most nodes that it runs: all task slots, where there are any."""

    name: str
    launcher: str
    ranks: int
    local: str = "auto"
    spark_mode: str | None = None

    def __str__(self):
        return self.name

    @property
    def is_inline(self):
        return self.launcher == "inline"


BACK_ENDS = [
    BackEnd("inline", "inline", 1, "inline"),
    BackEnd("local", "local", 4, "processes"),
    BackEnd("local-session", "local", 4, "auto", "local"),
    BackEnd("standalone", "spark", 4, "auto", "standalone"),
    BackEnd("connect", "spark", 4, "off", "connect"),
    BackEnd("yarn", "spark", 2, "auto", "yarn"),
]
# Rows come from a session: these back ends have one.
FEEDING = [
    BackEnd("inline-session", "inline", 1, "inline", "local"),
    *(back_end for back_end in BACK_ENDS if back_end.spark_mode),
]


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "back_ends(*names): where a test of the conformance suite runs; everywhere by default"
    )
    config.addinivalue_line(
        "markers", "one_spark: neither behind Spark Connect nor on YARN, whose launcher is a standalone cluster's, too"
    )


def pytest_generate_tests(metafunc):
    """Run a test on all back ends, or on those that ``back_ends`` names; with ``frame``, on those that can be fed."""
    if "back_end" not in metafunc.fixturenames:
        return
    chosen = metafunc.definition.get_closest_marker("back_ends")
    is_fed = "frame" in metafunc.fixturenames
    known = FEEDING if is_fed else BACK_ENDS
    # What is seen on another back end: without rows, nodes are started beside a session as without one, and there are
    # tests of that only where they ask for it; with rows, a function in the kernel is fed as nodes are.
    again = "inline-session" if is_fed else "local-session"
    names = chosen.args if chosen else [back_end.name for back_end in known if is_fed or back_end.name != again]
    elsewhere = {"connect", "yarn"} if metafunc.definition.get_closest_marker("one_spark") else set()
    some = [back_end for back_end in known if back_end.name in set(names) - elsewhere]
    values = [
        pytest.param(back_end, back_end.spark_mode, marks=[pytest.mark.full] if back_end.name == again else [])
        for back_end in some
    ]
    metafunc.parametrize(("back_end", "spark_mode"), values, ids=map(str, some))


@pytest.fixture(autouse=True)
def _runs_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))


@pytest.fixture
def spark(spark_sessions, spark_mode):
    """The back end's session, or None."""
    return spark_sessions.get(spark_mode) if spark_mode else None


@pytest.fixture
def run(back_end, spark):
    """``tfos_lab.run`` on the back end; clusters that still run at the end of the test are stopped."""
    with running_clusters({"spark": spark, "local": back_end.local}, ranks=back_end.ranks) as start:
        yield start


@pytest.fixture
def frame(spark):
    """A function that makes a DataFrame of a column ``x``, with partitions of the given sizes."""

    def make(*sizes):
        parts, first = [], 0
        for size in sizes:
            parts.append(spark.range(first, first + size, 1, 1).withColumnRenamed("id", "x"))
            first += size
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.union(part)
        return whole

    return make


@pytest.fixture(scope="session")
def _kept():
    return {}


@pytest.fixture
def once(request, back_end, _kept):
    """A function that does something once for each back end; the tests share the result."""

    def do(name, function):
        key = (back_end.name, name)
        if key not in _kept:
            _kept[key] = SimpleNamespace(**function())
        return _kept[key]

    return do
