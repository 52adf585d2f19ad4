"""Feeds rows to the nodes: opens their endpoints, runs Spark's job, and checks that all rows have arrived.

Rows of files need no job of Spark's: the nodes look for the files, and get equal shares to read.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core import messages as m
from tfos_lab.core.messages import Condition
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.feed.files.shares import deal_files
from tfos_lab.driver.feed.spark_job import FrameRows, ObjectRows, SparkJob
from tfos_lab.driver.feed.splits import as_given
from tfos_lab.driver.head import Head
from tfos_lab.driver.state.cluster_state import LOST_AFTER_S
from tfos_lab.driver.state.hangs import Suspicion, doing, find_hung
from tfos_lab.driver.state.instructions import Failure, SendTo
from tfos_lab.driver.state.readers import NOBODY_READS, NOTHING_READ, never_asked, not_open, returned_unread
from tfos_lab.errors import ClusterEnded, ConfigError, FeedError, FeedTimeout, NodeUnreachable, RecordError
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.node.feed.wire import FeedPlan

if TYPE_CHECKING:
    from tfos_lab.core.certificates import Identities
    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.feed.files.source import FileRows
    from tfos_lab.driver.feed.request import FeedRequest
    from tfos_lab.driver.state.feed_state import DriverFeed
    from tfos_lab.driver.state.instructions import Instruction

_STEP_S = 0.1
OPEN_TIMEOUT_S = 30.0
# A node that cannot be reached is usually lost, which is noticed later.
_LOSS_PATIENCE_S = LOST_AFTER_S + 1.5
# What fails the cluster, too: its nodes would wait for rows that never come.
_FAILURES = (FeedError, RecordError, ConfigError)


class FeedJob:
    """One feed to the nodes of one start, from the opening of their endpoints to its end.

    The identities are those of the nodes and of Spark's tasks, where nodes are on other hosts.
    """

    def __init__(self, cluster: Cluster, head: Head, request: FeedRequest, identities: Identities | None) -> None:
        self._cluster = cluster
        self._head = head
        self._feed_state = head.feed_state
        self._request = request
        self._timeout_s = request.config.feed_timeout
        self._token = secrets.token_hex(16)
        self._identities = identities
        self._stuck = Stuck()
        self._given_up = False

    def run(self) -> DriverFeed:
        """Feed, and wait until every row that Spark has produced is committed."""
        feed = self._open()
        try:
            self._run_job(feed)
            self._wait_until_complete(feed)
            return feed
        except BaseException as error:
            self._give_up(feed, error)
            if isinstance(error, _FAILURES):
                self._head.await_ends()
            raise

    def _give_up(self, feed: DriverFeed, error: BaseException) -> None:
        """End the feed on the nodes, with the reason; may be called twice."""
        # Nodes that are in the middle of the feed read this.
        reason, stuck = str(error) or type(error).__name__, self._stuck
        if isinstance(error, KeyboardInterrupt):
            reason = "cluster.train was interrupted before all rows had come: start another cluster to read them"
        failure = Failure(stuck.node or "feed", type(error).__name__, reason, traceback=stuck.stacks)
        fails = isinstance(error, _FAILURES) and not self._given_up
        self._given_up = self._given_up or fails

        def give_up(now_s: float) -> list[Instruction]:
            # At once: a node that hears of the feed's end fails for it, and would be taken for the cause.
            aborted = self._feed_state.abort(feed.number, reason)
            return [*aborted, *self._head.state.fail(failure, now_s)] if fails else aborted

        self._head.request(give_up)

    # ---- opening the nodes' endpoints -------------------------------------------------------------------------------

    def _open(self) -> DriverFeed:
        feed_state, request = self._feed_state, self._request
        before = feed_state.current
        self._wait_for_readers()
        message = self._message()
        self._head.request(lambda _now_s: feed_state.open(message, request.source, self._timeout_s))

        def opened() -> DriverFeed | None:
            feed = feed_state.current
            return feed if feed is not None and feed is not before and not feed.late else None

        if self._head.await_rows(lambda: opened() or feed_state.returned, OPEN_TIMEOUT_S) is None:
            feed = feed_state.current
            late = feed_state.names if feed is None or feed is before else feed.late
            raise FeedTimeout(reason=f"{not_open(late, OPEN_TIMEOUT_S)}{find_stuck(self._head).text}")
        if (feed := opened()) is None:
            raise self._half_done()
        return feed

    def _message(self) -> m.FeedOpen:
        self._rows = rows = self._request.rows_as(objects=bool(self._feed_state.wants_objects))
        advice = rows.advice if isinstance(rows, ObjectRows) else ""
        return self._opening(schema=rows.schema, objects=isinstance(rows, ObjectRows), advice=advice)

    def _opening(self, **of_rows: Any) -> m.FeedOpen:
        request = self._request
        return m.FeedOpen(
            feed=-1,
            epochs=request.config.epochs,
            remainder=request.config.remainder,
            token=self._token,
            tls=self._identities.nodes if self._identities else None,
            stream=request.stream,
            spool_bytes=request.config.spool_bytes or 0,
            queue=request.queue,
            **of_rows,
        )

    def _wait_for_readers(self) -> None:
        """Wait until it is known who reads; raise if some of the rows would not be read by any node.

        A feed that is under way ends early instead.
        """
        self._head.check()
        await_readers(self._head, self._timeout_s, kind=self._request.is_open_choice)
        if self._feed_state.returned:
            is_unread = self._request.is_open_choice and self._feed_state.wants_objects is None
            raise FeedError(reason=NOTHING_READ) if is_unread else self._half_done()

    def _half_done(self) -> ClusterEnded:
        returned = ", ".join(self._feed_state.returned)
        state = "done" if self._head.state.state is RunState.DONE else f"half done ({returned} returned)"
        return ClusterEnded(cluster=self._cluster.name, state=state, asked="feed rows")

    # ---- Spark's job ------------------------------------------------------------------------------------------------

    def _run_job(self, feed: DriverFeed) -> None:
        feed_state, head = self._feed_state, self._head
        head.launcher.free_slots()
        plan = FeedPlan(
            feed=feed.number,
            token=self._token,
            locations=feed.locations,
            schema=self._rows.schema,
            tls=self._identities.tasks if self._identities else None,
        )
        label, description = f"tfos-feed-{self._cluster.id}", f"tfos_lab: rows for '{self._cluster.name}'"
        job = SparkJob(self._rows, plan, label=label, description=description)
        head.request(lambda now_s: feed_state.foresee(feed.number, None, now_s))
        try:
            is_unwanted = self._watch(job, feed)
        except BaseException as error:
            # Nodes that know the reason disconnect from Spark's tasks, which can then be cancelled at once.
            self._give_up(feed, error)
            job.cancel()
            raise
        if is_unwanted:
            job.cancel()
            head.request(lambda now_s: feed_state.cut(feed.number, now_s))
            self._record_early_end(feed)
            return
        if job.error is not None:
            self._look_for_a_cause(job.error)
            raise spark_session.job_error(job.error, schema=job.schema)
        rows, partitions = sum(job.rows_sent), len(job.rows_sent)
        is_required = (self._request.required or feed.kept) and not feed.stream
        if not rows and is_required and isinstance(self._rows, FrameRows):
            given = as_given(self._request.queue) if feed.kept else "data"
            raise FeedError(reason=f"{given}: the DataFrame has no rows, so there is nothing to feed")
        head.request(lambda now_s: feed_state.job_done(feed.number, rows, partitions, now_s))

    def _watch(self, job: SparkJob, feed: DriverFeed) -> bool:
        """Wait for the job; return whether a node wants no more rows before the job's end."""
        with self._head.lock:
            patience = self._feed_state.patience(self._timeout_s, rows=True)
        while True:
            has_ended = job.has_ended(_STEP_S)
            self._head.check()
            if self._is_unwanted():
                return True
            if (tasks := job.news()) is not None:
                self._foresee(feed, *tasks)
            if patience.is_over:
                queue = self._request.queue
                its = "its rows" if queue == m.INPUT_QUEUE else f"the rows of the queue '{queue}'"
                self._stuck = find_stuck(self._head)
                raise FeedTimeout(
                    reason=f"nothing has moved for {self._timeout_s:g} s: Spark ended no task, and no node got or took "
                    f"a row; see whether map_fun reads {its}, or raise feed_timeout (timeout of cluster.train)"
                    f"{self._stuck.text}"
                )
            if has_ended:
                # If all nodes have returned and gone meanwhile, tasks found no node to send rows to.
                return job.error is not None and self._is_unwanted()

    def _foresee(self, feed: DriverFeed, partitions: int, ended: int, total: int) -> None:
        self._head.request(lambda now_s: self._feed_state.foresee(feed.number, partitions, now_s, (ended, total)))

    def _look_for_a_cause(self, error: Exception) -> None:
        """Wait a moment for a node's failure: a node that is gone fails Spark's job, too, and is reported later."""
        if NodeUnreachable.__name__ in str(error):
            self._head.await_rows(lambda: None, _LOSS_PATIENCE_S)

    def _is_unwanted(self) -> bool:
        """Whether a node wants no more rows: it has reported that, or its function has returned."""
        return self._feed_state.stopped_by is not None or bool(self._feed_state.returned)

    def _record_early_end(self, feed: DriverFeed) -> None:
        """Note a feed that ended before its last row; raise if no function has read any row of it."""
        if self._feed_state.is_ignored and not self._request.stream:
            raise FeedError(reason=returned_unread(self._feed_state.returned))
        if self._feed_state.stopped_by is None and not self._request.stream:
            done, names = len(feed.committed), ", ".join(self._feed_state.returned)
            self._cluster.history.add_note(f"the feed ended early, after {done} of its partitions, as {names} returned")

    # ---- the end ----------------------------------------------------------------------------------------------------

    def _wait_until_complete(self, feed: DriverFeed) -> None:
        state = self._head.state

        def is_over() -> bool:
            return feed.state != "open" or state.state is RunState.DONE

        if not self._head.await_rows(is_over, self._timeout_s, moving=True):
            self._stuck = find_stuck(self._head)
            done, all_done = len(feed.committed), feed.expected_partitions
            raise FeedTimeout(
                reason=f"rows were stored but not committed within {self._timeout_s:g} s ({done} of {all_done} "
                f"partitions were){self._stuck.text}"
            )
        if feed.total_rows != feed.expected_rows and not self._is_unwanted():
            raise FeedError(
                reason=f"Spark produced {feed.expected_rows} rows, {feed.total_rows} were committed: "
                "a fault of tfos_lab, please report it"
            )


def await_readers(head: Head, timeout_s: float, *, kind: bool = False, asked: str = "feed rows") -> None:
    """Wait until it is known which nodes read: with parameter servers, workers may serve the chief instead.

    Where rows can go as columns or as objects, and so the ``kind`` matters, also wait until a node has asked for one or
    the other. Ends when a function has returned. Raises FeedTimeout, FeedError if no node reads, and as `Head.check`.
    """
    feeds = head.feed_state

    def is_known() -> bool:
        is_open = kind and feeds.wants_objects is None
        return bool(feeds.returned) or not (is_open or feeds.undecided)

    if not head.await_rows(is_known, timeout_s, asked=asked):
        raise FeedTimeout(reason=never_asked(feeds.undecided or feeds.names, timeout_s))
    if not feeds.ranks:
        raise FeedError(reason=NOBODY_READS)


# How long nodes may take to send their stacks.
_STACKS_S = 2.0


@dataclass(frozen=True)
class Stuck:
    """Why no row moves: sentences, and the node that is stuck with its stacks, where one is known to be."""

    text: str = ""
    node: str = ""
    stacks: str = ""


def find_stuck(head: Head) -> Stuck:
    """Ask nodes for their stacks where some leave rows where they are, and return what follows from them."""
    with head.lock:
        views, with_rows = list(head.state.views), head.feed_state.with_rows
    ranks = {rank for rank, view in enumerate(views) if view.state is NodeState.RUNNING}
    answers = head.ask_for_stacks(ranks, _STACKS_S) if with_rows else {}
    suspicions = {
        rank: Suspicion(
            views[rank],
            answers.get(rank) or m.Stacks(0, Condition.AWAY, "", rank=rank),
            idle=views[rank].name in with_rows,
            expected=True,
        )
        for rank in ranks
    }
    stuck = [suspicions[rank] for rank in find_hung(suspicions)]
    hung = [f"{view.name} hangs: {view.hung}" for view in views if view.hung]
    doings = hung or [f"{one.view.name} takes none: {doing(one.stacks)}" for one in stuck]
    holding = ", ".join(f"{view.name} (has taken {view.rows:,})" for view in views if view.name in with_rows)
    told = [f"Rows wait for {holding}", *doings] if holding else doings
    text = "".join(f". {sentence}" for sentence in told)
    return Stuck(text, stuck[0].view.name, stuck[0].stacks.text) if stuck else Stuck(text)


# ---- rows of files ---------------------------------------------------------------------------------------------------


class FileJob(FeedJob):
    """One feed of files to the nodes of one start; it ends when they know what to read."""

    @property
    def _files(self) -> FileRows:
        assert self._request.files is not None
        return self._request.files

    def _message(self) -> m.FeedOpen:
        return self._opening(schema=self._files.schema, files=True)

    def _run_job(self, feed: DriverFeed) -> None:
        feed_state, head = self._feed_state, self._head
        asked: list[Instruction] = [SendTo(rank, message) for rank, message in self._asked(feed).items()]
        head.request(lambda now_s: [*feed_state.foresee(feed.number, len(self._files.files), now_s), *asked])
        if not self._wait_for_search(feed):
            head.request(lambda now_s: feed_state.cut(feed.number, now_s))
            self._record_early_end(feed)
            return
        if not self._files.is_counted:
            self._files.record(feed.blocks)
        files = self._files
        shares = {
            rank: m.FilesDealt(
                feed=feed.number,
                format=files.format,
                parts=parts,
                rows=sum(rows for part in parts for _, _, rows in part.pieces),
                shapes=files.shapes,
                spool_bytes=self._request.config.spool_bytes or 0,
            )
            for rank, parts in zip(feed.ranks, files.deal(len(feed.ranks)), strict=True)
        }
        size_bytes = files.size_bytes
        head.request(lambda now_s: feed_state.deal(shares, size_bytes, now_s))

    def _asked(self, feed: DriverFeed) -> dict[int, m.FilesAsked]:
        """Return which files each node looks at: those that it will read, or those whose records it is to count."""
        files, nodes = [found.file for found in self._files.files], len(feed.ranks)
        if self._files.is_counted:
            numbers, count_as = [[part.number for part in parts] for parts in self._files.deal(nodes)], ""
        else:
            numbers, count_as = deal_files([file.size_bytes for file in files], nodes), self._files.format
        return {
            rank: m.FilesAsked(feed.number, [files[number] for number in some], some, count_as)
            for rank, some in zip(feed.ranks, numbers, strict=True)
        }

    def _wait_for_search(self, feed: DriverFeed) -> bool:
        """Wait until all nodes have found their files; return whether rows are still wanted then."""

        def is_over() -> bool:
            has_found = len(feed.problems) == len(feed.ranks) or any(feed.problems.values())
            return has_found or self._is_unwanted()

        if not self._head.await_rows(is_over, self._timeout_s, moving=True):
            searching = [name for rank, name in feed.names.items() if rank not in feed.problems]
            raise FeedTimeout(
                reason=f"{', '.join(searching)} found no file for {self._timeout_s:g} s: see whether "
                "the file system answers, or raise feed_timeout (timeout of cluster.train)"
            )
        if problem := next(filter(None, feed.problems.values()), ""):
            raise FeedError(reason=problem)
        return len(feed.problems) == len(feed.ranks)
