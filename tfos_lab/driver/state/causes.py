"""Why a cluster failed: the first real cause among the errors of its nodes, and what followed from it. Pure.

When a node dies, the collectives of its peers fail too, often before the node itself is known to be dead. Such an
error waits for a better explanation; it becomes the cause only if none comes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tfos_lab.core import messages as m
from tfos_lab.driver.state.instructions import Failure
from tfos_lab.node.lock_step import uneven_text
from tfos_lab.texts import first_line

# While a node has been silent for so long, its loss may explain the errors of others.
SILENT_S = 2.0
# An error that may be caused by another node's end waits this long for that node's own error, or for its silence.
CONSEQUENCE_PATIENCE_S = SILENT_S + 0.5
# Where it tells of a mismatch of collectives, as long for the first error of another node.
MISMATCH_PATIENCE_S = 4.0
# TensorFlow's lists of tasks that have stopped sending heartbeats, or have not come to a barrier.
_SILENT = re.compile(r"(?:unhealthy[^:\n]*|timed out task names[^:\n]*):((?:\s*/job:\w+/(?:replica:\d+/)?task:\d+)+)")
_TASK = re.compile(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)")
# In TensorFlow's errors where one node takes part in another collective than its peers.
_MISMATCH = "collective instance"


class Causes:
    """The errors of the nodes of one start, sorted into cause and consequences.

    `first` is the cause, once it is known; `also` names other nodes that failed in the same way, and `consequences` has
    what the rest failed with, by node.
    """

    def __init__(self) -> None:
        self.first: Failure | None = None
        self.also: list[str] = []
        self.consequences: dict[str, str] = {}
        self._unexplained: tuple[Failure, float] | None = None
        self._held_until_s = 0.0

    def add(self, failure: Failure, now_s: float, *, consequence: bool, others_alive: bool) -> bool:
        """Add a node's failure; return whether it is the cause."""
        if self.first is not None:
            if failure.kind == self.first.kind and not consequence:  # of another row, as a rule
                self.also.append(failure.node)
            else:
                self.consequences[failure.node] = summary(failure)
            return False
        if consequence and others_alive:
            if self._unexplained is None:
                self._unexplained = (failure, now_s)
            else:
                self.consequences[failure.node] = summary(failure)
            return False
        self._set_first(failure)
        return True

    @property
    def has_unexplained(self) -> bool:
        """Whether an error waits for a better explanation."""
        return self._unexplained is not None

    @property
    def silent_nodes(self) -> tuple[str, list[str]]:
        """The node whose error waits for a better explanation, and the nodes that this error calls silent."""
        if self._unexplained is None:
            return "", []
        failure = self._unexplained[0]
        return failure.node, [node for node in silent_nodes_in(failure.message) if node != failure.node]

    def hold(self, until_s: float) -> None:
        """Let no error become the cause unexplained before this time: nodes are being asked; 0 lets it."""
        self._held_until_s = until_s

    def overdue(self, now_s: float) -> Failure | None:
        """Return the failure that has become the cause because nothing has explained it in time."""
        if self._unexplained is None:
            return None
        failure, since_s = self._unexplained
        # Collectives that differ fail on all nodes: how the others have ended says why.
        is_mismatch = _MISMATCH in failure.message.lower()
        patience_s = MISMATCH_PATIENCE_S if is_mismatch and not self.consequences else CONSEQUENCE_PATIENCE_S
        if now_s - since_s <= patience_s or now_s < self._held_until_s:
            return None
        self._set_first(failure)
        return failure

    def _set_first(self, failure: Failure) -> None:
        self.first = failure
        if self._unexplained is not None and self._unexplained[0].node != failure.node:
            unexplained = self._unexplained[0]
            self.consequences[unexplained.node] = summary(unexplained)
        self._unexplained = None


def silent_nodes_in(message: str) -> list[str]:
    r"""Return the nodes that an error of TensorFlow's names as silent, in its order.

    Examples
    --------
    >>> silent_nodes_in("The following tasks are unhealthy (no heartbeats):\n/job:worker/replica:0/task:1")
    ['worker:1']
    """
    tasks = [task for listed in _SILENT.findall(message) for task in _TASK.findall(listed)]
    return list(dict.fromkeys(f"{job}:{index}" for job, index in tasks))


def in_terms_of_steps(failure: Failure, outcomes: Mapping[str, m.Outcome], steps: Mapping[str, int]) -> Failure:
    """Say what TensorFlow calls a mismatch of collectives in terms of the nodes' steps; return others unchanged.

    ``outcomes`` has the nodes that have ended so far, and ``steps`` the last step that each node that trains has
    reported; -1 for none.
    """
    if _MISMATCH not in failure.message.lower():
        return failure
    ended = {node: outcomes[node].steps for node in steps if node in outcomes and outcomes[node].dataset_ended}
    rest = [node for node in steps if node not in ended]
    if ended and rest:
        first, other = min(ended, key=lambda node: ended[node]), rest[0]
        step = outcomes[other].steps if other in outcomes else steps[other] + 1
        text = uneven_text(first, ended[first], other, step, ended=True)
    else:
        text = (
            "the nodes that train do not take the same steps together: give all nodes the same callbacks and "
            "validation data, and equally many steps, or wrap the dataset in ctx.even(dataset)"
        )
    return replace(failure, kind="FeedError", message=text, gone=False)


def summary(failure: Failure) -> str:
    """Return a failure in one line."""
    said = first_line(failure.message)
    return f"{failure.kind}: {said}" if said else failure.kind


def failure_from(node: str, outcome: m.Outcome) -> Failure:
    """Return why the cluster fails if a node ends so; ``gone`` for signals from outside, and consequences of such."""
    if outcome.kind == "raised":
        return Failure(node, outcome.error, outcome.message, outcome.traceback, gone=outcome.consequence)
    sentence = outcome.message or _exit_sentence(outcome.exit_code)
    return Failure(node, "Exited", sentence, gone=outcome.exit_code < 0)


def _exit_sentence(code: int) -> str:
    if code == -9:
        return "the process was killed (SIGKILL); the host may have run out of memory"
    if code < 0:
        return f"the process was ended by signal {-code}"
    return f"the process exited with code {code} before the function returned"
