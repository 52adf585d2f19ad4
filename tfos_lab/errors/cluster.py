"""Errors of a cluster: its nodes did not start, failed, or have ended."""

from __future__ import annotations

from tfos_lab.errors.base import TfosError
from tfos_lab.errors.text import format_count

# Of thousands of nodes that are missing.
_MOST_NAMED = 12


class ReservationTimeout(TfosError, TimeoutError):
    """Fewer nodes than asked for reserved in time."""

    reserved: int
    wanted: int
    waited_s: float
    missing: list[str]
    hint: str

    def __init__(self, *, reserved: int, wanted: int, waited_s: float, missing: list[str], hint: str = "") -> None:
        super().__init__(reserved=reserved, wanted=wanted, waited_s=waited_s, missing=list(missing), hint=hint)

    def __str__(self) -> str:
        hint = self.hint or "Ask for fewer nodes, or raise reservation_timeout"
        named, more = self.missing[:_MOST_NAMED], len(self.missing) - _MOST_NAMED
        missing = ", ".join(named) + (f" and {more:,} more" if more > 0 else "")
        reserved = f"{self.reserved} of {format_count(self.wanted, 'node')} reserved within {self.waited_s:g} s"
        return f"{reserved}; missing: {missing}. {hint}."


class LaunchFailed(TfosError, RuntimeError):
    """The launcher could not start the nodes. ``reason`` is the first cause that it found."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)


# Why others fail with a node, where it is not gone.
_CAUSES = {"Hung": "hung", "FeedTimeout": "took no rows"}


class NodeFailed(TfosError, RuntimeError):
    """A node failed: its function raised, its process ended, or the node was lost.

    Attributes
    ----------
    node : str
        The first node that failed, such as ``"worker:1"``.
    kind : str
        Name of the remote exception's type, or ``"Exited"``, ``"Lost"`` or ``"Hung"``.
    message : str
        The remote exception's text.
    traceback : str
        The remote traceback without frames of tfos_lab, the stacks of a hung node, or "".
    also : list of str
        Other nodes that failed in the same way.
    consequences : dict of str to str
        What other nodes raised because this one had ended, by node.
    log_tail : str
        The last lines of the node's log.
    """

    node: str
    kind: str
    message: str
    traceback: str
    also: list[str]
    consequences: dict[str, str]
    log_tail: str

    def __init__(
        self,
        *,
        node: str,
        kind: str,
        message: str,
        traceback: str = "",
        also: list[str] | None = None,
        consequences: dict[str, str] | None = None,
        log_tail: str = "",
    ) -> None:
        super().__init__(
            node=node,
            kind=kind,
            message=message,
            traceback=traceback,
            also=list(also or []),
            consequences=dict(consequences or {}),
            log_tail=log_tail,
        )

    def __str__(self) -> str:
        also = f" (and {', '.join(self.also)})" if self.also else ""
        parts = [f"{self.node}{also}: {self.kind}: {self.message}"]
        if self.traceback:
            what = "stacks" if self.kind in ("Hung", "FeedTimeout") else "traceback"
            parts.append(f"\n--- {what} of {self.node} ---\n{self.traceback.rstrip()}")
        elif self.log_tail:
            parts.append(f"\n--- last lines of {self.node} ---\n{self.log_tail.rstrip()}")
        if self.consequences:
            names = ", ".join(sorted(self.consequences))
            why = _CAUSES.get(self.kind, "was gone" if ":" in self.node else "failed")
            parts.append(f"\n{names} then failed too, because {self.node} {why}.")
        return "".join(parts)


class ClusterEnded(TfosError, RuntimeError):
    """The cluster that was asked for something has ended."""

    cluster: str
    state: str
    asked: str

    def __init__(self, *, cluster: str, state: str, asked: str) -> None:
        super().__init__(cluster=cluster, state=state, asked=asked)

    def __str__(self) -> str:
        return f"cannot {self.asked}: cluster '{self.cluster}' is {self.state}. Start another with tfos_lab.run(...)."


class WaitTimeout(TfosError, TimeoutError):
    """``wait(timeout_s=...)`` ran out while nodes were still running. The cluster goes on."""

    waited_s: float
    still_running: list[str]

    def __init__(self, *, waited_s: float, still_running: list[str]) -> None:
        super().__init__(waited_s=waited_s, still_running=list(still_running))

    def __str__(self) -> str:
        return (
            f"after {self.waited_s:g} s still running: {', '.join(self.still_running)}. "
            "The cluster goes on; wait again, or end it with stop()."
        )


class ShutdownTimeout(TfosError, TimeoutError):
    """``TFCluster.shutdown(timeout=...)`` ran out while nodes were still running. They were stopped."""

    waited_s: float
    still_running: list[str]

    def __init__(self, *, waited_s: float, still_running: list[str]) -> None:
        super().__init__(waited_s=waited_s, still_running=list(still_running))

    def __str__(self) -> str:
        return (
            f"after {self.waited_s:g} s still running, and therefore stopped: {', '.join(self.still_running)}. "
            "Allow more time with shutdown(timeout=...), or -1 for no limit."
        )


class NoModel(TfosError, RuntimeError):
    """A run has no model (yet), or this kernel cannot load it."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)


class ProfileFailed(TfosError, RuntimeError):
    """A node could not be profiled. It goes on."""

    node: str
    reason: str

    def __init__(self, *, node: str, reason: str) -> None:
        super().__init__(node=node, reason=reason)

    def __str__(self) -> str:
        return f"{self.node} cannot be profiled: {self.reason}"
