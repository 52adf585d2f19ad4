"""The handle on an interactive cluster, whose nodes wait for cells; how cells are compiled, and what they return."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import linecache
import time
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any

from tfos_lab.core import messages as m
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.messages import Outcome
from tfos_lab.core.payload import pack
from tfos_lab.driver.cells import RunningCell
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.results import Results, returned_text
from tfos_lab.driver.start import choose_launcher, make_cluster
from tfos_lab.driver.state.instructions import SendTo
from tfos_lab.errors import CellFailed, CellInterrupted, ClusterEnded, ConfigError, PayloadError, WaitTimeout
from tfos_lab.node.interactive import InteractiveCell, run_cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_STEP_S = 0.2
# How long an interrupted cell may take to end before the caller gets control back.
_INTERRUPT_S = 5.0


class InteractiveCluster(Cluster):
    """Nodes that wait for cells. Made by `tfos_lab.start`; usable with ``with``, which stops it at the end.

    Each node runs its cells one after the other, in one process and one namespace: names stay from cell to cell. It has
    its ``ctx`` and ``TF_CONFIG`` as in any other cluster. An exception ends the cell, not the node.
    """

    needs_evaluator = True  # a cell waits for all nodes

    def run_cell(
        self,
        code: str | Callable[..., Any],
        nodes: str | Iterable[str] | None = None,
        *,
        names: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> CellResults:
        """Run code on the nodes, and wait for its end.

        Parameters
        ----------
        code : str or callable
            Python source, whose names stay on the nodes; or a function, called with ``(args, ctx)``.
        nodes : str or iterable of str, optional
            Which nodes, such as ``"worker:1"``, or all of a job, such as ``"worker"``; all by default.
        names : mapping of str to object, optional
            Values for names that the source uses; a name that a cell has made on a node keeps its value there.
        timeout : float, optional
            Give up waiting after so many seconds; the cell goes on.

        Returns
        -------
        CellResults
            The value of the last expression by node, or what the function returned; ``output`` is what was written.

        Raises
        ------
        CellFailed
            If it raised an exception on a node, with its traceback. The nodes go on.
        CellInterrupted
            After ctrl-c, once the nodes have been interrupted, too.
        ConfigError, PayloadError, SyntaxError
            Before anything is sent.
        ClusterEnded, NodeFailed
            If the nodes do not run any more.

        Examples
        --------
        >>> import tfos_lab
        >>> with tfos_lab.start(cluster_size=2, local="processes") as cluster:
        ...     _ = cluster.run_cell("x = ctx.worker_num + 1")
        ...     dict(cluster.run_cell("x * 10"))
        {'chief:0': 10, 'worker:0': 20}
        """
        if callable(code):
            cell = InteractiveCell(function=code)
        else:
            filename = f"<cell {abs(hash(code)):x}>"
            linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
            body, last = compile_statements(ast.parse(code, filename).body, filename)
            cell = InteractiveCell(body=body, last=last, captured=dict(names or {}))
        return self.finish_cell(self.begin_cell(cell, self.choose(nodes)), timeout=timeout)

    # ---- in steps, for the notebook ---------------------------------------------------------------------------------

    def choose(self, nodes: str | Iterable[str] | None) -> dict[int, str]:
        """Return the chosen nodes, names by rank; raises `ConfigError` for one that is not there."""
        known = dict(enumerate(self.nodes))
        wanted = [nodes] if isinstance(nodes, str) else list(nodes or [])
        chosen = {
            rank: view.name for rank, view in known.items() if not wanted or {view.name, view.job_name} & set(wanted)
        }
        there = {name for view in known.values() for name in (view.name, view.job_name)}
        if missing := [name for name in wanted if name not in there]:
            names = ", ".join(view.name for view in known.values())
            raise ConfigError([f"the cluster '{self.name}' has no node {missing[0]}: it has {names}"])
        return chosen

    def begin_cell(self, cell: InteractiveCell, nodes: Mapping[int, str]) -> RunningCell:
        """Send a cell to nodes; raises as `run_cell` does before anything is sent."""
        if self.ended:
            raise ClusterEnded(cluster=self.name, state=self.state, asked="run a cell")
        running = self.cells.begin(nodes)
        try:
            payload = _packed(cell)
        except BaseException:
            self.cells.forget(running)
            raise
        message = m.RunCell(cell=running.number, payload=payload)
        # What a cell captures may be large: it is held once, however many nodes have not taken it yet.
        self.head.request(lambda _now_s: [SendTo(tuple(nodes), message)])
        return running

    def finish_cell(
        self, cell: RunningCell, *, timeout: float | None = None, on_step: Callable[[], None] = lambda: None
    ) -> CellResults:
        """Wait for a cell's end, and return what it returned; ``on_step`` is called a few times a second."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not self.head.wait_for(lambda: not cell.busy, _STEP_S):
                on_step()
                if self.ended:
                    super().wait(_INTERRUPT_S)  # it raises what has ended the nodes
                if deadline is not None and time.monotonic() > deadline:
                    raise WaitTimeout(waited_s=float(timeout or 0), still_running=cell.busy)
        except KeyboardInterrupt:
            raise self._interrupt(cell) from None
        on_step()
        if (failure := failure_of_cell(cell)) is not None:
            raise failure
        return CellResults(cell)

    def _interrupt(self, cell: RunningCell) -> CellInterrupted:
        message = m.InterruptCell(cell=cell.number)
        self.head.request(lambda _now_s: [SendTo(rank, message) for rank in cell.nodes])
        with contextlib.suppress(KeyboardInterrupt):
            self.head.wait_for(lambda: not cell.busy or self.ended, _INTERRUPT_S)
        return CellInterrupted(self.name, cell.busy)

    # ---- its end ----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> Results:
        """Raise what has ended the nodes; while they live they wait for cells, and so there is nothing to wait for."""
        if not self.ended:
            raise ConfigError([f"the nodes of '{self.name}' wait for cells until they are stopped: call stop()"])
        return super().wait(timeout)

    def shutdown(self, timeout: float | None = None) -> None:  # noqa: ARG002 - as for any cluster
        """Stop the nodes; may be called twice."""
        self.stop()


def _packed(cell: InteractiveCell) -> bytes:
    """Pack a cell; what cannot be sent is named as the notebook names it."""
    try:
        return pack(len, cell, with_modules=True)  # the node looks at the cell only
    except PayloadError as error:
        name = error.name.removeprefix("args.function").removeprefix("args.captured['").replace("']", "", 1)
        raise PayloadError(
            name=name or "the function", type_name=error.type_name, reason=error.reason, advice=error.advice
        ) from error


def make_interactive(args: Any, *, spark: SparkSession | None, config: ClusterConfig) -> InteractiveCluster:
    """Check what is asked for, and return an interactive cluster that is not launched yet."""
    problems = []
    if config.restarts:
        problems.append(f"restarts={config.restarts}: the names of an interactive cluster would be lost; leave it out")
    if choose_launcher(config, spark)[1].runs_inline:
        problems.append(
            f"local={config.local} runs in this very process, where cells run anyway; use local=processes for nodes"
        )
    if problems:
        raise ConfigError(problems)
    config = dataclasses.replace(config, hang_timeout=0.0)  # nodes that wait for cells are not hung
    cluster = make_cluster(run_cells, args, spark=spark, config=config, kind=InteractiveCluster)
    assert isinstance(cluster, InteractiveCluster)
    return cluster


def compile_statements(
    statements: list[ast.stmt], filename: str, *, flags: int = 0, shows_last: bool = True
) -> tuple[CodeType | None, CodeType | None]:
    """Compile parsed statements, and the last one by itself if it is an expression; either part may be missing.

    Raises SyntaxError for what only a function may contain, such as ``return``.
    """
    last = statements[-1] if shows_last and statements and isinstance(statements[-1], ast.Expr) else None
    first = statements[:-1] if last is not None else statements
    body = ast.Module(body=first, type_ignores=[])
    return (
        compile(body, filename, "exec", flags, dont_inherit=True) if first else None,
        compile(ast.Expression(last.value), filename, "eval", flags, dont_inherit=True) if last else None,
    )


class CellResults(Results):
    """Maps a node to the value of a cell there, which may be None.

    Attributes
    ----------
    output : dict of str to str
        What the cell has written, by node.
    """

    def __init__(self, cell: RunningCell) -> None:
        super().__init__(lambda: {node: cell.outcomes[node] for node in cell.nodes.values()})
        self.output = {node: cell.text_of(node) for node in cell.nodes.values()}

    def __repr__(self) -> str:
        groups = grouped({node: repr(value) for node, value in self.items() if value is not None})
        return "\n".join(returned_text(names_of(nodes, len(self)), text) for text, nodes in groups.items())


def grouped(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the nodes by what they agree on, in order."""
    groups: dict[str, list[str]] = {}
    for node, text in texts.items():
        groups.setdefault(text, []).append(node)
    return groups


def names_of(nodes: list[str], count: int) -> str:
    """Return the nodes in words; ``count`` is how many there are in all."""
    return f"all {count} nodes" if len(nodes) == count > 1 else ", ".join(nodes)


def failure_of_cell(cell: RunningCell) -> CellFailed | None:
    """Return the error of the first node on which a cell failed, or None if it failed on none."""
    failed = {node: cell.outcomes[node] for node in cell.nodes.values() if cell.outcomes[node].kind != "returned"}
    if not failed:
        return None
    first, outcome = next(iter(failed.items()))
    what = _kind(outcome), outcome.message
    also = [node for node, other in failed.items() if node != first and (_kind(other), other.message) == what]
    others = [f"{node}: {_sentence(other)}" for node, other in failed.items() if node != first and node not in also]
    last = outcome.traceback or _sentence(outcome)
    return CellFailed(
        node=first,
        kind=_kind(outcome),
        message=outcome.message,
        traceback="\n".join([*others, "", last] if others else [last]),
        also=also,
    )


def _kind(outcome: Outcome) -> str:
    return outcome.error or "SystemExit"


def _sentence(outcome: Outcome) -> str:
    text = outcome.message or (str(outcome.exit_code) if outcome.exit_code else "")
    return f"{_kind(outcome)}: {text}" if text else _kind(outcome)
