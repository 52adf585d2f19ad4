"""Runs that hang: one of `tfos_lab.parallel` among others, a trial of a search, and a script."""

from __future__ import annotations

import threading

import pytest

import tfos_lab
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import NodeFailed, ParallelFailed

# Longer than a busy machine holds a node back.
OPTIONS = {"local": "processes", "env": QUICK_ENV, "grace_s": 0.2, "hang_timeout_s": 5.0, "on_hang": "fail"}


def report_and_return(args, ctx):
    """Report a step; then return, or hang in the user's code."""
    ctx.report(step=1)
    if args:
        sleep_in_user_code()
    return "done"


def hang_at_one(args, ctx):
    """Report a loss that is least for x = 0; then return, or hang in the user's code."""
    ctx.report(step=1, loss=float(args["x"]))
    if args["x"] == 1:
        sleep_in_user_code()
    return "done"


def sleep_in_user_code():
    threading.Event().wait()


def test_a_run_that_hangs_fails_with_its_stacks_and_the_others_return():
    with pytest.raises(ParallelFailed) as caught:
        tfos_lab.parallel(report_and_return, [False, True], show=False, **OPTIONS)
    assert caught.value.results[0] == "done"
    [failure] = caught.value.failures.values()
    assert (failure.run, failure.kind, failure.error) == (1, "hung", "")
    assert failure.headline.startswith("run 1 (True): hung: no step, row or log line for ")
    assert ", in sleep_in_user_code" in failure.message
    assert "--- stacks of run 1 ---" in str(failure)


def test_a_trial_that_hangs_is_a_failed_row_with_its_stacks_and_the_others_count():
    found = tfos_lab.search(hang_at_one, {"x": [0, 1, 2]}, show=False, **OPTIONS)
    assert (found.best.params, found.best.value) == ({"x": 0}, "done")
    table = found.table
    assert list(table["x"]) == [0, 2, 1]
    assert list(table["state"]) == ["done", "done", "failed"]
    assert table["error"][2].startswith("hung: no step, row or log line for ")
    [failure] = found.failures.values()
    assert (failure.run, failure.kind) == (1, "hung")
    assert ", in sleep_in_user_code" in str(failure)


def test_a_script_that_hangs_has_failed(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import threading\nctx.report(step=1)\nthreading.Event().wait()\n")
    run = tfos_lab.run_script(script, show=False, **OPTIONS)
    with pytest.raises(NodeFailed) as caught:
        run.wait(timeout_s=60)
    assert (caught.value.node, caught.value.kind) == ("worker:0", "Hung")
    assert caught.value.message.endswith('train.py", line 3')
