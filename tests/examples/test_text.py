"""The text program of ``examples/``, run by spark-submit on a real standalone cluster: both running modes."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tests.support.spark_submit import ROOT, make_submit, succeeded

pytestmark = [pytest.mark.tensorflow, pytest.mark.spark]

# Fewer sentences than by default, and enough to read nine in ten; after ten epochs the larger model is the better one.
ARGUMENTS = ("--rows", "1000", "--epochs", "10", "--cluster-size", "2", "--model", "models/text")


@pytest.fixture(scope="module")
def done(standalone, tmp_path_factory):
    """The program, which has run in a folder of its own; both executors have two cores."""
    folder = tmp_path_factory.mktemp("text")
    submit = make_submit(standalone, folder, ROOT / "examples" / "text", {"spark.sql.shuffle.partitions": "2"})
    ended = submit("classify.py", *ARGUMENTS)
    succeeded(ended)
    ended.folder = folder
    return ended


def test_networks_are_compared_and_their_models_are_in_the_runs_folder(done):
    compared = re.findall(r"^(\d+) filters: accuracy (\d\.\d{3}), (\S+)$", done.stdout, re.MULTILINE)
    assert [filters for filters, _, _ in compared] == ["2", "32"]
    assert float(compared[1][1]) > 0.8
    for _, _, path in compared:
        assert Path(path).is_relative_to(done.folder / "runs")
        assert zipfile.is_zipfile(path)


def test_the_cluster_trains_in_step_and_its_model_reads_new_sentences(done):
    assert (done.folder / "models" / "text.keras").is_file()
    assert float(re.search(r"^accuracy: (\S+)$", done.stdout, re.MULTILINE)[1]) > 0.8
