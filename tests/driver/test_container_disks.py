"""In a container of YARN, what may be large is on the disks that YARN gives to the application, until its node ends."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tfos_lab
from tests.support.eventually import eventually

SECONDS = 60.0


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """The first disk that can be written to."""
    monkeypatch.setenv("LOCAL_DIRS", f"{tmp_path / 'broken'},{tmp_path / 'second'},{tmp_path / 'third'}")
    for name in ("second", "third"):
        (tmp_path / name).mkdir()
    return tmp_path / "second"


def look_around(args, ctx):
    first = next(ctx.dataset(4).as_numpy_iterator())["x"].tolist()
    Path(ctx.output_dir, "notes").write_text("x")
    Path("written").write_text("x")
    scratch = os.environ["TFOS_LAB_SCRATCH"]
    files = [path for path in Path(os.path.realpath(scratch)).rglob("*") if path.is_file()]
    return {
        "first": first,
        "sum": args.sum(),
        "scratch": scratch,
        "places": [*map(str, files), os.path.realpath(scratch), os.path.realpath(".")],
    }


def files_below(folder):
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def test_nodes_write_to_the_container_s_disk_and_leave_nothing_there(disk, tmp_path, run):
    large = np.ones(2_000_000)
    cluster = run(look_around, large)
    cluster.train({"x": np.arange(64)})
    results = cluster.wait(SECONDS)
    assert {result["sum"] for result in results.values()} == {large.sum()}
    assert all(len(result["first"]) == 4 for result in results.values())
    for node, result in results.items():
        outside = [place for place in result["places"] if not Path(place).is_relative_to(disk)]
        # On this machine the chief stays in the folder of the notebook.
        assert outside == ([str(Path.cwd())] if node == "chief:0" else [])
        assert any("spool" in place for place in result["places"])
    links = [Path(result["scratch"]) for result in results.values()]
    assert (cluster.run_dir / "output" / "notes").read_text() == "x"
    cluster.stop()
    eventually(lambda: not any(map(os.path.lexists, links)))
    # What the application has in common goes with it: the code, links to its folder, and logs of fork servers.
    common = ("/code-", "/links/")
    left = [
        path for path in files_below(disk) if path.suffix != ".log" and not any(part in str(path) for part in common)
    ]
    assert not left
    assert not files_below(tmp_path / "third")


@pytest.fixture
def run(tmp_path, monkeypatch, spark):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    clusters = []

    def start(map_fun, args):
        cluster = tfos_lab.run(map_fun, args, cluster_size=2, spark=spark)
        clusters.append(cluster)
        return cluster

    yield start
    for cluster in clusters:
        cluster.stop(grace=0.0)
