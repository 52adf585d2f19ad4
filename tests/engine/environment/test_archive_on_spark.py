"""Executors that have Python and nothing else: a cluster, its feed and inference run from a packed environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support.clusters import running_clusters
from tests.support.spark_home import spark_home

ROOT = Path(__file__).parents[3]
LIB = Path(f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages")
# What nodes and feed tasks import, beside TensorFlow: a stand-in for that is packed, which has the size of a test.
NEEDED = ["cffi", "cloudpickle", "cryptography", "msgspec", "numpy", "pandas", "pyarrow", "pycparser", "pytz"]
NEEDED += ["python-dateutil", "pyzmq", "six", "tzdata"]


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    """An archive of an environment with what is needed, tfos_lab among it as an editable package."""
    from tfos_lab.engine.environment.inventory import Inventory
    from tfos_lab.engine.environment.pack import pack

    folder = tmp_path_factory.mktemp("packed")
    venv.create(folder / "env", symlinks=True)
    site_packages = folder / "env" / LIB
    for name in NEEDED:
        for top in sorted(tops_of(name)):
            link(top, site_packages / top.name)
    (site_packages / "editable.pth").write_text(f"{ROOT}\n{ROOT / 'tests/support/quick_tensorflow'}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield pack(inventory=Inventory(folder / "env", site_packages))


def tops_of(name: str) -> set[Path]:
    """Return what a distribution has installed right into site-packages."""
    found = distribution(name)
    return {Path(found.locate_file(file.parts[0])) for file in found.files if file.parts[0] != ".."}


def link(source: Path, target: Path) -> None:
    """Link the files of a package, but for those that only its own developers need."""
    if source.is_dir():
        left_out = shutil.ignore_patterns("tests", "include", "*.pyx", "*.pxd")
        shutil.copytree(source, target, ignore=left_out, copy_function=os.symlink, dirs_exist_ok=True)
    else:
        target.symlink_to(source)


def pyspark_path() -> str:
    """Return the Python path that Spark gives to the containers of YARN."""
    return os.pathsep.join(str(path) for path in sorted((spark_home() / "python/lib").glob("*.zip"), reverse=True))


def map_funs():
    """Return functions that are pickled by value: the archive has no tests.

    One sums up the rows of a feed, and says where its packages are; the other answers rows with their squares.
    """

    def add(args, ctx):
        import sys

        import msgspec
        import numpy as np
        import pyarrow as pa

        feed, total = ctx.data_feed(), 0
        while not feed.should_stop():
            total += sum(row[0] for row in feed.next_batch(16))
        return total, sys.prefix, [str(module.__file__) for module in (np, pa, msgspec)]

    def square(args, ctx):
        feed = ctx.data_feed(train_mode=False)
        while not feed.should_stop():
            feed.batch_results([row[0] ** 2 for row in feed.next_batch(16)])

    return add, square


def test_executors_need_only_the_archive(packed, standalone, new_spark, monkeypatch, tmp_path):
    from tfos_lab.engine.doctor import check_session

    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    conf = {**packed.conf, "spark.executorEnv.PYTHONPATH": pyspark_path(), "spark.cores.max": "2"}
    spark = new_spark(standalone, conf=conf, python=Path(packed.conf["spark.pyspark.python"]))
    add, square = map_funs()
    with running_clusters({"spark": spark, "grace_s": 2.0}) as start:
        cluster = start(add, cluster_size=2)
        cluster.train(spark.range(100), objects=True)
        results = dict(cluster.wait(timeout_s=120))
        cluster = start(square, cluster_size=2)
        squares = cluster.inference(spark.range(10), objects=True).collect()
        cluster.wait(timeout_s=120)
    assert sorted(squares) == [number**2 for number in range(10)]
    assert sum(total for total, *_ in results.values()) == sum(range(100))
    for _, prefix, files in results.values():
        assert prefix.endswith("/environment")
        assert all(file.startswith(prefix) for file in files)
    findings = {finding.what: finding for finding in check_session(spark)}
    assert "is stale: absl-py missing there" in findings["environment"].found, "this Python has more"
    executor = next(finding for what, finding in findings.items() if what.startswith("executor "))
    assert "its environment is stale: absl-py missing there" in executor.found
    assert "%tfos pack" in executor.advice


CONTAINER = """
import tfos_lab, pyspark
def where(args, ctx):
    import sys
    return sys.prefix, ctx.node
if __name__ == "__main__":
    with tfos_lab.run(where, cluster_size=2, local="processes") as cluster:
        print(*(prefix for prefix, _ in cluster.wait(timeout_s=60).values()), pyspark.__file__, sep="|")
"""


def test_it_works_through_the_link_that_yarn_makes_in_a_container(packed, tmp_path):
    container, unpacked = tmp_path / "container_01", tmp_path / "filecache/11/env.tar.gz"
    container.mkdir()
    unpacked.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", packed.path, "-C", unpacked], check=True)
    (container / "environment").symlink_to(unpacked)
    (container / "main.py").write_text(CONTAINER)
    ours = {"TFOS_LAB_RUNS": str(tmp_path / "runs"), "TFOS_LAB_FORK_SERVER": "kernel"}
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": pyspark_path()} | ours
    command = ["./environment/bin/python", "main.py"]
    done = subprocess.run(command, cwd=container, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second, pyspark = done.stdout.strip().split("|")
    assert first == second == str(container / "environment")
    assert "pyspark.zip" in pyspark
