"""A run record as the view that displays draw, so that a run of last week looks as it did when it ended."""

from __future__ import annotations

import math

import msgspec

from tfos_lab.core.roles import Role
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.engine.record.format import FeedRecord, NodeRecord, PartRecord, RunHeader, RunRecord
from tfos_lab.engine.state.events import ClusterView, FeedView, MetricsReported, NodeView, RunFacts, SearchFacts

_GONE = "the kernel that ran it has gone: this is what it had written down before"


def view_of(record: RunHeader, state: RunState, ended_s: float | None) -> ClusterView:
    """Return the view of a run.

    Parameters
    ----------
    record : RunHeader
        What is known of it.
    state : RunState
        Its state now, which the record of a lost run cannot say.
    ended_s : float or None
        When it ended, or was last heard of, in seconds since the epoch.
    """
    return ClusterView(
        cluster_id=record.id,
        name=record.name,
        state=state,
        launcher=record.launcher,
        started_s=record.started_s,
        ended_s=ended_s,
        nodes=tuple(_node(node, state) for node in record.nodes),
        timings=record.timings,
        restarts=record.restarts,
        feeds=tuple(_feeds(record.feeds)),
        reason=_GONE if state is RunState.LOST else record.reason,
        notes=record.notes,
        progress=record.progress,
        verdict=record.verdict,
        of_runs=record.of_runs,
        search=SearchFacts(**msgspec.structs.asdict(record.search)) if record.search is not None else None,
    )


def reports_of(record: RunRecord) -> list[MetricsReported]:
    """Return the metrics of a record as the events that they were."""
    return [
        MetricsReported(
            time_s=record.started_s + one.time_s,
            node=one.node,
            step=one.step,
            total_steps=None,
            metrics=_numbers(one.metrics),
        )
        for one in record.metrics
    ]


def _node(record: NodeRecord, run: RunState) -> NodeView:
    job_name, _, index = record.node.partition(":")
    state = next((one for one in NodeState if one == record.state), NodeState.WAITING)
    return NodeView(
        node=record.node,
        job_name=job_name if record.part is None else "run",
        task_index=_index(index) if record.part is None else record.part.number,
        is_chief=any(role.leads and role == job_name for role in Role),
        state=NodeState.LOST if run is RunState.LOST and not state.ended else state,
        detail=record.detail,
        host=record.host,
        executor=record.executor,
        pid=record.pid,
        gpus=record.gpus,
        step=record.step,
        total_steps=record.total_steps,
        rows=record.rows,
        metrics=_numbers(record.metrics),
        activity=record.activity,
        run=_facts(record.part) if record.part is not None else None,
    )


def _index(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _facts(part: PartRecord) -> RunFacts:
    return RunFacts(
        args=part.args,
        tries=part.tries,
        seconds=part.seconds,
        best=part.best,
        params=part.params,
        log=part.log,
    )


def _feeds(records: tuple[FeedRecord, ...]) -> list[FeedView]:
    counts: dict[str, int] = {}
    views = []
    for record in records:
        number = counts.get(record.kind, 0)
        counts[record.kind] = number + 1
        views.append(
            FeedView(
                kind=record.kind,
                number=number,
                rows=record.rows,
                partitions=record.partitions,
                size_bytes=record.size_bytes,
                complete=record.complete,
                epochs=record.epochs,
                started_s=record.started_s,
                ended_s=record.ended_s,
            )
        )
    return views


def _numbers(metrics: dict[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in metrics.items()}
