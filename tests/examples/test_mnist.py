"""The MNIST programs of ``examples/``: all of them on local Spark, and one on a standalone cluster."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.examples.conftest import EXPORT, TRAINING
from tests.support.spark_submit import Submit, succeeded
from tfos_lab.data import mnist

pytestmark = [pytest.mark.tensorflow, pytest.mark.spark]

ACCURACY = 0.8


def accuracy_in(printed):
    return float(re.search(r"^accuracy: (\S+)$", printed, re.MULTILINE)[1])


def lines_of(folder):
    return [line for part in folder.glob("part-*") for line in part.read_text().splitlines()]


def check_lines(predictions, data, printed):
    """Check that there is a line for each test image, and that they agree as often as was printed."""
    assert accuracy_in(printed) > ACCURACY
    lines = lines_of(predictions)
    assert len(lines) == len(lines_of(data / "test"))
    pairs = [re.fullmatch(r"Label: (\d), Prediction: (\d)", line).groups() for line in lines]
    agreeing = sum(label == prediction for label, prediction in pairs)
    assert agreeing / len(pairs) == pytest.approx(accuracy_in(printed), abs=1e-3)


def check_models(folder):
    assert (folder / "models" / "export" / "saved_model.pb").is_file()
    assert (folder / "models" / "model.keras").is_file()


def test_rows_from_spark_train_by_fit_and_the_model_is_saved(programs, trained):
    assert accuracy_in(trained) > ACCURACY
    check_models(programs.folder)


def test_spark_submit_trains_on_a_standalone_cluster(spark_sessions, standalone, tmp_path):
    spark_sessions.close()  # one may hold the cores of the cluster
    submit = Submit(standalone, tmp_path)
    digits = mnist(download=False)
    images = {"train": (digits.x_train[:1600], digits.y_train), "test": (digits.x_test[:160], digits.y_test)}
    for name, (pixels, labels) in images.items():
        (tmp_path / name).mkdir()
        rows = np.column_stack([labels[: len(pixels)], pixels.reshape(len(pixels), -1)])
        for part, lines in enumerate(np.array_split(rows, 2)):
            np.savetxt(tmp_path / name / f"part-{part}", lines, "%d", ",")
    printed = succeeded(submit.run("mnist/train_spark.py", "--data", tmp_path, *TRAINING, *EXPORT))
    assert accuracy_in(printed) > ACCURACY
    check_models(tmp_path)


@pytest.mark.parametrize("program", ["train_spark_loop.py", "train_files.py"])
def test_nodes_train_in_a_loop_of_one_s_own_and_on_files_that_they_read_themselves(programs, program):
    assert accuracy_in(programs.run(f"mnist/{program}", "--data", "mnist/csv", *TRAINING)) > ACCURACY


def test_workers_train_asynchronously_with_a_parameter_server(programs):
    options = ("--cluster-size", "3", "--num-ps", "1", "--epochs", "8", "--batch-size", "25")
    assert accuracy_in(programs.run("mnist/parameter_servers.py", "--data", "mnist/csv", *options)) > ACCURACY


def test_an_estimator_trains_and_its_model_scores_the_test_images(programs, data):
    options = ("--data", "mnist/csv", "--cluster-size", "2", "--epochs", "8", "--batch-size", "25")
    places = ("--model-dir", "pipeline", "--export-dir", "pipeline/export", "--output", "pipeline/predictions")
    printed = programs.run("mnist/pipeline.py", *options, *places)
    assert (programs.folder / "pipeline" / "model.keras").is_file()
    check_lines(programs.folder / "pipeline" / "predictions", data, printed)


@pytest.mark.parametrize("program", ["inference.py", "cluster_inference.py"])
def test_each_image_s_label_and_prediction_are_a_line(programs, data, program):
    where = ("--data", "mnist/csv", "--export-dir", "models/export", "--output", f"predictions/{program}")
    printed = programs.run(f"mnist/{program}", *where)
    check_lines(programs.folder / "predictions" / program, data, printed)
