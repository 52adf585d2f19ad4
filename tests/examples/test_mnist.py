"""The MNIST programs of ``examples/``, each run by spark-submit on a real standalone cluster."""

from __future__ import annotations

import re

import pytest

from tests.support.spark_submit import ROOT, make_submit, succeeded

pytestmark = [pytest.mark.tensorflow, pytest.mark.spark]

PROGRAMS = ROOT / "examples" / "mnist"
# Digits, and enough epochs to tell nine in ten of them.
ROWS = 1600
TRAINING = ("--cluster-size", "2", "--epochs", "4", "--batch-size", "25")
ACCURACY = 0.8


@pytest.fixture(scope="session")
def submit(standalone, tmp_path_factory):
    """A function that runs a program with spark-submit on the cluster, in a folder of its own that they share.

    Most programs get one executor, as each costs seconds; the first that trains, and parameter servers, get two.
    """
    folder = tmp_path_factory.mktemp("examples")
    run = make_submit(standalone, folder, PROGRAMS)
    run.folder = folder
    return run


def accuracy_in(printed):
    return float(re.search(r"^accuracy: (\S+)$", printed, re.MULTILINE)[1])


@pytest.fixture(scope="session")
def data(submit):
    """The folder with the images, written as CSV by a job on the cluster."""
    printed = succeeded(
        submit(
            "data_setup.py", "--format", "csv", "--output", "mnist/csv", "--rows", str(ROWS), "--num-partitions", "2"
        )
    )
    assert printed.startswith("<1,")
    return submit.folder / "mnist"


@pytest.fixture(scope="session")
def export_dir(submit, data):
    """The SavedModel that `train_spark.py` exports."""
    places = ("--model-dir", "models", "--export-dir", "models/export")
    printed = succeeded(submit("train_spark.py", "--data", "mnist/csv", *TRAINING, *places, cores=4))
    assert accuracy_in(printed) > ACCURACY
    return submit.folder / "models" / "export"


def lines_of(folder):
    return [line for part in folder.glob("part-*") for line in part.read_text().splitlines()]


def check_lines(predictions, folder, printed):
    """Check that there is a line for each test image, and that they agree as often as was printed."""
    lines = lines_of(predictions)
    assert len(lines) == len(lines_of(folder / "mnist" / "csv" / "test"))
    pairs = [re.fullmatch(r"Label: (\d), Prediction: (\d)", line).groups() for line in lines]
    agreeing = sum(label == prediction for label, prediction in pairs)
    assert agreeing / len(pairs) == pytest.approx(accuracy_in(printed), abs=1e-3)


def test_images_are_written_as_lines_of_a_label_and_784_integers(data):
    assert len(list((data / "csv" / "train").glob("part-*"))) == 2
    numbers = [[int(number) for number in line.split(",")] for line in lines_of(data / "csv" / "train")]
    assert {len(line) for line in numbers} == {785}
    assert {line[0] for line in numbers} == set(range(10))
    assert {max(line[1:]) for line in numbers} <= set(range(256))


def test_rows_from_spark_train_by_fit_and_the_model_is_saved(submit, export_dir):
    assert (export_dir / "saved_model.pb").is_file()
    assert (export_dir.parent / "model.keras").is_file()


def test_rows_from_spark_train_in_a_loop_of_one_s_own(submit, data):
    assert accuracy_in(succeeded(submit("train_spark_loop.py", "--data", "mnist/csv", *TRAINING))) > ACCURACY


def test_nodes_train_on_files_that_they_read_themselves(submit, data):
    assert accuracy_in(succeeded(submit("train_files.py", "--data", "mnist/csv", *TRAINING))) > ACCURACY


def test_workers_train_asynchronously_with_a_parameter_server(submit, data):
    options = ("--cluster-size", "4", "--num-ps", "1", "--epochs", "8", "--batch-size", "25")
    printed = succeeded(submit("parameter_servers.py", "--data", "mnist/csv", *options, cores=4))
    assert accuracy_in(printed) > ACCURACY


def test_an_estimator_trains_and_its_model_scores_the_test_images(submit, data):
    places = ("--model-dir", "pipeline", "--export-dir", "pipeline/export", "--output", "pipeline/predictions")
    printed = succeeded(
        submit(
            "pipeline.py", "--data", "mnist/csv", "--cluster-size", "2", "--epochs", "8", "--batch-size", "25", *places
        )
    )
    assert accuracy_in(printed) > ACCURACY
    assert (submit.folder / "pipeline" / "model.keras").is_file()
    check_lines(submit.folder / "pipeline" / "predictions", submit.folder, printed)


@pytest.mark.parametrize(("program", "cores"), [("inference.py", 1), ("cluster_inference.py", 2)])
def test_each_image_s_label_and_prediction_are_a_line(submit, export_dir, program, cores):
    where = ("--data", "mnist/csv", "--export-dir", "models/export")
    printed = succeeded(submit(program, *where, "--output", program, cores=cores))
    assert accuracy_in(printed) > ACCURACY
    check_lines(submit.folder / program, submit.folder, printed)


def test_a_program_that_fails_has_an_exit_code(submit):
    done = submit("train_spark.py", "--data", "nowhere", cores=1)
    assert done.returncode != 0
    assert "nowhere/train" in done.stderr
