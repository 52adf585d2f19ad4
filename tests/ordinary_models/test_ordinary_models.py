"""Each ordinary model, on some nodes: it trains and reports what it does in one process on the same global batches."""

from __future__ import annotations

import pytest

from tests.ordinary_models import write
from tests.ordinary_models.compare import assert_as_in_one_process, train_all
from tests.ordinary_models.declare import KERAS, ORDINARY, TF_KERAS

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SHORT = [name for name, ordinary in ORDINARY.items() if ordinary.short]
FULL = ("keras", "tf_keras")
# Keras, number of nodes, models.
CASES = {
    "short": (KERAS, 2, SHORT),
    "keras": (KERAS, 3, list(ORDINARY)),
    "tf_keras": (TF_KERAS, 2, list(ORDINARY)),
}


@pytest.fixture(scope="module")
def trained(spark_sessions, tmp_path_factory):
    """A function that returns what training the models of a case has found; they are trained once, in one cluster."""
    found = {}

    def trained(case):
        if case not in found:
            keras, nodes, names = CASES[case]
            spark = spark_sessions.get("local")
            found[case] = train_all(names, keras, nodes, spark=spark, folder=tmp_path_factory.mktemp(case))
        return found[case]

    return trained


def models_of(*cases):
    """Return each model of some cases that its Keras has; those that are not exact have to be so."""
    return [
        pytest.param(
            case, name, id=f"{case}-{name}", marks=[pytest.mark.xfail(reason=why, raises=AssertionError)] if why else []
        )
        for case in cases
        for keras, _, names in [CASES[case]]
        for name in names
        if keras in ORDINARY[name].keras
        for why in [ORDINARY[name].not_exact.get(keras)]
    ]


@pytest.mark.parametrize(("case", "name"), models_of("short"))
def test_some_ordinary_models_train_as_in_one_process(trained, case, name):
    assert_as_in_one_process(trained(case), name)


@pytest.mark.full
@pytest.mark.parametrize(("case", "name"), models_of(*FULL))
def test_an_ordinary_model_trains_as_in_one_process(trained, case, name):
    assert_as_in_one_process(trained(case), name)


@pytest.mark.parametrize("case", ["short", *(pytest.param(case, marks=pytest.mark.full) for case in FULL)])
def test_statistics_of_each_node_are_told_once(trained, case):
    told = [log.count("BatchNormalization takes mean and variance over") for log in trained(case).logs.values()]
    assert told == [1, *[0] * (len(told) - 1)]


def test_the_page_is_what_the_table_writes():
    assert write.PAGE.read_text() == write.page(), "python -m tests.ordinary_models.write"
