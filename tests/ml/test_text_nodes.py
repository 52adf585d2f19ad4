"""What a text estimator's function says of its model, and where that is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.compat.support import FakeContext
from tfos_lab.ml.text_nodes import TextCall, run_alone, said_of, takes_rows

FACTS = {"feature": "x", "label": "y", "vocab_size": None, "embedding_size": None}


@pytest.mark.parametrize(
    ("returned", "metrics"),
    [
        (None, {}),
        ("fine", {}),
        (0.5, {"value": 0.5}),
        ({"loss": 0.5, "note": "fine", "list": [], "epochs": 3}, {"loss": 0.5, "epochs": 3.0}),
        ({"loss": [0.5, 0.25]}, {"loss": 0.25}),
        (SimpleNamespace(history={"loss": [0.5, 0.25], "accuracy": [0.75]}), {"loss": 0.25, "accuracy": 0.75}),
        (object(), {}),
    ],
)
def test_numbers_are_metrics_and_the_rest_need_not_be_sendable(returned, metrics):
    assert said_of(returned) == {"metrics": metrics, "model": ""}


def test_a_path_is_the_models():
    assert said_of({"model": Path("/models/a"), "loss": 1})["model"] == "/models/a"


def alone(function, folder, **fit):
    context = FakeContext({"input": [1, 2, 3]}, output_dir=str(folder))
    return run_alone(TextCall(function, FACTS, {}), fit, context), context


def test_the_function_gets_rows_and_no_context(tmp_path):
    def train(args, ctx, _read_data):
        assert ctx is None
        return {"rows": len(list(_read_data)), "epochs": args.epochs}

    said, context = alone(train, tmp_path, epochs=2)
    assert said == {"metrics": {"rows": 3.0, "epochs": 2.0}, "model": ""}
    assert not context.stopped


def test_rows_that_it_does_not_want_are_not_fed_for_ever(tmp_path):
    _, context = alone(lambda args, ctx, _read_data: None, tmp_path)
    assert context.stopped


@pytest.mark.parametrize("name", ["model", "model.keras"])
def test_a_model_saved_where_it_was_told_to_is_found(tmp_path, name):
    def train(args, ctx, _read_data):
        Path(args["model"]).with_name(name).write_text("a model")

    assert alone(train, tmp_path)[0] == {"metrics": {}, "model": "", "output": name}


def test_a_path_that_the_function_names_counts(tmp_path):
    below, elsewhere = tmp_path / "best" / "model", "/models/best"
    for path, said in [(below, {"model": "", "output": "best/model"}), (elsewhere, {"model": elsewhere})]:
        assert alone(lambda args, ctx, _read_data, path=path: {"model": path}, tmp_path)[0] == {"metrics": {}} | said


def test_the_place_that_a_model_is_given_is_kept(tmp_path):
    def train(args, ctx, _read_data):
        assert args["model"] == "/models/own"

    assert alone(train, tmp_path, model="/models/own")[0] == {"metrics": {}, "model": ""}


def test_an_error_is_the_functions_own(tmp_path):
    def train(args, ctx, _read_data):
        raise KeyError("no such word")

    with pytest.raises(KeyError, match="no such word"):
        alone(train, tmp_path)


def test_a_function_takes_rows_by_name_or_takes_anything():
    assert takes_rows(lambda args, ctx, _read_data: None)
    assert takes_rows(lambda **anything: None)
    assert not takes_rows(lambda args, ctx: None)
