"""A node's part in the lock-step of training: the steps that it agrees on with the others, and who has left them.

`ctx.even` announces here how many rows it has for its next steps, and learns how many all nodes have. When another
node's function has returned, collectives of TensorFlow would wait for it forever: they are ended with a sentence.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tfos_lab.core import messages as m
from tfos_lab.core.crossing import to_text
from tfos_lab.core.roles import Role, count_training
from tfos_lab.errors import FeedError
from tfos_lab.node.activity.steps import STEPS
from tfos_lab.texts import format_count

_ADVICE = "give all nodes equally many steps, or wrap the dataset in ctx.even(dataset)"
# What a node has begun together with one that has returned since ends in milliseconds; what it waits for, never.
_PATIENCE_S = 5.0
# Steps are announced so many at a time, while a node does not wait for them.
_STEPS_AT_ONCE = 4
_FAILED_PRECONDITION = 9


@dataclass
class _Pass:
    """One pass over a dataset, as this node knows it."""

    rows: list[int] = field(default_factory=list)
    announced: int = 0
    totals: list[int] = field(default_factory=list)
    ended: bool = False
    over: bool = False
    left: str = ""


class StepCount:
    """How far this process has read the dataset that it read last; counted by what `node.keras` patches.

    It has taken ``steps`` elements, -1 before the first.
    """

    def __init__(self) -> None:
        self.steps = -1
        self.ended = False
        self._reader = 0

    def take(self, reader: object) -> None:
        """Count an element that an iterator has given."""
        if id(reader) != self._reader:
            self._reader, self.steps, self.ended = id(reader), 0, False
        self.steps += 1
        STEPS.take_batch()

    def end(self, reader: object) -> None:
        """Record that an iterator has ended."""
        if id(reader) != self._reader:
            self._reader, self.steps = id(reader), 0
        self.ended = True


STEP_COUNT = StepCount()


class LockStep:
    """What this node knows of the steps of all ``nodes`` that take part: 1 where this node waits for no other."""

    def __init__(self, start: m.Start, send: Callable[[m.FromAgent], None]) -> None:
        alone = Role.PS in start.cluster_spec or not Role(start.job_name).trains
        self.nodes = 1 if alone else count_training(start.cluster_spec)
        self._node = f"{start.job_name}:{start.task_index}"
        self._send = send
        self._changed = threading.Condition()
        self._passes: dict[tuple[int, int], _Pass] = {}
        self._datasets = 0
        self._timers: list[threading.Timer] = []

    def handle(self, message: m.StepsAgreed | m.PeerReturned) -> None:
        """Apply a message of the driver."""
        if isinstance(message, m.PeerReturned):
            timer = threading.Timer(_PATIENCE_S, self._end_collectives, [message])
            timer.daemon = True
            timer.start()
            self._timers.append(timer)
            return
        with self._changed:
            this = self._pass(message.dataset_id, message.passage)
            for steps, rows in message.runs:
                this.totals.extend([rows] * steps)
            this.over = this.over or message.ended
            this.left = this.left or message.left
            self._changed.notify_all()

    def close(self) -> None:
        """This node's function has ended: it waits for no other any more."""
        for timer in self._timers:
            timer.cancel()

    # ---- steps that are agreed on -----------------------------------------------------------------------------------

    def open(self) -> int:
        """Return the number of a new dataset: nodes make theirs in the same order."""
        with self._changed:
            self._datasets += 1
            return self._datasets - 1

    def add_step(self, dataset_id: int, passage: int, rows: int, *, drop: bool) -> None:
        """Say that this node has these rows for its next step of a pass."""
        with self._changed:
            this = self._pass(dataset_id, passage)
            this.rows.append(rows)
            if len(this.rows) - this.announced >= _STEPS_AT_ONCE:
                self._announce(dataset_id, passage, this, drop=drop)

    def end_pass(self, dataset_id: int, passage: int, *, drop: bool) -> None:
        """Say that this node has no further rows in a pass."""
        with self._changed:
            this = self._pass(dataset_id, passage)
            this.ended = True
            self._announce(dataset_id, passage, this, drop=drop)

    def factor(self, dataset_id: int, passage: int, step: int, timeout_s: float, *, drop: bool) -> float | None:
        """Return what the weights of this node's rows of a step are multiplied by: R·b/G as in `Schedule.factors`.

        That is 0 for a node without rows, -1 after the last step, and None if it is not known within this time. A
        FeedError if the nodes cannot agree on it, as another has left the pass.
        """
        with self._changed:
            this = self._pass(dataset_id, passage)
            if step >= len(this.totals) and this.announced < len(this.rows):
                self._announce(dataset_id, passage, this, drop=drop)
            known = self._changed.wait_for(lambda: step < len(this.totals) or this.over or this.left, timeout_s)
            if step < len(this.totals):
                rows = this.rows[step] if step < len(this.rows) else 0
                return self.nodes * rows / this.totals[step] if this.totals[step] else 1.0
            if this.over:
                return -1.0
            if known:
                raise FeedError(
                    reason=f"{this.left} has left a pass over ctx.even(dataset) that {self._node} still reads (step "
                    f"{step + 1}): have all nodes that train read it equally often, and end their passes at the same "
                    "step"
                )
            return None

    def _pass(self, dataset_id: int, passage: int) -> _Pass:
        key = dataset_id, passage
        if key not in self._passes:
            self._passes[key] = _Pass()
            # An iterator over the pass before may still exist; older ones are not read any more.
            for old in [old for old in self._passes if old[0] == dataset_id and old[1] < passage - 1]:
                del self._passes[old]
        return self._passes[key]

    def _announce(self, dataset_id: int, passage: int, this: _Pass, *, drop: bool) -> None:
        new = this.rows[this.announced :]
        this.announced = len(this.rows)
        runs: list[tuple[int, int]] = []
        for rows in new:
            runs = [*runs[:-1], (runs[-1][0] + 1, rows)] if runs and runs[-1][1] == rows else [*runs, (1, rows)]
        self._send(m.StepsAhead(dataset_id, passage, runs, ended=this.ended, drop=drop))

    # ---- nodes that have returned -----------------------------------------------------------------------------------

    def _end_collectives(self, peer: m.PeerReturned) -> None:
        """Let collectives of TensorFlow fail, where this process has any: the peer will not take part in them."""
        module = sys.modules.get("tensorflow.python.eager.context")
        context = module.context_safe() if module is not None else None
        if context is None or getattr(context, "_collective_ops_server_def", None) is None:
            return
        # Where a pass goes on, the nodes have passes of different lengths.
        waits_elsewhere = STEP_COUNT.ended or STEPS.evaluates or not peer.ended
        if waits_elsewhere and 0 <= STEP_COUNT.steps <= peer.steps:
            reason = (
                f"{peer.node} has returned after {format_count(peer.steps, 'step')}, as many as {self._node} has "
                "taken, which waits for it in something else: call fit, evaluate and predict of a model under a "
                "strategy on each node, with the same epochs and callbacks"
            )
        else:
            reason = uneven_text(peer.node, peer.steps, self._node, STEP_COUNT.steps, ended=peer.ended)
        error = FeedError(reason=reason)
        context.abort_collective_ops(_FAILED_PRECONDITION, to_text(error))


def uneven_text(gone: str, steps: int, waiting: str, step: int, *, ended: bool) -> str:
    """Return a sentence about a node that takes part in no further step, while another one still trains.

    Examples
    --------
    >>> uneven_text("worker:1", 12, "chief:0", 13, ended=True)
    'worker:1 has ended its dataset after 12 steps while chief:0 still trains (step 13): give all nodes equally many \
steps, or wrap the dataset in ctx.even(dataset)'
    """
    what = "has ended its dataset" if ended else "has returned"
    after = f" after {format_count(steps, 'step')}" if steps >= 0 else ""
    at = f" (step {step})" if step > 0 else ""
    return f"{gone} {what}{after} while {waiting} still trains{at}: {_ADVICE}"
