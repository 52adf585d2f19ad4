"""Each ordinary model, on some nodes: it trains and reports what it does in one process on the same global batches."""

from __future__ import annotations

import pytest

from tests.ordinary_models import write
from tests.ordinary_models.compare import assert_as_in_one_process, train_all
from tests.ordinary_models.declare import KERAS, ORDINARY, TF_KERAS

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

# `test_edges.py` has three.
NODES = 2
# What is done for tf_keras in another way than for Keras 3.
OF_TF_KERAS = {
    "class_weight",
    "dict_of_outputs",
    "jit_compile",
    "plain_batch_normalization",
    "synchronized_batch_normalization",
}


def chosen(keras):
    """Return all models of Keras 3, and some of tf_keras; the others are trained by ``make matrix LEG=tf_keras``."""
    return [one for one in ORDINARY.values() if keras in one.keras and (keras == KERAS or one.name in OF_TF_KERAS)]


@pytest.fixture(scope="module")
def trained(spark_sessions, tmp_path_factory):
    """A function that returns what training models of a Keras has found; they are trained once, in one cluster."""
    found = {}

    def trained(keras):
        if keras not in found:
            spark, folder = spark_sessions.get("local"), tmp_path_factory.mktemp(keras)
            names = [ordinary.name for ordinary in chosen(keras)]
            found[keras] = train_all(names, keras, NODES, spark=spark, folder=folder)
        return found[keras]

    return trained


def models_of(keras):
    """Return the models of a Keras; those that are not exact have to be so."""
    return [
        pytest.param(
            keras,
            ordinary.name,
            id=f"{keras}-{ordinary.name}",
            marks=[pytest.mark.xfail(reason=why, raises=AssertionError)] if why else [],
        )
        for ordinary in chosen(keras)
        for why in [ordinary.not_exact.get(keras)]
    ]


@pytest.mark.parametrize(("keras", "name"), [*models_of(KERAS), *models_of(TF_KERAS)])
def test_an_ordinary_model_trains_as_in_one_process(trained, keras, name):
    assert_as_in_one_process(trained(keras), name)


@pytest.mark.parametrize(
    ("sentence", "told"),
    [("BatchNormalization takes mean and variance over", [1, 0]), ("jit_compile=True is taken as False", [1, 1])],
    ids=["statistics", "jit_compile"],
)
@pytest.mark.parametrize("keras", [KERAS, TF_KERAS])
def test_what_is_done_differently_is_told_once(trained, keras, sentence, told):
    assert [log.count(sentence) for log in trained(keras).logs.values()] == told


def test_the_page_is_what_the_table_writes():
    assert write.PAGE.read_text() == write.page(), "python -m tests.ordinary_models.write"
