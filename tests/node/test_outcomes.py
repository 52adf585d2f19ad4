"""How the end of the user's function becomes an outcome: its exception as text, its result within its limits."""

import linecache
import os
import re
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from tests.faults.table import ONE_VALUE

# ---- exceptions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cell(run):
    """A function that runs source as the body of a cell on a node, and returns the outcome."""

    def cell(source, number=5, **names):
        filename = f"<ipython-input-{number}-{abs(hash(source)):x}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        space = {"__name__": "__main__", **names}
        exec(compile(source, filename, "exec"), space)
        map_fun = space["map_fun"]
        map_fun.__code__ = map_fun.__code__.replace(co_name="<module>")  # as the body of a cell has it
        outcome = run(map_fun).outcome()
        assert outcome.kind == "raised", outcome
        return outcome

    return cell


def test_the_cell_s_own_lines_are_shown_with_the_cell_s_name_and_its_functions(cell):
    outcome = cell("\n\ndef map_fun(args, ctx):\n    x = 1\n    return x / 0\n")
    assert (outcome.error, outcome.message) == ("ZeroDivisionError", "division by zero")
    assert "  Cell In[5], line 5\n    return x / 0\n" in outcome.traceback
    assert outcome.traceback.endswith("ZeroDivisionError: division by zero")
    assert "ipykernel" not in outcome.traceback
    text = cell("def map_fun(args, ctx):\n    def step():\n        raise KeyError('k')\n    step()\n").traceback
    text = text.replace("    ~~~~^^\n", "")  # newer Pythons underline the call
    assert "  Cell In[5], line 4\n    step()\n  Cell In[5], line 3, in step\n    raise KeyError('k')\n" in text


def test_an_error_s_class_of_the_cell_goes_by_its_name(cell):
    defined = "def map_fun(args, ctx):\n    class Mine(Exception):\n        pass\n"
    assert cell(f"{defined}    raise Mine('a.<locals>.b: c')\n").traceback.endswith("\nMine: a.<locals>.b: c")
    assert cell(f"{defined}    raise Mine\n").traceback.endswith("\nMine")


def test_frames_of_tfos_lab_are_left_out(cell):
    text = cell("def map_fun(args, ctx):\n    ctx.dataset(0)\n").traceback
    assert "    ctx.dataset(0)\n" in text
    assert "tfos_lab/" not in text
    assert "<string>" not in text


@pytest.mark.parametrize(("package", "is_left_out"), [("keras", True), ("numpy", False)])
def test_how_a_framework_came_to_call_tfos_lab_is_left_out(run, package, is_left_out):
    space = {"__name__": "__main__"}
    file = find_spec(package).origin
    exec(compile("def map_fun(args, ctx):\n    ctx.dataset(0)\n", file, "exec"), space)
    text = run(space["map_fun"]).outcome().traceback
    assert "tfos_lab.errors.ConfigError: batch_size=0" in text
    assert (file not in text) == is_left_out


def test_chained_exceptions_are_kept(cell):
    template = (
        "def map_fun(args, ctx):\n    try:\n        {}['a']\n    except KeyError as e:\n        raise OSError('b')"
    )
    caused, implied, silent = (cell(template + end).traceback for end in (" from e", "", " from None"))
    assert re.search(r"KeyError: 'a'\n+The above exception was the direct cause .*OSError: b$", caused, re.DOTALL)
    assert "During handling of the above exception" in implied
    assert "KeyError: " not in silent


def test_groups_of_exceptions_are_shown_one_by_one(cell):
    text = cell(
        "def map_fun(args, ctx):\n    raise ExceptionGroup('both', [ValueError('a'), OSError('b')])\n"
    ).traceback
    assert "--- exception 1 of the group ---\n  ValueError: a" in text
    assert "--- exception 2 of the group ---\n  OSError: b" in text


def test_long_runs_of_frames_inside_libraries_are_folded_and_short_ones_shown(cell):
    library = (
        "def f(n):\n    if n == 0:\n        raise ValueError('deep')\n    return g(n - 1)\ndef g(n):\n    return f(n)\n"
    )
    space = {}
    exec(compile(library, "/x/site-packages/keras/deep.py", "exec"), space)
    text = cell("def map_fun(args, ctx):\n    f(9)\n", f=space["f"]).traceback
    assert text.count("site-packages/keras/deep.py") == 3
    assert "  … 16 frames in keras …" in text
    text = cell("import json\ndef map_fun(args, ctx):\n    json.loads('{')\n").traceback
    assert "decoder.py" in text
    assert "…" not in text


def test_endless_recursion_is_counted_not_listed(cell):
    text = cell("def map_fun(args, ctx):\n    return map_fun(args, ctx)\n").traceback
    assert re.search(r"\[repeated \d+ more times\]", text)
    assert len(text.splitlines()) < 10


def test_an_error_whose_message_fails_is_still_shown(cell):
    outcome = cell(
        "class Mute(Exception):\n    def __str__(self):\n        raise KeyError\n"
        "def map_fun(args, ctx):\n    raise Mute\n"
    )
    assert (outcome.error, outcome.message) == ("Mute", "<the message could not be made: KeyError>")
    assert "raise Mute" in outcome.traceback


def test_an_error_that_names_a_file_whose_name_is_no_utf8_is_shown(cell):
    outcome = cell("import os\ndef map_fun(args, ctx):\n    raise ValueError(os.fsdecode(b'\\xff.csv'))\n")
    assert outcome.message == "\\udcff.csv"
    assert "ValueError: \\udcff.csv" in outcome.traceback


def test_file_names_of_cells_in_messages_become_their_labels(cell):
    source = "def map_fun(args, ctx):\n    raise RuntimeError(f'in user code:\\n  File \"{where()}\", line 2')\n"
    outcome = cell(source, number=8, where=lambda: sys._getframe(1).f_code.co_filename)
    assert outcome.message == "in user code:\n  Cell In[8], line 2"


def test_long_messages_and_tracebacks_are_shortened(cell):
    outcome = cell("def map_fun(args, ctx):\n    raise ValueError(args or 'line\\n' * 5000 + 'x' * 1_000_000)\n")
    assert len(outcome.message) < 20_100
    assert len(outcome.traceback) <= 100_000
    assert len(outcome.traceback.splitlines()) <= 200
    assert "lines left out" in outcome.traceback
    assert outcome.traceback.startswith("Traceback (most recent call last):")


def test_what_a_coordinator_raises_for_a_lost_parameter_server_is_a_consequence(run):
    def lose():
        class PSUnavailableError(Exception):
            pass

        raise PSUnavailableError("Failed to connect to remote target /job:ps/replica:0/task:0: connection refused")

    assert run(lose).outcome().consequence
    assert not run(lambda: 1 / 0).outcome().consequence


def of_another_shape():
    import keras

    model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.zeros((4, 28, 28)), np.zeros(4), verbose=0)


def a_label_too_large():
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(np.zeros((4, 2)), np.array([0, 1, 2, 11]), verbose=0)


def several_columns_for_one_input():
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model({"age": np.zeros((4, 1)), "fare": np.zeros((4, 1))})


def a_layer_that_fails():
    import keras
    import tensorflow as tf

    class Factor(keras.layers.Layer):
        def call(self, rows):
            return tf.linalg.cholesky(tf.reshape(rows, (-1, 1, 2)))

    keras.Sequential([keras.Input((2,)), Factor()])


def multiply():
    import tensorflow as tf

    tf.function(lambda: tf.matmul(tf.zeros((2, 3)), tf.zeros((2, 3))))()


def read_what_is_not_there():
    import tensorflow as tf

    list(tf.data.TFRecordDataset("/nowhere/x"))


def fail_in_a_map():
    import tensorflow as tf

    def fail(number):
        raise KeyError("gone")

    list(tf.data.Dataset.range(3).map(lambda number: tf.py_function(fail, [number], tf.int32)))


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (of_another_shape, r"Invalid input shape for input Tensor.* Expected shape \(None, 784\), but input has .*"),
        (a_label_too_large, r"Received a label value of 11 which is outside the valid range of \[0, 3\)\..*"),
        (
            several_columns_for_one_input,
            r"The structure of `inputs` .* Expected: keras_t.* Received: inputs={'age': .*",
        ),
        (a_layer_that_fails, r"Could not automatically infer .* Error encountered: Dimensions must be equal.*"),
        (multiply, r"Dimensions must be equal, but are 3 and 2 for .*"),
        (read_what_is_not_there, r"/nowhere/x; No such file or directory"),
        (fail_in_a_map, r"KeyError: 'gone'"),
    ],
)
def test_of_an_error_of_tensorflow_or_keras_the_line_that_informs_is_the_message(run, fails, told):
    outcome = run(fails, extra_env={}).outcome()
    assert re.fullmatch(told, outcome.message), outcome.message
    assert f"in {fails.__name__}" in outcome.traceback
    assert re.split(" Expected: | Dimensions ", outcome.message)[0] in outcome.traceback
    assert "raise e.with_traceback" not in outcome.traceback
    assert "site-packages" not in outcome.traceback.partition("Detected at node")[2]


def test_a_loop_over_batches_of_two_parts_is_told_of_the_third(cell):
    source = (
        "class Rows:\n    def dataset(self, size):\n        return [(1, 2, 3)]\n"
        "def map_fun(args, ctx):\n    for step, (x, y) in enumerate({}):\n        pass\n"
    )
    told = cell(source.format("Rows().dataset(4)")).message
    assert told.startswith("too many values to unpack (expected 2): a batch with a label is (x, y, w)")
    assert cell(source.format("[(1, 2, 3)]")).message == "too many values to unpack (expected 2)"


@pytest.mark.parametrize("rows", [None, 4])
def test_a_model_that_does_not_say_what_it_takes_is_told_how_a_column_of_one_value_comes(cell, rows):
    said = f"dense: {ONE_VALUE.format(rows)}"
    told = cell(f"def map_fun(args, ctx):\n    raise ValueError({said!r})\n").message
    assert told.startswith(f"{said}: a column of one value per row is (rows,): begin the model with")


# ---- results --------------------------------------------------------------------------------------------------------


def return_too_much():
    return np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (10**10,), (0,))  # takes one byte


@pytest.mark.parametrize(("nodes", "limit_mb"), [(1, "2,147.5"), (8, "2,147.5"), (64, "268.4"), (4096, "4.2")])
def test_results_of_many_nodes_may_take_less_each(run, nodes, limit_mb):
    """All of them together no more than 16 GiB."""
    outcome = run(return_too_much, start={"cluster_spec": {"worker": ["host:1"] * nodes}}).outcome()
    assert outcome.error == "ResultTooLarge"
    assert f"takes 10,000.0 MB, and all of it may take {limit_mb} MB" in outcome.message


def test_a_result_that_the_host_has_no_space_for_is_told(run, small_disk, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    outcome = run(lambda: np.ones(1 << 20), owner=f"small-{os.getpid()}").outcome()
    assert (outcome.kind, outcome.error) == ("raised", "ResultNotStored")
    assert f"cannot be stored in {small_disk}" in outcome.message
