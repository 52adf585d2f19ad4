"""What `Cluster.diagnose` returns: figures of all nodes, and what follows from them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from tfos_lab.engine.diagnosis.figures import figures_of, with_slower
from tfos_lab.engine.diagnosis.progress import TimeLeft, progress_of
from tfos_lab.engine.diagnosis.verdict import Kind, Verdict, judge
from tfos_lab.engine.state.activity import NodeActivity
from tfos_lab.engine.state.events import ClusterView


@dataclass(frozen=True)
class Diagnosis:
    """Why training is as slow as it is.

    Attributes
    ----------
    kind : str
        What limits it: ``"rows"``, ``"tf.data"``, ``"straggler"``, ``"peers"``, ``"compute"``, ``"python"``,
        ``"healthy"``, or ``"unknown"``.
    verdict : str
        The same in words, with the figures and what to do; "" where it is not known.
    nodes : dict of str to NodeActivity
        What each node does; only those that have sent figures.
    progress : float or None
        Which part of the training is done, 0 to 1.
    seconds_left : float or None
        How long the rest will take.
    """

    kind: str = Kind.UNKNOWN.value
    verdict: str = ""
    nodes: dict[str, NodeActivity] = field(default_factory=dict)
    progress: float | None = None
    seconds_left: float | None = None

    def __str__(self) -> str:
        return self.verdict or "why training is as slow as it is cannot be told (yet)"


class Assessor:
    """Judges a cluster from moment to moment, and remembers the last verdict. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._time_left = TimeLeft()
        self._last = Verdict(Kind.UNKNOWN)

    def assess(self, view: ClusterView, now_s: float) -> ClusterView:
        """Return the view, with what its nodes' figures tell; of a run that is over, what they told last."""
        nodes = with_slower(view.nodes)
        is_over = view.state.is_settled
        progress = progress_of(nodes, view.feeds)
        with self._lock:
            verdict = self._judge(replace(view, nodes=nodes), is_over=is_over)
            left_s = None if is_over else self._time_left.note(progress, now_s)
        return replace(view, nodes=nodes, progress=progress, seconds_left=left_s, verdict=verdict.text)

    def _judge(self, view: ClusterView, *, is_over: bool) -> Verdict:
        if is_over and self._last.kind is not Kind.UNKNOWN:
            return self._last  # the last figures are of how nodes ended, too
        verdict = judge(figures_of(view.nodes, view.feeds))
        if verdict.kind is not Kind.UNKNOWN:
            self._last = verdict
        return verdict

    def diagnose(self, view: ClusterView) -> Diagnosis:
        """Return what an assessed view tells."""
        with self._lock:
            verdict = self._judge(view, is_over=view.state.is_settled)
        return Diagnosis(
            kind=verdict.kind.value,
            verdict=verdict.text,
            nodes={node.node: node.activity for node in view.nodes if node.activity is not None},
            progress=view.progress,
            seconds_left=view.seconds_left,
        )
