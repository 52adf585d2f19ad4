"""The kept versions of a script's output."""

from __future__ import annotations

import threading

import pytest

from tfos_lab.engine.script.versions import Versions
from tfos_lab.errors import ConfigError


def make_output(folder, number):
    output = folder / f"run-{number}" / "output"
    output.mkdir(parents=True)
    (output / "model.txt").write_text(str(number))
    return output


def test_outputs_become_versions_and_the_oldest_are_removed(tmp_path):
    versions = Versions.make(tmp_path / "models", keep=2)
    assert versions.latest is None
    outputs = [make_output(tmp_path, number) for number in range(1, 4)]
    added = [versions.add(output) for output in outputs]
    assert [path.name for path in added] == ["version-0001", "version-0002", "version-0003"]
    assert versions.all() == added[1:]
    assert versions.latest == added[2]
    assert (tmp_path / "models" / "latest" / "model.txt").read_text() == "3"
    assert (outputs[2] / "model.txt").read_text() == "3", "the run's folder leads to it"
    assert not outputs[0].exists()


def test_all_are_kept_by_default_and_numbers_go_on(tmp_path):
    (tmp_path / "models" / "version-0041").mkdir(parents=True)
    (tmp_path / "models" / "version-x").mkdir()
    versions = Versions.make(str(tmp_path / "models"))
    assert versions.add(make_output(tmp_path, 1)).name == "version-0042"
    assert len(versions.all()) == 2


def test_runs_that_end_at_once_get_a_version_each(tmp_path):
    versions = Versions.make(tmp_path / "models")
    threads = [threading.Thread(target=versions.add, args=(make_output(tmp_path, number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = [(path / "model.txt").read_text() for path in versions.all()]
    assert sorted(texts) == [str(number) for number in range(8)]


@pytest.mark.parametrize(
    ("folder", "keep", "problem"),
    [
        ("models", 0, "keep_versions=0: a whole number from 1 on is needed, or None to keep all"),
        ("models", True, "keep_versions=True"),
        ("hdfs://host/models", None, "output_dir='hdfs://host/models': versions are kept in a folder of this machine"),
        ("file", None, "it cannot be made"),
    ],
)
def test_what_cannot_keep_versions_is_refused(tmp_path, folder, keep, problem):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        Versions.make(folder if ":" in folder else tmp_path / folder, keep)
    assert problem in str(caught.value)
