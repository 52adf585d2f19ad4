"""Keras 3 on two workers: the same as one process, with every row counted.

One run of `keras_parity_worker.py` computes everything that needs TensorFlow; the tests read its results.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfos_lab.node.keras import workers as keras_workers

SCRIPT = Path(__file__).with_name("keras_parity_worker.py")
STEPS, BATCH, EPOCHS = 6, 32, 3  # as in the script
TOLERANCE = 1e-5
# Half a minute on an idle machine; a loaded one takes ten times as long, and only a hang takes longer.
PATIENCE_S = 600

pytestmark = pytest.mark.timeout(PATIENCE_S + 30)

Found = dict[str, Any]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """What each of the three processes wrote."""
    folder = tmp_path_factory.mktemp("keras_workers")
    output = run_script(folder)
    names = ("worker-0", "worker-1", "alone")
    missing = [name for name in names if not (folder / f"{name}.json").exists()]
    assert not missing, f"{missing} failed:\n{output}"
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in names}


def run_script(folder: Path) -> str:
    root = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": str(root)}
    for name in ("TF_CONFIG", "TF_USE_LEGACY_KERAS", "KERAS_BACKEND"):
        environment.pop(name, None)
    command = [sys.executable, str(SCRIPT), str(folder)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            return process.communicate(timeout=PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"no end after {PATIENCE_S} s; killed\n{process.communicate()[0]}"


@pytest.fixture
def workers(found: dict[str, Found]) -> list[Found]:
    return [found["worker-0"], found["worker-1"]]


@pytest.fixture
def alone(found: dict[str, Found]) -> Found:
    return found["alone"]


def assert_same_learned(one: Found, other: Found, tolerance: float = TOLERANCE) -> None:
    assert_same_weights(one["weights"], other["weights"], tolerance)
    assert one["history"].keys() == other["history"].keys()
    for name, values in one["history"].items():
        assert values == pytest.approx(other["history"][name], abs=tolerance), name


def assert_same_weights(one: list[Any], other: list[Any], tolerance: float = TOLERANCE) -> None:
    assert len(one) == len(other)
    for weight, like in zip(one, other, strict=True):
        np.testing.assert_allclose(np.asarray(weight), np.asarray(like), rtol=0, atol=tolerance)


# --- Keras as it is --------------------------------------------------------------------------------------------------


@pytest.mark.tensorflow
def test_this_keras_cannot_train_on_workers_without_the_patch(workers: list[Found]) -> None:
    for worker in workers:
        assert worker["unpatched_error"], (
            f"Keras {worker['keras']} no longer needs the patch: narrow the version range "
            f"(KERAS_TO_PATCH in {keras_workers.__file__})"
        )
        assert worker["patched"]


@pytest.mark.tensorflow
def test_patching_happens_once_and_only_where_it_is_needed(alone: Found) -> None:
    assert alone["answers"] == {"legacy": False, "later": False, "first": True, "second": True}
    assert alone["untouched_until_needed"]
    assert alone["replaced_once"]


@pytest.mark.tensorflow
def test_patching_before_a_fork_touches_no_device_and_starts_no_thread(alone: Found) -> None:
    assert alone["devices_untouched"]
    assert alone["threads"] == 1


# --- the same as one process -----------------------------------------------------------------------------------------


@pytest.mark.tensorflow
def test_two_workers_of_32_learn_what_one_process_learns_with_64(workers: list[Found], alone: Found) -> None:
    assert len(alone["shared"]["history"]["loss"]) == EPOCHS
    assert "val_loss" in alone["shared"]["history"]
    for worker in workers:
        assert_same_learned(worker["shared"], alone["shared"])


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "what",
    ["shared", "own", "unknown_steps", "one_knows", "none_knows", "several_steps_at_once", "train_on_batch"],
)
def test_both_workers_hold_identical_weights_and_report_identical_numbers(workers: list[Found], what: str) -> None:
    assert_same_learned(workers[0][what], workers[1][what], tolerance=0)


@pytest.mark.tensorflow
def test_evaluate_and_predict_return_what_one_process_does(workers: list[Found], alone: Found) -> None:
    for worker in workers:
        assert worker["evaluate"] == pytest.approx(alone["evaluate"], abs=TOLERANCE)
        np.testing.assert_allclose(worker["predict"], alone["predict"], rtol=0, atol=TOLERANCE)


@pytest.mark.tensorflow
def test_train_on_batch_trains_on_each_workers_half(workers: list[Found], alone: Found) -> None:
    for worker in workers:
        mine, theirs = worker["train_on_batch"], alone["train_on_batch"]
        assert_same_weights(mine["weights"], theirs["weights"])
        assert mine["test"] == pytest.approx(theirs["test"], abs=TOLERANCE)
        for log, like in zip(mine["logs"], theirs["logs"], strict=True):
            assert log == pytest.approx(like, abs=TOLERANCE)


# --- presharded rows -------------------------------------------------------------------------------------------------


@pytest.mark.tensorflow
def test_fit_reads_exactly_the_workers_presharded_rows_each_epoch(workers: list[Found]) -> None:
    for rank, worker in enumerate(workers):
        rows = list(range(1000 * rank, 1000 * rank + STEPS * BATCH))
        assert worker["rows_of_fit"] == rows * EPOCHS
        assert worker["rows_of_loop"] == rows


@pytest.mark.tensorflow
def test_fit_announces_the_steps_of_presharded_rows_and_keeps_their_shape(workers: list[Found]) -> None:
    for worker in workers:
        assert worker["fit_steps"] == {"run": STEPS * EPOCHS, "announced": STEPS}
        assert worker["cardinality"] == STEPS
        assert worker["element_shape"] == [BATCH]


@pytest.mark.tensorflow
def test_tf_keras_takes_presharded_rows_too(workers: list[Found]) -> None:
    for worker in workers:
        assert worker["tf_keras_steps"] == 2 * STEPS


@pytest.mark.tensorflow
def test_datasets_without_the_mark_are_divided_as_usual(workers: list[Found]) -> None:
    first, second = (worker["unmarked"] for worker in workers)
    assert len(first) == len(second) == 4 * BATCH / 2
    assert sorted(first + second) == list(range(4 * BATCH))


@pytest.mark.tensorflow
def test_every_real_row_weighs_the_same_and_padding_weighs_nothing(workers: list[Found], alone: Found) -> None:
    for worker in workers:
        assert_same_learned(worker["own"], alone["own"])
        assert_same_weights(worker["own"]["weights"], alone["without_padding"])


@pytest.mark.tensorflow
def test_workers_with_different_numbers_of_batches_fail_at_once(workers: list[Found]) -> None:
    for worker in workers:
        message = worker["different_steps_error"]
        assert message.startswith("FeedError: the workers have different numbers of batches (6, 5,")
        assert "take(5)" in message


@pytest.mark.tensorflow
def test_workers_whose_numbers_of_batches_are_unknown_wait_for_the_longest(workers: list[Found]) -> None:
    for worker in workers:
        assert len(worker["unknown_steps"]["history"]["loss"]) == 1


@pytest.mark.tensorflow
def test_an_epoch_counts_no_step_too_many_whoever_knows_its_length(found: dict[str, Found]) -> None:
    for process in found.values():
        assert process["one_knows"]["iterations"] == process["none_knows"]["iterations"] == 2 * STEPS
        assert_same_learned(process["one_knows"], process["none_knows"], tolerance=0)


@pytest.mark.tensorflow
def test_the_gpus_of_a_node_share_each_batch(alone: Found) -> None:
    divided = alone["divided"]
    assert divided["even"]["parts"][:3] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert divided["odd"]["parts"][:3] == [[0, 1], [2, 3, 4], [5, 6]]
    assert divided["last batch short"]["parts"][-2:] == [[21], [22, 23]]
    for way, rows in {"even": 24, "odd": 20, "last batch short": 24}.items():
        assert [row for part in divided[way]["parts"] for row in part] == list(range(rows))
        assert divided[way]["length"] == len(divided[way]["parts"])


@pytest.mark.tensorflow
def test_the_mean_over_the_gpus_of_a_node_is_the_mean_over_its_batch(alone: Found) -> None:
    of_one, of_two = 3.0 * 2 * 1 / 3, 3.0 * 2 * 2 / 3
    assert alone["divided_weights"][:2] == [
        [[0.0], [pytest.approx(of_one)], [False]],
        [[1.0, 2.0], [pytest.approx(of_two)] * 2, [False] * 2],
    ]
    # A GPU without a row of its own has a copy that does not count.
    assert alone["divided_weights"][2:] == [[[3.0], [0.0], [True]], [[3.0], [6.0], [False]]]


# --- the rest of Keras -----------------------------------------------------------------------------------------------


@pytest.mark.tensorflow
def test_checkpoints_backups_tensorboard_and_export_work(workers: list[Found]) -> None:
    for worker in workers:
        assert worker["epochs_run"] == [1, 2], "the second fit goes on where the backup ended"
        assert worker["reloaded"]
        assert worker["event_files"] >= 1
        assert worker["export_error"] < TOLERANCE


@pytest.mark.tensorflow
def test_fit_with_parameter_servers_says_what_to_use_instead(alone: Found) -> None:
    assert alone["parameter_servers_error"].startswith("ConfigError: Keras 3 has no `fit` with parameter servers.")
    assert "TF_USE_LEGACY_KERAS" in alone["parameter_servers_error"]


def test_versions_are_compared_by_their_first_two_numbers() -> None:
    assert keras_workers._version("3.15.1") == (3, 15)
    assert keras_workers._version("3.16.0.dev2026") == (3, 16)
