"""Two kernels with clusters of one name: both are listed, each with its own id, and each can be stopped alone."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest
from jupyter_client.manager import start_new_kernel

from tests.notebook.server.server import ask
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV

PATIENCE_S = 60.0
START = f"""
import time, tfos_lab
cluster = tfos_lab.run(lambda args, ctx: time.sleep(600), name="mnist", local="processes", env={QUICK_ENV})
cluster.wait_until_running()
"""


@pytest.fixture
def kernel(tmp_path):
    """A function that starts a kernel and runs code in it; it returns a function that evaluates further code."""
    with ExitStack() as stack:

        def start(code):
            running, client = start_new_kernel(cwd=str(tmp_path))
            stack.callback(running.shutdown_kernel, now=False)
            stack.callback(client.stop_channels)

            def worth(expression):
                reply = client.execute("pass", user_expressions={"it": expression}, reply=True, timeout=PATIENCE_S)
                return reply["content"]["user_expressions"]["it"]["data"]["text/plain"].strip("'")

            reply = client.execute(code, reply=True, timeout=PATIENCE_S)
            assert reply["content"]["status"] == "ok", reply["content"]
            return worth

        yield start


def listed(url):
    return json.loads(ask(f"{url}tfos-lab/clusters")[2])["clusters"]


def test_clusters_of_one_name_in_two_kernels_are_distinguished_and_stopped_one_by_one(url, kernel):
    first, second = kernel(START), kernel(START)
    ids = [kernel_s("cluster.id") for kernel_s in (first, second)]
    assert ids[0] != ids[1]
    assert [(cluster["id"], cluster["name"]) for cluster in listed(url)] == [(one, "mnist") for one in ids]

    status, _, _ = ask(f"{url}tfos-lab/clusters/{ids[0]}/stop", method="POST")
    assert status == 202
    eventually(lambda: len(listed(url)) == 1 and first("cluster.state") == "stopped")
    assert [cluster["id"] for cluster in listed(url)] == ids[1:]
    assert second("cluster.state") == "running"
