"""A context without a cluster, so that ``map_fun(args, local_context())`` works as a plain call."""

from __future__ import annotations

import tempfile
import threading

from tfos_lab.core import messages as m
from tfos_lab.core.lazy_imports import after_import
from tfos_lab.node.context.context import NodeContext
from tfos_lab.node.feed.reader import FeedReader
from tfos_lab.node.remote_files import register_file_systems


def local_context(*, log_dir: str | None = None) -> NodeContext:
    """Return the context of a cluster of one node, in this process.

    Parameters
    ----------
    log_dir : str, optional
        Folder for event files, or an address; a new temporary folder by default.

    Examples
    --------
    >>> import tfos_lab
    >>> tfos_lab.local_context().world_size
    1
    """
    after_import("tensorflow", register_file_systems)
    start = m.Start(
        rank=0,
        cluster_spec={"chief": ["localhost:0"]},
        job_name="chief",
        task_index=0,
        is_chief=True,
        log_dir=log_dir or tempfile.mkdtemp(prefix="tfos-local-"),
    )
    feed = FeedReader(0, lambda _message: None)
    feed.handle(m.FeedsEnded())
    return NodeContext(start, feed, lambda _message: None, threading.Event())
