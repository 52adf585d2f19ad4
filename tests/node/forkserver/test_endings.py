"""What a fork server ends, it kills in the end."""

from __future__ import annotations

import os
import signal
import threading

import psutil
import pytest

from tests.node.conftest import PATIENCE_S


def ignore_sigterm():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(os.getpid(), flush=True)  # noqa: T201 - tells the test
    threading.Event().wait()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_child_that_nobody_holds_any_more_is_killed_though_it_ignores_sigterm(start_child, is_stopped):
    child = start_child(ignore_sigterm)
    child.wait_for_output(b"\n")
    process = psutil.Process(int(child.output["stdout"]))
    if is_stopped:
        process.suspend()
    child.link.fork_server.close()
    process.wait(PATIENCE_S)
