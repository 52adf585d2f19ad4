"""``%tfos start``: starts nodes that wait for cells."""

from __future__ import annotations

import dataclasses
from typing import Any

from tfos_lab.core.config import ClusterOptions
from tfos_lab.engine.interactive.cluster import make_interactive
from tfos_lab.errors import ClusterInterrupted, ConfigError
from tfos_lab.jupyter.options.table import BY_NAME, CellOptions, parse_options
from tfos_lab.jupyter.run import INTERRUPT_GRACE_S, find_session, require_free_name, run_cluster
from tfos_lab.node.interactive.loop import run_cells

_CELL_OPTIONS = ("args", "spark", "replace")


def start_cluster(shell: Any, line: str) -> None:
    """Start an interactive cluster; returns when all its nodes wait.

    Raises
    ------
    ConfigError
        For options that do not fit.
    ClusterInterrupted
        If the user interrupted the start: no node is left.
    TfosError
        If the nodes do not come up.
    """
    __tracebackhide__ = True
    options = parse_options(line, shell.user_ns)
    _refuse_others(options)
    require_free_name(options)
    session = find_session(shell, options)
    config = options.cluster
    if "restarts" not in options.given:
        config = dataclasses.replace(config, restarts=0)  # a default for cells, which does not fit here
    cluster = make_interactive(options.args, spark=session, config=config)
    shell.user_ns[cluster.name] = cluster
    try:
        run_cluster(cluster, run_cells, dataclasses.replace(options, background=True))
        cluster.wait_until_running()
    except KeyboardInterrupt:
        cluster.stop(grace=INTERRUPT_GRACE_S)
        raise ClusterInterrupted(cluster.name) from None
    nodes = ", ".join(node.name for node in cluster.nodes)
    print(f"{nodes} wait for cells: %%tfos on={cluster.name}; %tfos stop {cluster.name} ends them")  # noqa: T201


def _refuse_others(options: CellOptions) -> None:
    known = [name for name in BY_NAME if BY_NAME[name].owner is ClusterOptions or name in _CELL_OPTIONS]
    problems = []
    for name in options.given:
        if name == "data" or BY_NAME[name].group == BY_NAME["data"].group:
            problems.append(f"{name}: feed rows with {options.cluster.name}.train(...) once the nodes wait")
        elif name not in known:
            problems.append(f"{name}: belongs to a cell; %tfos start takes {', '.join(known)}")
    if problems:
        raise ConfigError(problems)
