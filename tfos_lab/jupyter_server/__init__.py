"""The Jupyter server extension: TensorBoard behind the user's login, and the clusters of all kernels.

It never asks a kernel, which may be busy: it reads the cluster records that kernels write, and connects to their unix
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
