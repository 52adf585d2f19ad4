"""``tfos-lab warm``: keeps fork servers warm, from which the first cluster of a kernel starts at once."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence

from tfos_lab.cli.terminal import StatusLine, echo, echo_error
from tfos_lab.engine.launchers.this_machine import FORK_SERVER, outlives_kernels
from tfos_lab.engine.warm import wait_until_warm, warm
from tfos_lab.engine.warm_servers import describe, end_warm_servers, warm_servers
from tfos_lab.errors import ConfigError

# Well below the ten idle minutes after which a fork server ends.
_PING_S = 60.0


def run(arguments: Sequence[str]) -> int:
    """Keep the fork servers of this environment warm until Ctrl-C, or end them."""
    parser = argparse.ArgumentParser(
        prog="tfos-lab warm",
        description="Import TensorFlow once, for all notebooks of this user and environment on this machine, and keep "
        "it until Ctrl-C. The first cluster of a new or restarted kernel then starts at once.",
    )
    parser.add_argument("action", nargs="?", choices=["stop"], help="end the fork servers that no node needs now")
    if parser.parse_args(arguments).action == "stop":
        echo(end_warm_servers())
        return 0
    try:
        return _keep_warm()
    except (ConfigError, OSError) as error:
        echo_error(str(error))
        return 1


def _keep_warm() -> int:
    if not outlives_kernels():
        echo_error(f"{FORK_SERVER}=kernel: fork servers end with their kernel, so none can be kept. Unset it first.")
        return 1
    status, began_s = StatusLine(), time.monotonic()
    status.show("importing TensorFlow …")
    try:
        wait_until_warm()
        status.finish(f"warm after {time.monotonic() - began_s:.1f} s; Ctrl-C lets go of it")
        echo(describe(warm_servers()))
        while not threading.Event().wait(_PING_S):
            warm()
    except KeyboardInterrupt:
        status.clear()
        echo("let go: the fork servers end after ten minutes without use; `tfos-lab warm stop` ends them now")
    return 0
