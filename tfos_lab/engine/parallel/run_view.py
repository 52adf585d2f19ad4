"""The nodes of one run as a row of the table. Pure: views go in, a view comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tfos_lab.engine.state.events import NodeView


def node_of_run(name: str, index: int, nodes: Sequence[NodeView], leader: str) -> NodeView:
    """Return a run's nodes as one: what the leading one reports, as far as the last of them is, and where all are."""
    blank = NodeView(name, "run", index, is_chief=False)
    chief = next((node for node in nodes if node.node == leader), None)
    if chief is None:
        return blank
    own = dataclasses.replace(chief, node=name, job_name="run", task_index=index, is_chief=False, address="")
    if len(nodes) == 1:
        return own
    return dataclasses.replace(
        own,
        state=min((node.state for node in nodes), key=lambda state: state.order),
        host=_joined(node.host for node in nodes),
        executor=_joined(node.executor for node in nodes),
        gpus=tuple(gpu for node in nodes for gpu in node.gpus),
        pid=0,
        rows=sum(node.rows for node in nodes),
        hung="; ".join(f"{node.node}: {node.hung}" for node in nodes if node.hung),
    )


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))
