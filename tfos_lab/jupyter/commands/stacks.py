"""``%tfos stacks``: where the threads of the nodes are now."""

from __future__ import annotations

from tfos_lab.jupyter.commands.node_arguments import cluster_and_node

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
