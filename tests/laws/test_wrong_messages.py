"""Any message of any node, true or false: it is refused, or its cluster's state machines take it without an error."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.random_data import fuzzed, little_memory, values_of
from tfos_lab import ClusterConfig
from tfos_lab import messages as m
from tfos_lab.core.roles import assign_roles
from tfos_lab.engine.state.cluster_state import ClusterState
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.wrong_messages import WrongMessage, check

NOW_S = 1000.0
SIZE = 3
MESSAGES = st.lists(values_of(m.FromAgent), min_size=1, max_size=4)


def running(*, lock_step):
    """Return the states of a cluster whose nodes run and have a feed of one partition."""
    cluster = ClusterState(assign_roles(ClusterConfig(cluster_size=SIZE)), grace_s=1.0)
    feeds = FeedState({rank: f"node {rank}" for rank in range(SIZE)}, lock_step=lock_step)
    for rank in range(SIZE):
        cluster.handle(m.Reserve(rank, "h", f"h:{rank}", 1, "e", []), NOW_S)
    for rank in range(SIZE):
        cluster.handle(m.Progressed(rank, "running", 1), NOW_S)
    feeds.open(m.FeedOpen(-1, 1, "exact", "{}", "token"))
    feeds.handle(m.AttemptStored(0, 0, 0, "a", 4, 10), NOW_S)
    return cluster, feeds


@fuzzed(80)
@given(messages=MESSAGES, lock_step=st.booleans(), rank=st.integers(0, SIZE - 1))
def test_a_message_is_refused_or_taken(messages, lock_step, rank):
    cluster, feeds = running(lock_step=lock_step)
    with little_memory():
        for message in messages:
            # The server has checked whose message it is.
            take(cluster, feeds, m.decode_from_agent(m.encode(message)), rank)
        cluster.stop(NOW_S)
        cluster.tick(NOW_S + 20.0)


def take(cluster, feeds, message, rank):
    message = msgspec.structs.replace(message, rank=rank)
    try:
        check(message, cluster.state, feeds)
    except WrongMessage as error:
        cluster.refuse(rank, str(error), NOW_S)
        return
    for instruction in [*cluster.handle(message, NOW_S), *feeds.handle(message, NOW_S)]:
        if hasattr(instruction, "message"):
            m.decode_to_agent(m.encode(instruction.message))
    assert isinstance(feeds.nothing_read, str)
    assert set(feeds.with_rows) <= {f"node {each}" for each in range(SIZE)}
