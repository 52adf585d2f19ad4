"""What runs inside the Jupyter server: TensorBoard under the user's own login, and the clusters of all kernels.

It asks no kernel: what it knows comes from the cluster records that the kernels write, and what it wants goes to their
sockets.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Tell the Jupyter server where the extension is."""
    return [{"module": "tfos_lab.jupyter_server"}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Add the routes; called by the Jupyter server when it starts."""
    from tfos_lab.core import cluster_records
    from tfos_lab.jupyter_server.routes import make_routes

    server.web_app.add_handlers(".*$", make_routes(server.web_app.settings["base_url"]))
    cluster_records.announce_server()
