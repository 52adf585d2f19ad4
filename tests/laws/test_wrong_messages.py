"""Any message of any node, true or false: its driver refuses it or takes it, without an error, and can be stopped."""

import tempfile
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.random_data import fuzzed, values_of
from tests.support.eventually import eventually
from tests.support.fake_nodes import FakeNodes, make_cluster
from tfos_lab.core import messages as m

SIZE = 3
MESSAGES = st.lists(values_of(m.any_of(m.FromAgent)), min_size=1, max_size=6)


@pytest.fixture(scope="module", autouse=True)
def errors(tmp_path_factory):
    """What the driver's threads have raised."""
    errors = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path_factory.mktemp("jupyter")))
        patch.setattr(threading, "excepthook", errors.append)
        yield errors


@fuzzed(40)
@given(messages=MESSAGES, rank=st.integers(0, SIZE - 1), feeds=st.booleans())
def test_a_message_is_refused_or_taken(errors, messages, rank, feeds):
    nodes = FakeNodes()
    with tempfile.TemporaryDirectory() as folder:
        cluster = make_cluster(Path(folder), nodes, cluster_size=SIZE)
        try:
            cluster.launch()
            cluster.wait_until_running(60)
            if feeds:
                head = cluster.head
                head.request(lambda _now_s: head.feed_state.open(m.FeedOpen(-1, 1, "exact", "{}", "token")))
                nodes.send(m.AttemptStored(0, 0, "a", 4, 10, rank=0))
            for message in messages:
                nodes.send(msgspec.structs.replace(message, rank=rank))
            cluster.stop(grace=0.0)
            eventually(lambda: cluster.state in ("stopped", "failed", "done"))
        finally:
            cluster.close()
    assert errors == []
