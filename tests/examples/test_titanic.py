"""The Titanic's programs of ``examples/``, one after the other, by spark-submit on a real standalone cluster."""

from __future__ import annotations

import re

import pytest

from tests.support.spark_submit import ROOT, make_submit, succeeded

pytestmark = [pytest.mark.tensorflow, pytest.mark.spark, pytest.mark.timeout(600)]

PLACES = ("--data", "titanic", "--export-dir", "models")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("titanic")


@pytest.fixture(scope="module")
def submit(standalone, folder):
    """A function that runs one of the programs."""
    return make_submit(standalone, folder, ROOT / "examples" / "titanic")


@pytest.fixture(scope="module")
def features(submit, folder):
    """The folder with the features as TFRecord files."""
    printed = succeeded(submit("prepare.py", "--output", "titanic", cores=1))
    assert re.search(r"train: 713 passengers in 5 files\nvalid: 178 passengers in 1 files\ntest: 418 pass", printed)
    assert len(list((folder / "titanic" / "train").glob("part-*"))) == 5
    return folder / "titanic"


@pytest.mark.parametrize(("program", "version"), [("train.py", 1), ("train_feature_columns.py", 2)])
def test_a_cluster_trains_from_the_files_and_its_model_does_better_than_the_rule(
    submit, folder, features, program, version
):
    printed = succeeded(submit(program, *PLACES, "--log-dir", "logs"))
    assert f"exported: models/{version}\n" in printed
    assert float(re.search(r"training accuracy: (\S+)", printed)[1]) > 0.75
    assert (folder / "models" / str(version) / "saved_model.pb").is_file()
    assert list((folder / "logs").rglob("events.out.tfevents.*"))

    output = f"predictions-{version}"
    printed = succeeded(submit("score.py", *PLACES, "--output", output, cores=1))
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
