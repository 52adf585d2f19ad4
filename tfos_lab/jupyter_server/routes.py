"""The addresses of the extension, and the handlers that serve them."""

from __future__ import annotations

import re
from typing import Any

from tfos_lab.jupyter_server.cluster_handlers import ClustersHandler, RunsHandler, StopHandler
from tfos_lab.jupyter_server.recorded_runs import RecordedRuns
from tfos_lab.jupyter_server.tensorboard_handlers import TensorBoardEntryHandler, TensorBoardHandler, Tickets


def make_routes(base_url: str) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return the routes below ``base_url``, in tornado's form."""
    root = re.escape(base_url.rstrip("/")) + "/tfos-lab"
    tickets, runs = Tickets(), RecordedRuns()
    return [
        (rf"{root}/clusters", ClustersHandler, {"runs": runs}),
        (rf"{root}/clusters/([^/]+)/stop", StopHandler, {}),
        (rf"{root}/runs", RunsHandler, {"runs": runs}),
        (rf"{root}/tb/([^/]+)/?", TensorBoardEntryHandler, {"tickets": tickets}),
        (rf"{root}/tb/([^/]+)/~([0-9a-f]+)(/.*)", TensorBoardHandler, {"tickets": tickets}),
    ]
