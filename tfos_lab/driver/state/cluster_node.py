"""One rank of a cluster, as the cluster state keeps it: its view, its end, its clock; and the silence of all. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tfos_lab.core import messages as m
from tfos_lab.core.roles import NodeSpec
from tfos_lab.driver.state.events import MetricsReported, NodeView, changed
from tfos_lab.driver.state.instructions import Failure


class ClusterNode:
    """One rank; ``sends_output`` says that its output is still to come from another host.

    ``orphan`` is the end of a child whose fork server has ended: where the executor has ended, too, that is the cause.
    ``serves`` says that its function has begun to serve others. After a worker was lost and until it serves again,
    ``loss`` says how it was lost.
    """

    def __init__(self, spec: NodeSpec, *, is_chief: bool) -> None:
        self.spec = spec
        self.trains = spec.role.trains
        self.view = NodeView(name=spec.node, job_name=spec.job_name, task_index=spec.task_index, is_chief=is_chief)
        self.outcome: m.Outcome | None = None
        self.drained = False
        self.sends_output = False
        self.lost_s = 0.0
        self.orphan: m.Outcome | None = None
        self.serves = False
        self.loss: Failure | None = None
        self._counts_from_0 = False
        self._ahead_s = -math.inf

    @property
    def awaited(self) -> bool:
        """Whether the run goes on until this node's function has ended."""
        return self.trains and not self.serves

    def take_report(self, report: m.Reported, now_s: float) -> MetricsReported:
        """Take the metrics that the function reports; return the event."""
        self._counts_from_0 |= self.view.step is None and report.step == 0
        self.view = changed(
            self.view,
            metrics={**self.view.metrics, **report.metrics},
            nan_since=_nan_since(self.view.nan_since, report.step, report.metrics),
            step=report.step,
            total_steps=report.total_steps or self.view.total_steps,
        )
        # The report that was quickest says how far the node's clock is ahead of the driver's.
        self._ahead_s = max(self._ahead_s, report.time_s - now_s)
        return MetricsReported(
            time_s=report.time_s - self._ahead_s,
            node=self.view.name,
            step=report.step,
            total_steps=report.total_steps,
            metrics=report.metrics,
        )

    def complete(self) -> None:
        """The function has returned: a loop that counts its steps from 0 has done one more than it said last."""
        step, total = self.view.step, self.view.total_steps
        if self._counts_from_0 and step is not None and step + 1 == total:
            self.view = changed(self.view, step=total)


def _nan_since(
    before: Mapping[str, int | None], step: int | None, metrics: Mapping[str, float]
) -> dict[str, int | None]:
    """Return which metrics are NaN, and since which step, after a report."""
    since = {name: at for name, at in before.items() if name not in metrics}
    for name, value in metrics.items():
        if math.isnan(value):
            since[name] = before.get(name, step)
    return since


# Ticks come five times a second. Of a longer time between two, only this much counts.
LONGEST_TICK_S = 1.0
# Of the time in which the driver is behind with reading.
BEHIND_SHARE = 0.5
# A pause that is worth telling, and for how long afterwards.
_PAUSE_S = 3.0
_TOLD_FOR_S = 10.0


class Silence:
    """For how long each node has been silent, in time in which the driver would have heard it: `attended_s` so far.

    A driver that does not run hears nobody: the notebook's machine sleeps, its kernel is stopped, a cell holds the
    interpreter's lock, or the machine is so busy that the driver's turn comes late. What the nodes have sent meanwhile
    is read afterwards. Such pauses say nothing about the nodes and do not count. Nor does it matter when a clock is
    set. While more has come than the driver has read yet, time counts less: what a node has sent may be among that.
    Each node counts from its first message on.
    """

    def __init__(self, nodes: int) -> None:
        self._heard_s = [math.inf] * nodes
        self.attended_s = 0.0
        self._ticked_s: float | None = None
        self._last_pause_s = 0.0
        self._resumed_s = 0.0

    def broken_by(self, rank: int, now_s: float) -> None:
        """A node has sent a message: also one that has waited for the driver is heard only now."""
        if self._ticked_s is None:
            self._ticked_s = now_s
        self._heard_s[rank] = self.attended_s + _attended(now_s - self._ticked_s)

    def tick(self, now_s: float, *, behind: bool = False) -> None:
        """Time passes; called when all messages have been handled that had arrived, unless the driver is ``behind``."""
        passed_s = now_s - self._ticked_s if self._ticked_s is not None else 0.0
        self._ticked_s = now_s
        self.attended_s += _attended(passed_s) * (BEHIND_SHARE if behind else 1.0)
        if passed_s > _PAUSE_S:
            self._last_pause_s, self._resumed_s = passed_s, self.attended_s

    def pause_s(self, now_s: float) -> float:
        """Return for how many seconds the driver did not run until now, or until a moment ago; 0 if it did."""
        passed_s = now_s - self._ticked_s if self._ticked_s is not None else 0.0
        if passed_s > _PAUSE_S:
            return passed_s
        return self._last_pause_s if self.attended_s - self._resumed_s < _TOLD_FOR_S else 0.0

    def longer_than(self, limit_s: float) -> Iterator[tuple[int, float]]:
        """Yield the rank of each node that has been silent for longer, and for how long."""
        since_s = self.attended_s - limit_s
        for rank, heard_s in enumerate(self._heard_s):
            if heard_s < since_s:
                yield rank, self.attended_s - heard_s


def _attended(passed_s: float) -> float:
    return min(max(passed_s, 0.0), LONGEST_TICK_S)
