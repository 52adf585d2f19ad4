"""The Titanic's programs of ``examples/``, one after the other."""

from __future__ import annotations

import re

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.spark, pytest.mark.timeout(600)]

PLACES = ("--data", "titanic", "--export-dir", "models/titanic")


@pytest.fixture(scope="module")
def folder(programs):
    """The folder of the programs, with the features as TFRecord files."""
    printed = programs.run("titanic/prepare.py", "--output", "titanic")
    assert re.search(r"train: 713 passengers in 5 files\nvalid: 178 passengers in 1 files\ntest: 418 pass", printed)
    assert len(list((programs.folder / "titanic" / "train").glob("part-*"))) == 5
    return programs.folder


@pytest.mark.parametrize(("program", "version"), [("train.py", 1), ("train_feature_columns.py", 2)])
def test_a_cluster_trains_from_the_files_and_its_model_does_better_than_the_rule(programs, folder, program, version):
    printed = programs.run(f"titanic/{program}", *PLACES, "--log-dir", "logs")
    assert f"exported: models/titanic/{version}\n" in printed
    assert float(re.search(r"training accuracy: (\S+)", printed)[1]) > 0.75
    assert (folder / "models" / "titanic" / str(version) / "saved_model.pb").is_file()
    assert list((folder / "logs").rglob("events.out.tfevents.*"))

    output = f"passengers-{version}"
    printed = programs.run("titanic/score.py", *PLACES, "--output", output)
    accuracy, baseline = (
        float(number) for number in re.findall(r"^(?:accuracy|baseline): (\S+)", printed, re.MULTILINE)
    )
    assert 0.7 < baseline < 0.85
    assert accuracy > baseline
    lines = [line for part in (folder / output).glob("part-*") for line in part.read_text().splitlines()]
    assert len(lines) == 418
    for line in lines:
        _, survives, probability = line.split(",")
        assert int(survives) == (float(probability) > 0.5) or float(probability) == 0.5
