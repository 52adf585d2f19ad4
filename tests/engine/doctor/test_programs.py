"""The doctor's checks of what is installed here."""

from __future__ import annotations

import os
import stat
import sys

import pytest

from tfos_lab.engine.doctor import programs


def program(folder, name, script):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_an_old_python_is_a_problem():
    assert not programs.check_python((3, 10, 2)).ok
    assert programs.check_python((3, 12, 0)).ok


@pytest.mark.parametrize(
    ("said", "ok"), [('openjdk version "21.0.1" 2023-10-17', True), ('java version "1.8.0_412"', False)]
)
def test_the_java_that_spark_would_start_is_asked_for_its_version(said, ok, tmp_path):
    program(tmp_path, "bin/java", f"echo '{said}' >&2")
    finding = programs.check_java({"JAVA_HOME": str(tmp_path)})
    assert finding.ok is ok
    assert finding.advice.startswith("Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")


def test_a_missing_java_is_named_with_what_to_install(tmp_path):
    finding = programs.check_java({"PATH": str(tmp_path)})
    assert not finding.ok
    assert finding.sentence == (
        "Java: none on PATH, and JAVA_HOME is not set; Spark needs Java 17 or newer: "
        "apt-get install openjdk-17-jre-headless, or point JAVA_HOME at one"
    )


def test_a_program_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_COMMAND_TIMEOUT_S", 0.1)
    program(tmp_path, "bin/java", "exec sleep 60")
    finding = programs.check_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    assert finding.found.endswith("is no Java that runs")


def test_packages_are_found_without_importing_them():
    finding = programs.check_package("TensorFlow", ("tensorflow",), (2, 21))
    assert finding.ok
    assert finding.found.startswith("2.")


def test_an_old_package_is_a_problem_and_a_missing_one_too():
    old = programs.check_package("pyspark", ("pyspark",), (99, 0))
    assert (old.ok, old.advice) == (False, "pip install 'pyspark>=99.0'")
    missing = programs.check_package("Nothing", ("tfos-lab-nothing",))
    assert (missing.ok, missing.found) == (False, "not installed")


def test_sparks_python_must_be_like_this_one(tmp_path):
    assert programs.check_spark_python({**os.environ, "PYSPARK_PYTHON": sys.executable}).ok
    other = program(tmp_path, "other", "echo 3.4")
    finding = programs.check_spark_python({"PYSPARK_PYTHON": str(other)})
    assert "is Python 3.4, and this is" in finding.found
    assert finding.advice.startswith(f"export PYSPARK_PYTHON={sys.executable}")
    bare = program(tmp_path, "bare", "echo \"ModuleNotFoundError: No module named 'pyarrow'\" >&2; exit 1")
    assert programs.check_spark_python({"PYSPARK_PYTHON": str(bare)}).found.endswith("lacks pyarrow")
    assert programs.check_spark_python({"PYSPARK_PYTHON": "no-such-python"}).found == "no-such-python does not run"


def test_a_python_from_an_archive_is_not_looked_for_on_this_machine():
    finding = programs.check_spark_python({"PYSPARK_PYTHON": "./environment/bin/python"})
    assert (finding.ok, finding.found) == (
        True,
        "./environment/bin/python, from an archive that Spark unpacks on executors",
    )
