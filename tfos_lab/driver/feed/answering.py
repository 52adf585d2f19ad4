"""The nodes that answer inferences: waits until it is known which they are, and opens their endpoints."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.states import RunState
from tfos_lab.driver.state.readers import NOBODY_READS, never_asked, not_open
from tfos_lab.errors import ClusterEnded, FeedError, FeedTimeout

if TYPE_CHECKING:
    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.feed.feeding import Feeding
    from tfos_lab.driver.head import Head
    from tfos_lab.node.feed.inference_task import InferencePlan

_OPEN_TIMEOUT_S = 30.0
_STEP_S = 0.005


class AnsweringNodes:
    """The nodes of a cluster, as its inferences see them."""

    def __init__(self, cluster: Cluster, feeding: Feeding) -> None:
        self._cluster = cluster
        self._feeding = feeding
        self._token = secrets.token_hex(16)

    def want_objects(self, timeout_s: float) -> bool:
        """Return whether the nodes read rows as Python objects; wait until one of them has asked for rows.

        Raises
        ------
        FeedTimeout
            If none has asked within ``timeout_s``.
        ClusterEnded, NodeFailed
            If the cluster has ended meanwhile.
        """
        feed_state = self._cluster.head.feed_state
        deadline = time.monotonic() + timeout_s
        while feed_state.wants_objects is None:
            self._check(deadline, feed_state.names, timeout_s)
            feed_state = self._cluster.head.feed_state
        return bool(feed_state.wants_objects)

    def open(self, plan: InferencePlan) -> InferencePlan:
        """Open the nodes' endpoints for rows as in the plan; return it with where the nodes are.

        Raises
        ------
        FeedTimeout
            If they do not open.
        FeedError
            If no node reads rows.
        ClusterEnded, NodeFailed
            If the cluster has ended meanwhile.
        """
        head = self._cluster.head
        identities = self._feeding.identities()
        self._wait_for_readers(head, plan.timeout_s)
        message = m.InferenceOpen(
            schema=plan.schema,
            token=self._token,
            tls=identities.nodes if identities else None,
            objects=plan.objects,
            queue=plan.queue,
        )
        head.request(lambda _now_s: head.feed_state.open_inference(message))
        return msgspec.structs.replace(
            plan,
            cluster=self._cluster.name,
            token=self._token,
            locations=self._locations(head),
            tls=identities.tasks if identities else None,
        )

    def _locations(self, head: Head) -> dict[int, list[str]]:
        feed_state = head.feed_state
        deadline = time.monotonic() + _OPEN_TIMEOUT_S
        while time.monotonic() < deadline:
            if len(feed_state.answering) == len(feed_state.ranks):
                return dict(feed_state.answering)
            if self._cluster.state is RunState.FAILED:
                raise self._cluster.failure()
            time.sleep(_STEP_S)
        late = [
            name
            for rank, name in zip(feed_state.ranks, feed_state.names, strict=True)
            if rank not in feed_state.answering
        ]
        raise FeedTimeout(reason=not_open(late, _OPEN_TIMEOUT_S))

    def _wait_for_readers(self, head: Head, timeout_s: float) -> None:
        """Wait until it is known which nodes answer: with parameter servers, workers may serve the chief instead."""
        deadline = time.monotonic() + timeout_s
        while undecided := head.feed_state.undecided:
            self._check(deadline, undecided, timeout_s)
        if not head.feed_state.ranks:
            raise FeedError(reason=NOBODY_READS)

    def _check(self, deadline: float, waited_for: list[str], timeout_s: float) -> None:
        """Raise if there is nothing to wait for any more, and sleep for a moment."""
        if self._cluster.state is RunState.FAILED:
            raise self._cluster.failure()
        if self._cluster.ended:
            raise ClusterEnded(cluster=self._cluster.name, state=self._cluster.state, asked="answer rows")
        if time.monotonic() > deadline:
            raise FeedTimeout(reason=never_asked(waited_for, timeout_s))
        time.sleep(_STEP_S)
