"""What every error says, as a user reads it; and how errors cross Spark, TensorFlow and the wire of rows whole."""

from __future__ import annotations

import builtins
import copy
import inspect
import pickle
import re
import traceback

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from tfos_lab import errors
from tfos_lab.core.crossing import carrying, crossing, own_error_in, to_text
from tfos_lab.errors import FeedError, NodeFailed, RunFailed, TfosError

# Those whose sentence depends on the case; `tests/faults/table.py` has what users see of the others.
TEXTS = [
    (
        errors.ShutdownTimeout(waited_s=60, still_running=["worker:0", "worker:1"]),
        (
            "after 60 s still running, and therefore stopped: worker:0, worker:1. "
            "Allow more time with shutdown(timeout=...), or -1 for no limit."
        ),
    ),
    (
        errors.NotEnoughSlots(wanted=3, free=2, total=2, pending="1 executor pod is pending: app-exec-3 (no room)"),
        (
            "cluster_size=3, but Spark has 2 free task slots of 2: 1 executor pod is pending: app-exec-3 (no room). "
            "Ask for cluster_size=2, add executors or cores (spark.executor.instances, spark.executor.cores, "
            "spark.cores.max), or run on this machine with local=processes."
        ),
    ),
    (
        errors.RunFailed(run=3, argument="lr=0.1", kind="lost", message="killed", tries=2, log_tail="the last line\n"),
        "run 3 (lr=0.1), after 2 tries: lost: killed\n--- last lines of run 3 ---\nthe last line",
    ),
    (
        errors.NotEnoughGpus(wanted=2, hosts={"a": [2, 4, 3], "b": [1, 1, 1]}),
        (
            "gpus=2, but a has 4 GPUs for 2 nodes, 1 of them taken by others; b has 1 GPU for 1 node. Ask for fewer "
            "GPUs, for fewer nodes on a host, or for gpus=all to let them share, or wait until others have ended."
        ),
    ),
    (
        errors.SearchFailed(
            failed=[errors.RunFailed(run=0, kind="raised", error="KeyError", message="'lr'", noun="trial")],
            results=[None],
        ),
        (
            "the only trial failed (1 raised), so none is the best\n"
            "  trial 0: KeyError: 'lr'\n"
            "  .results.table has a row for each"
        ),
    ),
    (
        errors.ReservationTimeout(
            reserved=0, wanted=4096, waited_s=600.0, missing=[str(rank) for rank in range(4096)], hint="Look there"
        ),
        (
            "0 of 4,096 nodes reserved within 600 s; missing: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 4,084 more. "
            "Look there."
        ),
    ),
    (
        errors.ExecutorMismatch(problems={"h7": "lacks pyarrow"}, unchosen=True),
        (
            "executors cannot run a node (h7: lacks pyarrow): PYSPARK_PYTHON is not set, so that they run the first "
            "python3 of their PATH. Give the executors the driver's environment: install the packages there, ship them "
            "(tfos-lab pack), or point spark.pyspark.python / PYSPARK_PYTHON at a Python that has them."
        ),
    ),
    (
        errors.NodeFailed(
            node="worker:1",
            kind="ValueError",
            message="boom",
            traceback='  File "Cell In[5], line 3\n',
            also=["worker:2"],
            consequences={"ps:0": "gone", "chief:0": "gone"},
            log_tail="not shown beside a traceback",
        ),
        (
            'worker:1 (and worker:2): ValueError: boom\n--- traceback of worker:1 ---\n  File "Cell In[5], line 3\n'
            "chief:0, ps:0 then failed too, because worker:1 was gone."
        ),
    ),
    (
        errors.NodeFailed(node="chief:0", kind="Exited", message="signal 11", log_tail="last\nwords\n"),
        "chief:0: Exited: signal 11\n--- last lines of chief:0 ---\nlast\nwords",
    ),
    (errors.NodeFailed(node="chief:0", kind="AssertionError", message=""), "chief:0: AssertionError"),
]


def assert_same(found, error):
    assert type(found) is type(error)
    assert vars(found) == vars(error)


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=lambda value: type(value).__name__)
def test_an_error_says_what_happened_and_what_to_do(error, text):
    assert str(error) == text


def value_of(annotation):
    """Return a value for a field of an error."""
    if annotation == "Collection[Any]":
        return [RunFailed(run=1, kind="exited", message="code 3")]
    values = {
        "str": "text é", "int": 3, "bool": True, "float": 2.5, "list[str]": ["a", "b"], "dict[str, str]": {"a": "b"},
        "dict[str, list[int]]": {"a": [2, 4, 3]}, "Sequence[Any]": [1, None],
    }  # fmt: skip
    return values[annotation.removesuffix(" | None")]


def fields_of(kind):
    """Return the annotations of an error's fields, by name."""
    annotations = [item for base in reversed(kind.__mro__) for item in inspect.get_annotations(base).items()]
    return {name: annotation for name, annotation in annotations if "ClassVar" not in annotation}


ERRORS = [
    kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), TfosError) and name != "TfosError"
]


@pytest.mark.parametrize("kind", ERRORS)
def test_each_error_is_the_documented_builtin_and_travels_whole(kind):
    error = kind(**{name: value_of(annotation) for name, annotation in fields_of(kind).items()})
    [builtin] = re.findall(rf"── {kind.__name__} +\((\w+)\)", errors.__doc__)
    assert isinstance(error, getattr(builtins, builtin))
    assert kind.__module__ == "tfos_lab.errors"
    text = str(error)
    assert len(text) > 2
    again = pickle.loads(pickle.dumps(error))
    assert_same(again, error)
    assert str(again) == text
    assert_same(own_error_in(to_text(error)), error)
    with pytest.raises(kind) as caught, crossing():
        raise copy.copy(error)
    left = "".join(traceback.format_exception(caught.value))
    assert_same(own_error_in(left), error)
    assert f"tfos_lab.errors.{kind.__name__}: {text}\n[tfos_lab:" in left, "as a person reads it"


def test_an_error_with_wrong_fields_is_a_mistake_that_names_them():
    with pytest.raises(TypeError, match="FeedError has the fields reason; wrong: reasn, reason"):
        FeedError(reasn="x")


def test_many_failed_runs_are_told_apart_and_show_one_traceback():
    raised = [RunFailed(run=run, kind="raised", error="E", message="m", traceback=f"of {run}") for run in range(30)]
    lost = RunFailed(run=35, kind="lost", message="killed", tries=3)
    error = errors.ParallelFailed(failed=[*raised, lost], results=[None] * 40)
    text = str(error)
    assert text.startswith("31 of 40 runs failed (30 raised, 1 lost)\n"), "all that the history quotes of it"
    assert "  .results (in a notebook sys.last_value.results) has the values of the others\n" in text
    assert "more in .failures" in text
    assert text.count("--- traceback of") == 1
    assert "--- traceback of run 0 ---\nof 0" in text
    assert pickle.loads(pickle.dumps(error)).failures[35].tries == 3


# ---- across Spark, TensorFlow and the wire ------------------------------------------------------

FULL = FeedError(reason="the disk of 'h7' is full: 3.5 GB")
TOKEN = "[tfos_lab:FeedError:eJyrVipKTSzOz1OyUlAqyUhVSMkszlbIT1NQzzBXV8gsVkgrzcmxUjDWM1Vwd1KqBQBYiA3Z]"


@given(st.text(max_size=200))
def test_any_message_crosses(reason):
    error = FeedError(reason=reason)
    assert_same(own_error_in(to_text(error).encode("ascii", "replace").decode()), error)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "connection reset by peer",
        "tfos_lab.errors.FeedError: the disk is full",
        TOKEN[:-8],
        TOKEN[:-8] + "]",
        "[tfos_lab:FeedError:eJyr]",
        TOKEN.replace("FeedError", "SystemExit"),
        TOKEN.replace("FeedError", "NodeFailed"),  # whose fields are others
        TOKEN.replace("FeedError", "ReservationTimeout"),
    ],
)
def test_what_holds_no_whole_error_is_passed_over(text):
    assert own_error_in(text) is None
    assert_same(own_error_in(f"{text} {TOKEN}"), FULL)


def test_very_long_texts_are_shortened_wherever_they_lie():
    error = NodeFailed(
        node="chief:0", kind="ValueError", message="m" * 9000, also=["a" * 9000], consequences={"ps:0": "c" * 9000}
    )
    text = to_text(error)
    assert len(text) < 4000
    found = own_error_in(text)
    for value in (found.message, found.also[0], found.consequences["ps:0"]):
        assert value.endswith("… (8,000 more characters)")


def test_only_errors_of_ours_get_a_token_and_only_one():
    with pytest.raises(ValueError, match="the user's") as caught, crossing():
        raise ValueError("the user's own")
    assert not hasattr(caught.value, "__notes__")
    with pytest.raises(FeedError) as caught, crossing(), crossing():
        raise copy.copy(FULL)
    assert caught.value.__notes__ == [TOKEN]
    assert_same(own_error_in(to_text(pickle.loads(pickle.dumps(caught.value)))), FULL)


def test_carrying_covers_the_call_and_the_iteration():
    @carrying
    def fail(now):
        """Fail."""
        if now:
            raise copy.copy(FULL)
        return _fail_later()

    assert (fail.__name__, fail.__doc__) == ("fail", "Fail.")
    with pytest.raises(FeedError) as caught:
        fail(now=True)
    assert caught.value.__notes__ == [TOKEN]
    rows = fail(now=False)
    assert next(rows) == 1
    with pytest.raises(FeedError) as caught:
        next(rows)
    assert caught.value.__notes__ == [TOKEN]


def _fail_later():
    yield 1
    raise copy.copy(FULL)


def test_a_class_that_is_not_of_tfos_lab_is_never_made():
    class Foreign(TfosError):
        reason: str

    assert own_error_in(to_text(Foreign(reason="x"))) is None


# ---- and for real; across the wire as rows do it, in `tests/node` ------------------------------------------------

# A path, quotes, a line break, and letters beyond ASCII.
ODD = 'the node\'s spool in /tmp/"a b"\\c cannot be written:\nno space [left] {on} 100% of the disk — ähem'
ODD_ERROR = NodeFailed(
    node="worker:1", kind="Lost", message=ODD, also=["ps:0"], consequences={"chief:0": "UnavailableError"}
)


@pytest.mark.parametrize("spark_mode", ["local", "connect"])
def test_an_error_crosses_spark(spark):
    packed = cloudpickle.dumps(ODD_ERROR)

    def task(batches):
        for _ in batches:
            raise cloudpickle.loads(packed)
        yield from ()

    with pytest.raises(PySparkException) as caught:
        spark.range(0, 4, 1, 2).mapInArrow(carrying(task), "id long").collect()
    assert_same(own_error_in(caught.value), ODD_ERROR)
    # A person who reads Spark's text finds the usual traceback.
    assert f"tfos_lab.errors.NodeFailed: {str(ODD_ERROR).splitlines()[0]}" in str(caught.value)


@pytest.mark.tensorflow("here")
def test_an_error_crosses_tensorflow():
    import tensorflow as tf

    @carrying
    def rows():
        yield np.int32(1)
        raise copy.copy(ODD_ERROR)  # TensorFlow runs in this process, and the one that is raised gets a note

    dataset = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((), tf.int32)).prefetch(1)
    with pytest.raises(tf.errors.OpError) as caught:
        list(dataset)
    assert_same(own_error_in(caught.value), ODD_ERROR)
