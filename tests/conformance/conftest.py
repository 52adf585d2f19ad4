"""One suite for every way in which nodes come to life: each test of this folder runs once for each back end.

What a back end cannot take is expressed by the size it is asked for: `inline` has one rank, ``local-cluster`` two.
Sessions and fork servers are shared by all tests of a back end, since they take seconds to start.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from tests.support.clusters import running_clusters


@dataclass(frozen=True)
class BackEnd:
    """Where nodes live.

    Parameters
    ----------
    name : str
        In the names of the tests.
    launcher : str
        What the cluster says of itself.
    ranks : int
        The most nodes that it takes: all task slots, where there are any.
    local : str
        The option that asks for it.
    mode : str or None
        Which session there is; see `tests.support.spark.SPARK_MODES`.
    """

    name: str
    launcher: str
    ranks: int
    local: str = "auto"
    import_environ: str | None = None

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
    BackEnd("local-cluster", "spark", 2, "auto", "local-cluster"),
    BackEnd("connect", "spark", 4, "false", "connect"),
]
# Rows come out of a session: these have one.
FEEDING = [
    BackEnd("inline-session", "inline", 1, "inline", "local"),
    *(back_end for back_end in BACK_ENDS if back_end.import_environ),
]


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "back_ends(*names): where a test of the conformance suite runs; everywhere by default"
    )


def pytest_generate_tests(metafunc):
    """Run a test for all back ends, or for those of ``back_ends`` with these names, or for those that can be fed."""
    if "back_end" not in metafunc.fixturenames:
        return
    chosen = metafunc.definition.get_closest_marker("back_ends")
    known = FEEDING if "frame" in metafunc.fixturenames else BACK_ENDS
    some = [back_end for back_end in known if chosen is None or back_end.name in chosen.args]
    metafunc.parametrize(("back_end", "spark_mode"), [(b, b.import_environ) for b in some], ids=map(str, some))


@pytest.fixture(autouse=True)
def _runs_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))


@pytest.fixture
def spark(spark_sessions, spark_mode):
    """The back end's session, or None."""
    return spark_sessions.get(spark_mode) if spark_mode else None


@pytest.fixture
def run(back_end, spark):
    """``tfos_lab.run`` on the back end; what still lives at the end of the test is stopped."""
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
    """A function that does something once for each back end, for all tests that look at what came of it."""

    def do(name, function):
        key = (back_end.name, name)
        if key not in _kept:
            _kept[key] = SimpleNamespace(**function())
        return _kept[key]

    return do
