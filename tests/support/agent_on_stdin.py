"""``python -m tests.support.agent_on_stdin``: the agent of one node, whose `LaunchSpec` comes on standard input."""

from __future__ import annotations

import sys

from tfos_lab.node import agent

if __name__ == "__main__":
    sys.exit(agent.run(sys.stdin.buffer.read(), []))
