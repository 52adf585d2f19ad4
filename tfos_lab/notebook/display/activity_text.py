"""What nodes spend their time on and what they take of their hosts, as text. Pure: views go in, text comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tfos_lab.notebook.display.formats import format_bytes
from tfos_lab.texts import format_step

if TYPE_CHECKING:
    from tfos_lab.core.messages import NodeActivity
    from tfos_lab.driver.state.events import NodeView


class ShareKind(NamedTuple):
    """What a node may spend its time on, in a sentence about it and beside its bar."""

    words: str
    short: str


# In the order of the bars, by the keys of their colours.
SHARE_KINDS = {
    "rows": ShareKind("waits for rows", "rows"),
    "data": ShareKind("waits for tf.data", "tf.data"),
    "peers": ShareKind("waits for peers", "peers"),
    "compute": ShareKind("computes", "compute"),
    "python": ShareKind("runs Python", "Python"),
}

# Shares below this are not told in words.
_SMALL = 0.005


def shares(node: NodeView) -> dict[str, float]:
    """Return the shares of a node's time, by the keys of `SHARE_KINDS`; nothing where they are not known."""
    activity = node.activity
    if activity is None or not activity.is_known:
        return {}
    parts = (activity.waits_rows, activity.waits_data, activity.waits_peers, activity.computes, activity.python)
    return dict(zip(SHARE_KINDS, parts, strict=True))


def shares_text(node: NodeView) -> str:
    """Return the shares in words, the largest first: ``"computes 61 %, waits for rows 34 %, runs Python 5 %"``."""
    known = sorted(((key, share) for key, share in shares(node).items() if share >= _SMALL), key=_by_size)
    return ", ".join(f"{SHARE_KINDS[key].words} {_percent(share)}" for key, share in known)


def largest_share(node: NodeView) -> tuple[str, float]:
    """Return what a node spends most of its time on, by its key, and the share."""
    return min(shares(node).items(), key=_by_size)


def _by_size(part: tuple[str, float]) -> float:
    return -part[1]


def step_time_text(node: NodeView) -> str:
    """Return how long the last steps took, and how much longer than those of its peers: ``"250 ms, 2.1× slower"``."""
    return ", ".join(part for part in (own_step_time_text(node), straggler_text(node)) if part)


def own_step_time_text(node: NodeView) -> str:
    """Return how long the last steps of a node took."""
    return "" if node.activity is None or node.activity.step_s is None else format_step(node.activity.step_s)


def straggler_text(node: NodeView) -> str:
    """Return such as ``"2.1× slower"`` for a node that holds its peers up, else nothing."""
    slower = node.activity.slower if node.activity is not None else None
    return f"{slower:.1f}× slower" if slower is not None else ""


def cpu_text(node: NodeView) -> str:
    """Return the cores that a node uses."""
    return f"{node.activity.cpu:.1f}" if node.activity is not None else ""


def memory_text(node: NodeView) -> str:
    """Return the memory that a node uses."""
    return format_bytes(node.activity.memory_bytes) if node.activity is not None and node.activity.memory_bytes else ""


def gpu_text(node: NodeView) -> str:
    """Return how busy a node's GPUs are, and what they hold."""
    activity = node.activity
    if activity is None or activity.gpu is None:
        return ""
    memory = f", {format_bytes(activity.gpu_memory_bytes)}" if activity.gpu_memory_bytes else ""
    return f"{_percent(activity.gpu)}{memory}"


def host_text(node: NodeView) -> str:
    """Return how busy a node's host is, by whomever: ``"CPU 98 %, memory 41 %"``."""
    activity = node.activity
    if activity is None or not activity.host_memory:
        return ""
    return f"CPU {_percent(activity.host_cpu)}, memory {_percent(activity.host_memory)}"


def last_sign_text(node: NodeView) -> str:
    """Return the last sign of the function, where it is some time ago: ``"step 41, 64 s ago"``."""
    activity = node.activity
    if activity is None or not activity.last_sign:
        return ""
    return f"{activity.last_sign}{_ago(activity)}"


def _ago(activity: NodeActivity) -> str:
    return f", {activity.idle_s:.0f} s ago" if activity.idle_s >= 5 else ""


def where_text(node: NodeView) -> str:
    """Return what the function's thread does."""
    return node.activity.where if node.activity is not None else ""


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
