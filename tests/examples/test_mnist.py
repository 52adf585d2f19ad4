"""The MNIST programs of ``examples/``, on local Spark; on YARN, ``tests/rigs`` gives programs to spark-submit."""

import re

import pytest

from tests.examples.conftest import TRAINING

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


def test_rows_from_spark_train_by_fit_and_the_model_is_saved(programs, trained):
    assert accuracy_in(trained) > ACCURACY
    assert (programs.folder / "models" / "export" / "saved_model.pb").is_file()
    assert (programs.folder / "models" / "model.keras").is_file()


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
