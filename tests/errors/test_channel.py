"""Errors as text that wrappers cannot harm; the samples of wrapped ones are what Spark, Flight and TensorFlow made."""

from __future__ import annotations

import copy
import json
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors.test_errors import EXAMPLES
from tfos_lab.errors import ConfigError, FeedError, NodeFailed, TfosError
from tfos_lab.errors.channel import carrying, crossing, own_error_in, to_text, unwrapped

FULL = FeedError(reason="the disk of 'h7' is full: 3.5 GB")
TOKEN = "[tfos_lab:FeedError:eJyrVipKTSzOz1OyUlAqyUhVSMkszlbIT1NQzzBXV8gsVkgrzcmxUjDWM1Vwd1KqBQBYiA3Z]"

SPARK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/app/pyspark.zip/pyspark/worker.py", line 4222, in process
    serializer.dump_stream(out_iter, outfile)
  File "/tmp/tfos_lab-0/code-c177c49c8895b2bd/tfos_lab/node/feed/spool.py", line 75, in make_room
    raise FeedError(reason=f"the disk of {host!r} is full: {size_text(size_bytes)}")
tfos_lab.errors.FeedError: the disk of 'h7' is full: 3.5 GB
[TOKEN]
"""
CLASSIC = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 2.0 (TID 4) (10.0.0.5 executor 1): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "/tmp/tfos_lab-0/code-c177c49c8895b2bd/tfos_lab/errors/channel.py", line 81, in _generate
    return (yield from generator)
            ^^^^^^^^^^^^^^^^^^^^
tfos_lab.errors.FeedError: the disk of 'h7' is full: 3.5 GB
[TOKEN]

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:940)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$3(DAGScheduler.scala:2935)
"""
CONNECT = """
  An exception was thrown from the Python worker. Please see the stack trace below.
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/tmp/tfos_lab-0/code-c177c49c8895b2bd/tfos_lab/errors/channel.py", line 81, in _generate
    return (yield from generator)
            ^^^^^^^^^^^^^^^^^^^^
tfos_lab.errors.FeedError: the disk of 'h7' is full: 3.5 GB
[TOKEN]
 SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.api.python.PythonException
\tat org.apache.spark.sql.execution.python.PythonArrowOutput$$anon$1.read(PythonArrowOutput.scala:145)
"""
# The second copy of the message is escaped, and cut off.
FLIGHT = (
    "FeedError: the disk of 'h7' is full: 3.5 GB [TOKEN]. Detail: Failed. gRPC client debug context: UNKNOWN:"
    """Error from peer {grpc_message:"FeedError: the disk of \\'h7\\' is full: 3.5 GB [tfos_lab:FeedError:eJyrVip"}. """
    "Client context: IOError: Server never sent a data message. Detail: Internal"
)
TENSORFLOW = """{{function_node __wrapped__IteratorGetNext_output_types_1_device_/job:localhost/replica:0/task:0\
/device:CPU:0}} FeedError: the disk of 'h7' is full: 3.5 GB
Traceback (most recent call last):

  File "/opt/python/site-packages/tensorflow/python/ops/script_ops.py", line 269, in __call__
    ret = func(*args)
          ^^^^^^^^^^^

tfos_lab.errors.FeedError: the disk of 'h7' is full: 3.5 GB

[TOKEN]


\t [[{{node PyFunc}}]] [Op:IteratorGetNext] name: \n"""
WRAPPED = {"spark": SPARK, "classic": CLASSIC, "connect": CONNECT, "flight": FLIGHT, "tensorflow": TENSORFLOW}


def assert_same(found, error):
    assert type(found) is type(error)
    assert vars(found) == vars(error)


def as_it_leaves(error):
    """Return the text that Python makes of an error that has left `crossing`."""
    with pytest.raises(type(error)) as caught, crossing():
        raise copy.copy(error)
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("text", WRAPPED.values(), ids=WRAPPED)
def test_an_error_is_found_in_what_wrappers_make_of_it(text):
    text = text.replace("[TOKEN]", TOKEN)
    assert_same(own_error_in(text), FULL)
    assert_same(own_error_in(RuntimeError(text)), FULL)


@pytest.mark.parametrize("wrap", [repr, json.dumps, lambda text: repr(repr(text)), lambda text: text.replace(" ", "+")])
def test_escapes_do_not_harm_it(wrap):
    assert_same(own_error_in(wrap(wrap(to_text(FULL)))), FULL)


@pytest.mark.parametrize("error", [error for error, _, _ in EXAMPLES], ids=lambda error: type(error).__name__)
def test_every_error_crosses_with_its_type_and_fields(error):
    assert_same(own_error_in(to_text(error)), error)
    text = as_it_leaves(error)
    assert_same(own_error_in(text), error)
    assert f"tfos_lab.errors.{type(error).__name__}: {error}\n[tfos_lab:" in text  # as a person reads it


@given(st.text(max_size=200))
def test_any_message_crosses(reason):
    error = FeedError(reason=reason)
    assert_same(own_error_in(to_text(error).encode("ascii", "replace").decode()), error)


def test_the_first_error_of_several_is_the_one():
    assert_same(own_error_in(f"{to_text(FULL)}\nCaused by: {to_text(ConfigError(['a']))}"), FULL)


def test_an_error_of_ours_is_itself():
    assert own_error_in(FULL) is FULL


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


def test_what_returns_no_iterator_and_what_is_a_class_stays_as_it_is():
    assert carrying(lambda: [1, 2])() == [1, 2]
    assert carrying(dict) is dict


def test_unwrapped_raises_what_arrived_in_other_errors():
    theirs = RuntimeError(CLASSIC.replace("[TOKEN]", TOKEN))
    with pytest.raises(FeedError) as caught, unwrapped():
        raise theirs
    assert_same(caught.value, FULL)
    assert caught.value.__cause__ is theirs
    for other in (ValueError("theirs"), FULL):
        with pytest.raises(type(other)) as caught, unwrapped():
            raise other
        assert caught.value is other


def test_a_class_that_is_not_of_tfos_lab_is_never_made():
    class Foreign(TfosError):
        pass

    assert own_error_in(to_text(Foreign(reason="x"))) is None
