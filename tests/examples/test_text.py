"""The text program of ``examples/``: both running modes."""

import re
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.spark]


def test_networks_are_compared_and_the_cluster_trains_the_better_one_in_step(programs):
    # Fewer sentences than by default, and enough to read nine in ten; after ten epochs the larger model is better.
    options = ("--rows", "1000", "--epochs", "10", "--cluster-size", "2", "--model", "models/text")
    printed = programs.run("text/classify.py", *options)
    compared = re.findall(r"^(\d+) filters: accuracy (\d\.\d{3}), (\S+)$", printed, re.MULTILINE)
    assert [filters for filters, _, _ in compared] == ["2", "32"]
    assert float(compared[1][1]) > 0.8
    for _, _, path in compared:
        assert Path(path).is_relative_to(programs.folder / "runs")
        assert zipfile.is_zipfile(path)
    assert (programs.folder / "models" / "text.keras").is_file()
    assert float(re.search(r"^accuracy: (\S+)$", printed, re.MULTILINE)[1]) > 0.8
