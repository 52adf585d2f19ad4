"""What the page has to know of a cluster beside the parts of its card: the trait ``view``, as plain JSON values."""

from __future__ import annotations

from tfos_lab.engine.state.events import ClusterView
from tfos_lab.jupyter.display import messages, summary
from tfos_lab.jupyter.display.listing import Listing


def encode_view(view: ClusterView, run_dir: str, listing: Listing) -> messages.View:
    """Return what the page does not show, but goes by."""
    view = summary.with_endings(view)
    places = view.places
    shown = listing.of(view).nodes
    return {
        "id": view.cluster_id,
        "name": view.name,
        "state": view.state.value,
        "spark_ui": view.spark_ui,
        "tensorboard": view.tensorboard,
        "run_dir": run_dir,
        "rows": [{"node": node.node, "place": places[node.node], "state": node.state.value} for node in shown],
        "hung": [node.node for node in shown if summary.hangs(node)],
    }
