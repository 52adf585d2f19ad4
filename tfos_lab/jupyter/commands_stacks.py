"""``%tfos stacks``: where the threads of the nodes are now; and the same for the button of a cell's live view."""

from __future__ import annotations

from tfos_lab.engine.runtime import ClusterRuntime
from tfos_lab.jupyter.node_arguments import cluster_and_node

USAGE = "stacks [cluster] [node]"
_TIMEOUT_S = 5.0


def show_stacks(arguments: list[str]) -> None:
    """Print the stacks of a node, or of all, with what is known of each."""
    cluster, node = cluster_and_node(arguments, usage=USAGE)
    hung = {view.node: view.hung for view in cluster.nodes}
    for name, text in cluster.stacks(node, timeout_s=_TIMEOUT_S).items():
        print(f"{_heading(name, hung[name])}\n{_indented(text)}\n")  # noqa: T201


def _heading(node: str, hung: str) -> str:
    return f"{node}: {hung}" if hung else node


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())


def stacks_of_rank(runtime: ClusterRuntime, rank: int, timeout_s: float = _TIMEOUT_S) -> tuple[str, str]:
    """Return the name of a node and its stacks as text, for a page that knows it by its rank; ("", why) without one.

    It waits for the node's answer: not for the thread that reads messages.
    """
    nodes = runtime.nodes
    if not 0 <= rank < len(nodes):
        return "", f"there is no node {rank}"
    node = nodes[rank].node
    return node, runtime.stacks(node, timeout_s)[node]
