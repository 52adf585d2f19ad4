"""What a node does before it calls the user's function: context, TF_CONFIG, ``sys.argv``, the port."""

from __future__ import annotations

import json
import os
import socket
import sys

import pytest

from tests.compat.support import FakeContext
from tfos_lab.compat.main_function import NodeSettings, run_main

SETTINGS = NodeSettings("hdfs://nn", "/here", ("input", "output", "error"), release_port=True)


@pytest.fixture(autouse=True)
def _process(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["before"])
    monkeypatch.setenv("TF_CONFIG", "{}")


def native(spec=None, job="worker", index=0, rank=0, port=None):
    spec = spec or {"worker": ["a:1", "b:1"]}
    return FakeContext(
        {"input": []}, port=port, cluster_spec=spec, job_name=job, task_index=index, executor_id=rank, is_chief=False
    )


def run(context, args=None, settings=SETTINGS):
    seen = []

    def map_fun(args, ctx):
        seen.extend([args, ctx, os.environ.get("TF_CONFIG"), sys.argv])
        return object()

    assert run_main(map_fun, settings, args, context) is None
    args, ctx, config, argv = seen
    return args, ctx, config and json.loads(config), argv


def test_the_function_gets_its_arguments_and_a_context():
    args, ctx, _, argv = run(native(rank=1, index=1), {"x": 1})
    assert (args, ctx.executor_id, ctx.task_index, ctx.num_workers) == ({"x": 1}, 1, 1, 2)
    assert (ctx.defaultFS, ctx.working_dir, ctx.is_chief) == ("hdfs://nn", "/here", False)
    assert argv == ["before"]


def test_a_list_is_the_command_line():
    args, _, _, argv = run(native(), ["program", "--steps", "3"])
    assert argv == args == ["program", "--steps", "3"]


@pytest.mark.parametrize(
    ("spec", "cluster"),
    [
        ({"worker": ["a:1", "b:1"]}, None),
        ({"ps": ["p:1"], "worker": ["a:1"]}, None),
        ({"chief": ["c:1"], "worker": ["a:1"]}, {"chief": ["c:1"], "worker": ["a:1"]}),
        ({"master": ["c:1"]}, {"master": ["c:1"]}),
        (
            {"chief": ["c:1"], "evaluator": ["e:1"], "worker": ["a:1"]},
            {"chief": ["c:1"], "evaluator": ["e:1"], "worker": ["a:1"]},
        ),
        (
            {"ps": ["p:1"], "chief": ["c:1"], "evaluator": ["e:1"], "worker": ["a:1"]},
            {"ps": ["p:1"], "chief": ["c:1"], "worker": ["a:1"]},
        ),
    ],
)
def test_tf_config_is_set_where_a_node_leads(spec, cluster):
    _, _, config, _ = run(native(spec))
    task = {"type": "worker", "index": 0}
    assert config == (None if cluster is None else {"cluster": cluster, "task": task, "environment": "cloud"})


def held_port():
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock


def test_the_port_is_free_when_the_function_is_called():
    port = held_port()
    _, ctx, _, _ = run(native(port=port))
    assert ctx.tmp_socket is None
    assert port.fileno() == -1


def test_the_port_can_be_held_until_the_function_releases_it():
    settings = NodeSettings("file://", "/", ("input",), release_port=False)
    port = held_port()
    _, ctx, _, _ = run(native(port=port), settings=settings)
    assert ctx.tmp_socket is port
    ctx.release_port()
    assert port.fileno() == -1


def test_what_a_thread_puts_into_the_error_queue_fails_the_node():
    with pytest.raises(RuntimeError, match="of a thread"):
        run_main(lambda _, ctx: ctx.mgr.get_queue("error").put("of a thread"), SETTINGS, None, native())
