"""How the end of the user's function becomes an outcome."""

from __future__ import annotations

from types import SimpleNamespace

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


@pytest.mark.parametrize(("nodes", "limit_mb"), [(1, "268.4"), (8, "268.4"), (64, "33.6"), (4096, "0.5")])
def test_results_of_many_nodes_may_take_less_each(monkeypatch, nodes, limit_mb):
    sizes = []

    def encode(_value, *, limit_bytes, implicit):
        sizes.append(limit_bytes)
        raise ResultTooLarge(path="result", type_name="bytes", size_bytes=10**9, limit_bytes=limit_bytes)

    monkeypatch.setattr(invoke, "encode_value", encode)
    context = SimpleNamespace(cluster_spec={"worker": ["host:1"] * nodes})
    outcome = outcome_of(lambda: b"", None, context)
    assert outcome.error == "ResultTooLarge"
    assert f"takes 1,000.0 MB, and all of it may take {limit_mb} MB" in outcome.message
    assert sizes[0] * nodes <= 2 << 30
