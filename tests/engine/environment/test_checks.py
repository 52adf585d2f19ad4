"""What the doctor says of the archive that executors get their Python from."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.engine.environment.conftest import LIB, install
from tfos_lab.core.environments import this_platform
from tfos_lab.engine.environment.checks import archive_for, problem_with, unpacked_problem
from tfos_lab.engine.environment.pack import pack

PYTHON = "./environment/bin/python"


def problem(packed, inventory, **options):
    return problem_with(packed.conf["spark.archives"], PYTHON, inventory, **options)


def test_an_archive_that_is_there_and_up_to_date_is_fine(inventory):
    packed = pack(inventory=inventory)
    assert problem(packed, inventory) == ""
    assert problem_with(f"other.zip, file://{packed.path}#environment", PYTHON, inventory) == ""
    assert unpacked_problem(packed.environment.to_json(), inventory, this_platform()) == ""


def test_a_missing_one_is_named(inventory, tmp_path):
    said = problem_with("", PYTHON, inventory)
    assert said == f"executors are to run {PYTHON}, and spark.archives names no archive #environment that holds it"
    gone = tmp_path / "gone.tar.gz"
    assert problem_with(f"{gone}#environment", PYTHON, inventory) == f"spark.archives names {gone}, which is not there"


def test_a_stale_one_is_told_with_the_packages_that_differ(inventory, prefix):
    packed = pack(inventory=inventory)
    for number in range(4):
        install(prefix / LIB, f"new{number}", "1.0", {})
    assert problem(packed, inventory) == (
        f"{packed.path} is stale: new0 missing there, 1.0 here, new1 missing there, 1.0 here, new2 missing there, "
        "1.0 here, and 1 more"
    )
    assert unpacked_problem(packed.environment.to_json(), inventory, this_platform()).startswith(
        "its environment is stale: new0 missing there"
    )


def test_edited_sources_make_it_stale(inventory, tmp_path):
    packed = pack(inventory=inventory)
    (tmp_path / "other/src/found/__init__.py").write_text("PLACE = 'another'\n")
    assert problem(packed, inventory) == f"{packed.path} is stale: files of its packages have changed since"


def test_one_for_another_platform_is_told_in_one_sentence(inventory):
    packed = pack(inventory=inventory)
    assert problem(packed, inventory, platform="linux-aarch64") == (
        f"{packed.path} was packed for {this_platform()}, and executors are linux-aarch64"
    )
    other = dataclasses.replace(packed.environment, python="3.9.1", digest="other")
    assert unpacked_problem(other.to_json(), inventory, this_platform()).startswith(
        "its environment is stale: it has Python 3.9.1, and this is "
    )


def test_archives_of_others_and_remote_ones_are_left_to_the_executors(inventory, tmp_path):
    other = tmp_path / "other.tar.gz"
    other.write_bytes(b"something")
    assert problem_with(f"{other}#environment", PYTHON, inventory) == ""
    assert problem_with("hdfs://names/env.tar.gz#environment", PYTHON, inventory) == ""
    assert unpacked_problem(json.dumps({"digest": 1}), inventory, this_platform()) == ""
    assert unpacked_problem("", inventory, this_platform()) == ""


@pytest.mark.parametrize(
    ("archives", "found"),
    [("a.zip#environment", "a.zip"), ("x.jar,/b/environment", "/b/environment"), ("a.zip", None), ("", None)],
)
def test_archives_go_by_the_name_that_they_are_unpacked_as(archives, found):
    assert archive_for(archives, "environment") == found
