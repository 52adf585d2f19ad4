"""The Titanic's programs of ``examples/``, one after the other."""

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


def train(programs, program, version, *options):
    printed = programs.run(f"titanic/{program}", *PLACES, "--log-dir", "logs", *options)
    assert f"exported: models/titanic/{version}\n" in printed
    assert (programs.folder / "models" / "titanic" / str(version) / "saved_model.pb").is_file()
    return float(re.search(r"training accuracy: (\S+)", printed)[1])


def test_a_model_is_trained_from_the_files_and_scores_passengers(programs, folder):
    # Tutorial 06 trains it on two nodes, for longer, until it does better than the rule.
    assert train(programs, "train.py", 1, "--epochs", "4", "--cluster-size", "1") > 0.7
    assert list((folder / "logs").rglob("events.out.tfevents.*"))

    printed = programs.run("titanic/score.py", *PLACES, "--output", "passengers")
    accuracy, baseline = (
        float(number) for number in re.findall(r"^(?:accuracy|baseline): (\S+)", printed, re.MULTILINE)
    )
    assert 0.7 < baseline < 0.85
    assert accuracy > 0.7
    lines = [line for part in (folder / "passengers").glob("part-*") for line in part.read_text().splitlines()]
    assert len(lines) == 418
    for line in lines:
        _, survives, probability = line.split(",")
        assert int(survives) == (float(probability) > 0.5) or float(probability) == 0.5


def test_the_next_version_is_trained_with_feature_columns(programs, folder):
    assert train(programs, "train_feature_columns.py", 2, "--epochs", "4", "--cluster-size", "1") > 0.6
