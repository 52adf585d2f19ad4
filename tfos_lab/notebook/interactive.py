"""Interactive clusters in a notebook: ``%tfos start`` leaves nodes waiting, ``%%tfos on=NAME`` runs a cell on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

from IPython.core.displayhook import DisplayHook
from IPython.display import display

from tfos_lab.core.config import ClusterOptions
from tfos_lab.core.markup import Html, h, join
from tfos_lab.driver.cells import RunningCell
from tfos_lab.driver.interactive import (
    CellResults,
    InteractiveCluster,
    compile_statements,
    grouped,
    make_interactive,
    names_of,
)
from tfos_lab.driver.start import clusters
from tfos_lab.driver.state.events import ShownView
from tfos_lab.errors import ClusterInterrupted, ConfigError
from tfos_lab.node.interactive import InteractiveCell, run_cells
from tfos_lab.notebook.cell.free_names import capture
from tfos_lab.notebook.cell.function import as_cell_error, parse_body, register_cell, visible_names
from tfos_lab.notebook.display.assets import read_asset
from tfos_lab.notebook.display.kernel import current_kernel
from tfos_lab.notebook.display.log_text import render_log
from tfos_lab.notebook.display.shown import LIVE_BYTES, SAVED_BYTES, render_shown, shown_names
from tfos_lab.notebook.options import BY_NAME, CellOptions, parse_options
from tfos_lab.notebook.run import INTERRUPT_GRACE_S, find_session, put_into, require_free_name, run_cluster
from tfos_lab.texts import suggest

_GIVEN = {"args", "ctx"}
_NAMES_STYLE = "color:var(--jp-ui-font-color2,#666);font-size:85%"
_TEXT_STYLE = "margin:0 0 .5em;white-space:pre-wrap"


# ---- starting nodes that wait ---------------------------------------------------------------------------------------


def start_cluster(shell: Any, line: str) -> None:
    """Start an interactive cluster; returns when all its nodes wait. If the user interrupts it, no node is left."""
    __tracebackhide__ = True
    options = parse_options(line, shell.user_ns)
    _refuse_others(options)
    require_free_name(shell, options)
    session = find_session(shell, options)
    config = options.cluster
    if "restarts" not in options.given:
        config = dataclasses.replace(config, restarts=0)  # a default for cells, which does not fit here
    cluster = make_interactive(options.args, spark=session, config=config)
    put_into(shell, cluster)
    try:
        run_cluster(cluster, run_cells, dataclasses.replace(options, background=True))
        cluster.wait_until_running()
    except KeyboardInterrupt:
        cluster.stop(grace=INTERRUPT_GRACE_S)
        raise ClusterInterrupted(cluster.name) from None
    nodes = ", ".join(node.name for node in cluster.nodes)
    print(f"{nodes} wait for cells: %%tfos on={cluster.name}; %tfos stop {cluster.name} ends them")  # noqa: T201


def _refuse_others(options: CellOptions) -> None:
    known = [name for name in BY_NAME if BY_NAME[name].owner is ClusterOptions or name in ("args", "spark")]
    problems = []
    for name in options.given:
        if name == "data" or BY_NAME[name].group == BY_NAME["data"].group:
            problems.append(f"{name}: feed rows with {options.cluster.name}.train(...) once the nodes wait")
        elif name not in known:
            problems.append(f"{name}: belongs to a cell; %tfos start takes {', '.join(known)}")
    if problems:
        raise ConfigError(problems)


# ---- running cells on them ------------------------------------------------------------------------------------------


def run_on_nodes(shell: Any, line: str, body: str) -> CellResults | None:
    """Run a cell on the nodes of an interactive cluster; returns the values of the last expression, if it has any.

    Raises `ConfigError`, `CellSyntaxError` or `PayloadError` before anything is sent, and `CellFailed` or
    `CellInterrupted` if the cell failed, or was interrupted; the nodes go on.
    """
    __tracebackhide__ = True
    options = parse_options(line, shell.user_ns)
    cluster, wanted = _cluster(options, shell.user_ns)
    nodes = cluster.choose(wanted)
    cell = register_cell(shell, line, body)
    statements, flags = parse_body(shell, cell)
    is_silent = DisplayHook.semicolon_at_end_of_expression(body)  # type: ignore[no-untyped-call]
    try:
        code, last = compile_statements(statements, cell.filename, flags=flags, shows_last=not is_silent)
    except (SyntaxError, ValueError) as error:
        raise as_cell_error(error, cell) from None
    there = cluster.cells.own_names(nodes) | _GIVEN
    names = {name: value for name, value in visible_names(shell).items() if name not in there}
    sent = InteractiveCell(body=code, last=last, captured=capture(statements, names))
    before = cluster.shown.views
    running = cluster.begin_cell(sent, nodes)
    with CellOutput(cluster, running, before) as output:
        results = cluster.finish_cell(running, on_step=output.update)
    return results if any(value is not None for value in results.values()) else None


def waiting_clusters() -> list[InteractiveCluster]:
    """Return the clusters whose nodes wait for cells."""
    return [cluster for cluster in clusters() if isinstance(cluster, InteractiveCluster) and not cluster.ended]


def _cluster(options: CellOptions, names: Mapping[str, object]) -> tuple[InteractiveCluster, str | None]:
    """Return the cluster that ``on`` means, and its node, job or None; raises `ConfigError` for anything else said.

    It is that of the variable of this name, such as ``crew = tfos_lab.start()``, or else of this label.
    """
    name, _, node = str(options.on).partition("/")
    waiting = waiting_clusters()
    found = next((cluster for cluster in waiting if cluster is names.get(name)), None)
    found = found or next((cluster for cluster in waiting if cluster.name == name), None)
    problems = [
        f"{other}: belongs to %tfos start; with on=..., a cell takes no other option"
        for other in options.given
        if other != "on"
    ]
    if not waiting:
        problems.append(f"on={name}: no nodes wait; start some with %tfos start cluster_size=2 name={name}")
    elif found is None:
        problems.append(f"on={name}: no nodes of that name wait; {suggest(name, (one.name for one in waiting))}")
    if problems or found is None:
        raise ConfigError(problems)
    return found, node or None


class CellOutput:
    """Shows a cell's text, and what its nodes show, while it runs, in a kernel; elsewhere it is printed at the end.

    ``before`` is what nodes have shown before it. While it runs, little of its pictures is sent again with each line.
    """

    def __init__(self, cluster: InteractiveCluster, cell: RunningCell, before: Sequence[ShownView]) -> None:
        self._cluster = cluster
        self._cell = cell
        self._before = frozenset(before)
        self._drawn: tuple[str, list[ShownView], int] = "", [], LIVE_BYTES
        self._handle: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if current_kernel() is not None:
            self.update()
        elif text := self.text():
            print(text)  # noqa: T201

    def update(self) -> None:
        """Show what has been written by now; called by the thread that runs the cell."""
        shown = self.shown()
        drawn = self.text(), shown, SAVED_BYTES if shown and not self._cell.busy else LIVE_BYTES
        if current_kernel() is None or drawn == self._drawn:
            return
        self._drawn = drawn
        if self._handle is None:
            self._handle = display(self, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(self)

    def groups(self) -> list[tuple[str, str]]:
        """Return what has been written, each text with the nodes that have written it; "" for a single node."""
        nodes = list(self._cell.nodes.values())
        texts = {node: "".join(text for text, _ in render_log(self._cell.text_of(node))) for node in nodes}
        found = grouped({node: text.rstrip("\n") for node, text in texts.items() if text.strip()})
        return [("" if len(nodes) == 1 else names_of(group, len(nodes)), text) for text, group in found.items()]

    def shown(self) -> list[ShownView]:
        """Return what nodes have shown since the cell began."""
        nodes = self._cell.nodes.values()
        return [one for one in self._cluster.shown.views if one.node in nodes and one not in self._before]

    def text(self) -> str:
        """Return it as text."""
        texts = [f"[{names}]\n{text}" if names else text for names, text in self.groups()]
        shown = self.shown()
        return "\n".join([*texts, *([f"shown: {shown_names(shown)}"] if shown else [])])

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        parts = [
            join(h("div", names, style=_NAMES_STYLE) if names else None, h("pre", text, style=_TEXT_STYLE))
            for names, text in self.groups()
        ]
        limit = LIVE_BYTES if self._cell.busy else SAVED_BYTES
        if shown := render_shown(self.shown(), self._cluster.run_dir, limit):
            style = Html(f"<style>{read_asset('summary.css')}</style>")
            parts.append(join(style, h("div", shown, cls="tfos tfos-static")))
        return {"text/plain": self.text(), "text/html": join(*parts)}
