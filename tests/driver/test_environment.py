"""A packed environment works elsewhere and is made once; executors that have Python and nothing else run from it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support.clusters import running_clusters
from tests.support.command_line import doctor_finds, tfos_lab_prints
from tests.support.spark_home import spark_home
from tfos_lab.cli import main

LIB = Path(f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages")


def install(site_packages, name, version, files):
    """Install a distribution as pip does: its files, and its metadata."""
    info = site_packages / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for file, text in files.items():
        (site_packages / file).parent.mkdir(parents=True, exist_ok=True)
        (site_packages / file).write_text(text)
    recorded = [*files, f"{info.name}/METADATA", f"{info.name}/RECORD"]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in recorded))


@pytest.fixture
def prefix(tmp_path):
    """An environment with `installed` 1.0, `spare` 2.0, and an editable module."""
    prefix = tmp_path / "env"
    venv.create(prefix, symlinks=True)
    site_packages = prefix / LIB
    install(site_packages, "installed", "1.0", {"installed/__init__.py": "import sys\ndef main(): print(sys.prefix)\n"})
    install(site_packages, "spare_parts", "2.0", {"spare/__init__.py": ""})
    script = prefix / "bin/say-prefix"
    script.write_text(f"#!{prefix}/bin/python\nimport installed\ninstalled.main()\n")
    script.chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    (project / "editable.py").write_text("")
    (site_packages / "_editable.pth").write_text(f"{project}\n")
    return prefix


@contextlib.contextmanager
def as_python_of(folder):
    """Have this process take itself for the Python of an environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.prefix", str(folder))
        patch.setattr("sysconfig.get_path", lambda _name: str(folder / LIB))
        yield


def pack(folder, *arguments):
    """Run ``tfos-lab pack`` in an environment; return the archive and what was printed."""
    with as_python_of(folder):
        printed = tfos_lab_prints("pack", *arguments)
    return Path(printed.partition(" (")[0]), printed


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def python_in(tmp_path):
    """A function that unpacks an archive, and runs code with the Python in it."""

    def run(archive, *arguments):
        folder = tmp_path / "elsewhere/environment"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [folder / "bin" / arguments[0], *arguments[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", env=environ)
        return done.stdout.strip(), folder

    return run


def names_in(archive):
    with tarfile.open(archive) as opened:
        return opened.getnames()


def test_it_works_where_it_is_unpacked_and_takes_nothing_from_elsewhere(prefix, python_in):
    archive, _ = pack(prefix)
    names = names_in(archive)
    assert names[0] == ".tfos_lab_environment.json", "it begins with what it holds"
    assert not [name for name in names if "editable.py" in name]
    with tarfile.open(archive) as opened:
        links = {member.name: member.linkname for member in opened if member.issym()}
    assert Path(links.pop("bin/python")).is_absolute()
    assert set(links.values()) == {"python"}
    prefix.rename(prefix.with_name("moved"))
    place, folder = python_in(archive, "python", "-c", "import installed; print(installed.__file__)")
    assert Path(place).is_relative_to(folder / LIB)
    said, folder = python_in(archive, "say-prefix")
    assert said == str(folder), "its scripts start its own Python"


def test_what_was_packed_is_used_again_until_a_package_changes(prefix):
    first, printed = pack(prefix)
    assert printed.startswith(f"{first} (0 MB, packages: 2, packed in ")
    again, printed = pack(prefix)
    assert again == first
    assert printed.startswith(f"{first} (0 MB, packages: 2, packed before)")
    install(prefix / LIB, "another", "3.0", {"another.py": ""})
    assert pack(prefix)[0] != first


def test_what_a_killed_pack_has_left_goes_with_the_oldest_archives(prefix, cache):
    folder = cache / "tfos_lab/environments"
    folder.mkdir(parents=True)
    for age_s, name in enumerate(("new.tar.gz", "newer.tar.gz", ".killed.tar.gz.123")):
        (folder / name).touch()
        os.utime(folder / name, (100 - age_s, 100 - age_s))
    archive, _ = pack(prefix)
    assert {path.name for path in folder.iterdir()} == {"new.tar.gz", "newer.tar.gz", archive.name}


def test_the_settings_that_use_it_are_told_also_of_a_file_that_was_named(prefix, tmp_path):
    target = tmp_path / "mine.tar.gz"
    for archive, printed in (pack(prefix), pack(prefix, str(target))):
        for name, value in [
            ("spark.archives", f"{archive}#environment"),
            ("spark.yarn.dist.archives", f"{archive}#environment"),
            ("spark.pyspark.python", "./environment/bin/python"),
        ]:
            assert f'.config("{name}", "{value}")' in printed
        assert f"spark-submit --archives {archive}#environment" in printed
    assert archive == target


def test_packages_can_be_left_out_and_executors_may_have_python_elsewhere(prefix):
    archive, printed = pack(prefix, "--exclude", "spare-*", "--python", "/opt/python/bin/python3")
    assert "packages: 1," in printed
    assert not [name for name in names_in(archive) if "spare" in name]
    with tarfile.open(archive) as opened:
        assert opened.getmember("bin/python").linkname == "/opt/python/bin/python3"
        assert b"home = /opt/python/bin\n" in opened.extractfile("pyvenv.cfg").read()


def test_an_environment_that_sees_others_is_refused(prefix, capsys):
    settings = prefix / "pyvenv.cfg"
    settings.write_text(settings.read_text().replace("site-packages = false", "site-packages = true"))
    with as_python_of(prefix):
        assert main(["pack"]) == 1
    assert "also sees packages of the Python below it, which an archive would lack" in capsys.readouterr().err


# ---- on executors ----------------------------------------------------------------------------------------------------


ROOT = Path(__file__).parents[2]
# What nodes and feed tasks import, beside TensorFlow: a stand-in for that is packed, which has the size of a test.
NEEDED = ["cffi", "cloudpickle", "cryptography", "msgspec", "numpy", "pandas", "pyarrow", "pycparser", "pytz"]
NEEDED += ["python-dateutil", "six", "tzdata"]


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    """An archive of an environment with what is needed, tfos_lab among it."""
    folder = tmp_path_factory.mktemp("packed")
    venv.create(folder / "env", symlinks=True)
    site_packages = folder / "env" / LIB
    for name in NEEDED:
        for top in sorted(tops_of(name)):
            link(top, site_packages / top.name)
    for top in [ROOT / "tfos_lab", *(ROOT / "tests/support/quick_tensorflow").iterdir()]:
        link(top, site_packages / top.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield pack(folder / "env")[0]


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


def test_executors_need_only_the_archive(packed, standalone, new_spark):
    conf = {"spark.archives": f"{packed}#environment", "spark.executorEnv.PYTHONPATH": pyspark_path()}
    conf |= {"spark.cores.max": "2", "spark.executor.cores": "2"}
    spark = new_spark(standalone, conf=conf, python=Path("./environment/bin/python"))
    add, square = map_funs()
    with running_clusters({"spark": spark, "grace": 2.0}) as start:
        cluster = start(add, cluster_size=2)
        cluster.train(spark.range(100), objects=True)
        results = dict(cluster.wait(timeout=120))
        cluster = start(square, cluster_size=2)
        squares = cluster.inference(spark.range(10), objects=True).collect()
        cluster.wait(timeout=120)
    assert sorted(squares) == [number**2 for number in range(10)]
    assert sum(total for total, *_ in results.values()) == sum(range(100))
    for _, prefix, files in results.values():
        assert prefix.endswith("/environment")
        assert all(file.startswith(prefix) for file in files)
    findings = doctor_finds()
    assert "is stale: absl-py missing there" in findings["environment"].found, "this Python has more"
    executor = next(finding for what, finding in findings.items() if what.startswith("executor "))
    assert "its environment is stale: absl-py missing there" in executor.found
    assert "tfos-lab pack" in executor.advice
