"""Fork servers in tests: waiting until one has imported everything."""

from __future__ import annotations

from tfos_lab.node.forkserver.requests import SpawnedReply

PATIENCE_S = 60.0


def wait_until_warm(fork_server):
    """Start a fork server if it does not run yet, and wait until its imports are done."""
    with fork_server.connect() as connection:
        connection.ask_if_warm(watched_pid=fork_server.watched_pid)
        assert connection.replies(PATIENCE_S) == [SpawnedReply(pid=0)]
