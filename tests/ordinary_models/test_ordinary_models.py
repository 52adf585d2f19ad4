"""Each ordinary model, on some nodes: it trains and reports what it does in one process on the same global batches."""

import pytest

from tests.ordinary_models import write
from tests.ordinary_models.compare import assert_as_in_one_process, train_all
from tests.ordinary_models.declare import KERAS, ORDINARY, TF_KERAS

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

# `test_edges.py` has three.
NODES = 2
# So many are trained one after another, so that a cluster needs a part of the time that it may take.
IN_ONE_CLUSTER = 30
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
    """A function that returns what has been found in the cluster that has trained a model, among others."""
    found = {}

    def trained(keras, name):
        names = [ordinary.name for ordinary in chosen(keras)]
        first = names.index(name) // IN_ONE_CLUSTER * IN_ONE_CLUSTER
        if (keras, first) not in found:
            spark, folder = spark_sessions.get("local"), tmp_path_factory.mktemp(keras)
            some = names[first : first + IN_ONE_CLUSTER]
            found[keras, first] = train_all(some, keras, NODES, spark=spark, folder=folder)
        return found[keras, first]

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
    assert_as_in_one_process(trained(keras, name), name)


# What differs there is how rows, targets and weights are given, and which rows of a step count. What a step does with
# them, and the optimizers, are as above.
WHOLE = [
    "dense",
    "masked_tokens",
    "synchronized_batch_normalization",
    "list_of_outputs",
    "dict_of_outputs",
    "sum_of_losses",
    "row_weights",
    "class_weight",
]


@pytest.fixture(scope="module")
def trained_whole(tmp_path_factory):
    return train_all(WHOLE, KERAS, NODES, spark=None, folder=tmp_path_factory.mktemp("whole"), whole=True)


@pytest.mark.full
@pytest.mark.parametrize("name", WHOLE)
def test_nodes_that_all_have_all_rows_train_as_in_one_process(trained_whole, name):
    assert_as_in_one_process(trained_whole, name)


@pytest.mark.parametrize(
    ("name", "sentence", "told"),
    [
        ("plain_batch_normalization", "BatchNormalization takes mean and variance over", [1, 0]),
        ("jit_compile", "jit_compile=True is taken as False", [1, 1]),
    ],
)
@pytest.mark.parametrize("keras", [KERAS, TF_KERAS])
def test_what_is_done_differently_is_told_once(trained, keras, name, sentence, told):
    assert [log.count(sentence) for log in trained(keras, name).logs.values()] == told


def test_the_page_is_what_the_table_writes():
    assert write.PAGE.read_text() == write.page(), "python -m tests.ordinary_models.write"
