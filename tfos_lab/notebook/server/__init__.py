"""The Jupyter server extension: TensorBoard behind the user's login, and the clusters of all kernels.

It sends nothing to kernels, which may be busy. It reads the cluster records and run records that they write, and
connects to the sockets of their TensorBoards.
"""

from __future__ import annotations

import re
from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "tfos_lab.notebook.server"}]


def _load_jupyter_server_extension(server: Any) -> None:
    from tfos_lab.core import cluster_records
    from tfos_lab.notebook.server.cluster_handlers import ClustersHandler, RecordedRuns, StopHandler
    from tfos_lab.notebook.server.tensorboard_handlers import TensorBoardEntryHandler, TensorBoardHandler, Tickets

    root = re.escape(server.web_app.settings["base_url"].rstrip("/")) + "/tfos-lab"
    tickets = Tickets()
    routes = [
        (rf"{root}/clusters", ClustersHandler, {"runs": RecordedRuns()}),
        (rf"{root}/clusters/([^/]+)/stop", StopHandler, {}),
        (rf"{root}/tb/([^/]+)/?", TensorBoardEntryHandler, {"tickets": tickets}),
        (rf"{root}/tb/([^/]+)/~([0-9a-f]+)(/.*)", TensorBoardHandler, {"tickets": tickets}),
    ]
    server.web_app.add_handlers(".*$", routes)
    cluster_records.announce_server()
