"""What a text estimator's function finds in its ``args``, however it looks for it."""

from __future__ import annotations

import copy
import pickle

import pytest

from tfos_lab.ml.text_arguments import Arguments, FitParam, FitParamList, make_arguments

FACTS = {"feature": "matrix", "label": None, "vocab_size": None, "embedding_size": 8}
FIT = {"epochs": 5, "batch_size": 64, "model": "/tmp/model"}


def made(*, in_list, **fit):
    return make_arguments(FACTS, {"runningMode": "TFoS", "inputCol": "matrix"}, FIT | fit, in_list=in_list)


@pytest.mark.parametrize("in_list", [False, True])
def test_a_models_parameters_are_found_in_every_way_that_programs_use(in_list):
    args = made(in_list=in_list)
    fit_param = args["params"]["fitParam"]
    assert fit_param[0]["epochs"] == fit_param["epochs"] == fit_param.epochs == args["epochs"] == args.epochs == 5
    assert (args.params.inputCol, args["params"]["runningMode"]) == ("matrix", "TFoS")
    assert dict(**fit_param) == FIT


def test_it_is_a_dict_alone_and_a_list_on_a_cluster():
    assert isinstance(made(in_list=False)["params"]["fitParam"], dict)
    listed = made(in_list=True)["params"]["fitParam"]
    assert isinstance(listed, list)
    assert listed == [FIT]


def test_what_the_rows_tell_counts_and_else_what_the_model_is_given():
    args = made(in_list=False, vocab_size=900, embedding_size=4, label="no")
    assert (args.feature, args.label, args.embedding_size) == ("matrix", "no", 8)
    assert args["vocab_size"] == args["vacab_size"] == 900
    assert made(in_list=False)["vacab_size"] is None


def test_they_can_be_pickled_and_copied():
    for value in (FitParam(FIT), FitParamList([FitParam(FIT)]), made(in_list=True)):
        for again in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
            assert again == value
            assert type(again) is type(value)


def test_an_unknown_name_is_told():
    with pytest.raises(AttributeError, match="args has no 'steps'; it has epochs"):
        Arguments(epochs=5).steps  # noqa: B018 - it raises
    with pytest.raises(KeyError):
        FitParam(epochs=5)[1]
    assert not hasattr(FitParamList([]), "__array__")
