"""How the end of the user's function becomes an outcome."""

from __future__ import annotations

import pytest

from tfos_lab.errors import FeedError
from tfos_lab.errors.channel import to_text
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
