"""Nodes that train in lock-step: what each has ahead of a step, how many rows a step has on all, and who has left."""

from __future__ import annotations

from tfos_lab.messages.common import Message


class StepsAhead(Message, frozen=True):
    """The next steps of one pass over ``ctx.even(dataset)``, and how many rows this node has for each.

    ``runs`` are pairs of a number of steps and the rows of each. A pass that has ``ended`` has no further rows on this
    node. With ``drop``, it ends on all nodes with the first.
    """

    rank: int
    dataset_id: int
    passage: int
    runs: list[tuple[int, int]]
    ended: bool = False
    drop: bool = False


class StepsAgreed(Message, frozen=True):
    """How many rows the next steps of a pass have on all nodes, in ``runs`` as above.

    With the last step it has ``ended``; or the node ``left`` has stopped reading, so that no more can be agreed on.
    """

    dataset_id: int
    passage: int
    runs: list[tuple[int, int]]
    ended: bool = False
    left: str = ""


class PeerReturned(Message, frozen=True):
    """The function of another node of the lock-step has returned: it takes part in no further step.

    It has taken ``steps`` elements of the dataset that it read last, which may have ``ended``; -1 if that is not known.
    """

    node: str
    steps: int = -1
    ended: bool = False


FromAgent = StepsAhead
ToAgent = StepsAgreed | PeerReturned
