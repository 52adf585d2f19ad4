"""How the end of the user's function becomes an outcome."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tfos_lab.errors import FeedError, ResultTooLarge
from tfos_lab.errors.channel import to_text
from tfos_lab.node import invoke
from tfos_lab.node.invoke import outcome_of

WRAPPED = """{{function_node __wrapped__IteratorGetNext}} FeedError: no more rows come
Traceback (most recent call last):

  File "script_ops.py", line 269, in __call__
    ret = func(*args)

tfos_lab.errors.FeedError: no more rows come

{token}


\t [[{{node PyFunc}}]] [Op:IteratorGetNext] name:
""".replace("{token}", to_text(FeedError(reason="no more rows come")).rpartition(" ")[2])


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        ("tensorflow.python.framework.errors_impl", "FeedError", "no more rows come"),
        ("somewhere.else", "UnknownError", WRAPPED),
    ],
)
def test_an_error_of_ours_that_tensorflow_has_wrapped_is_unwrapped(module, name, message):
    kind = type("UnknownError", (Exception,), {"__module__": module})

    def read():
        raise kind(WRAPPED)

    outcome = outcome_of(read, None, None)
    assert (outcome.kind, outcome.error, outcome.message) == ("raised", name, message)
    assert "in read" in outcome.traceback
    assert outcome.traceback.rstrip().endswith(message.rstrip())


@pytest.mark.parametrize(("nodes", "limit_mb"), [(1, "2,147.5"), (8, "2,147.5"), (64, "268.4"), (4096, "4.2")])
def test_results_of_many_nodes_may_take_less_each(monkeypatch, tmp_path, nodes, limit_mb):
    sizes = []

    def encode(_value, _path, *, limit_bytes, implicit):
        sizes.append(limit_bytes)
        raise ResultTooLarge(path="result", type_name="bytes", size_bytes=10**10, limit_bytes=limit_bytes)

    monkeypatch.setattr(invoke, "encode_result", encode)
    context = SimpleNamespace(cluster_spec={"worker": ["host:1"] * nodes})
    outcome = outcome_of(lambda: b"", None, context, result_file=tmp_path / "result")
    assert outcome.error == "ResultTooLarge"
    assert f"takes 10,000.0 MB, and all of it may take {limit_mb} MB" in outcome.message
    assert sizes[0] * nodes <= invoke.RESULTS_BYTES


def test_a_small_result_is_in_the_outcome_and_a_large_one_in_the_file(tmp_path):
    path = tmp_path / "result"
    small = outcome_of(lambda: np.zeros(10), None, None, result_file=path)
    assert not small.stored_bytes
    assert not path.exists()
    large = outcome_of(lambda: np.zeros(1 << 17), None, None, result_file=path)
    assert (large.value, large.stored_bytes) == (b"", path.stat().st_size)


def test_a_result_that_the_host_has_no_space_for_is_told(tmp_path):
    outcome = outcome_of(lambda: np.zeros(1 << 17), None, None, result_file=tmp_path / "gone" / "result")
    assert (outcome.kind, outcome.error) == ("raised", "ResultNotStored")
    assert f"cannot be stored in {tmp_path / 'gone'} on " in outcome.message


def test_without_a_file_a_result_may_take_256_mib():
    outcome = outcome_of(lambda: np.zeros(300 << 20, np.uint8), None, None)
    assert outcome.error == "ResultTooLarge"
    assert "268.4 MB" in outcome.message
