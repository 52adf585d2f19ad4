"""`tfos_lab.run_script`: a plain Python file on the nodes of a cluster; and `tfos_lab.scripts`, the table of them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from tfos_lab.core.config import RunOptions
from tfos_lab.core.markup import PlainTable
from tfos_lab.core.options import takes_options
from tfos_lab.driver.script.run import ScriptRun
from tfos_lab.driver.script.start import ONE_WORKER, make_script_run, script_runs
from tfos_lab.notebook.display import is_shown, open_display, render_errors, summary
from tfos_lab.notebook.display.kernel import has_front_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = ("name", "script", *summary.STATUS, "output", "cause")


@takes_options(RunOptions, "run_script")
def run_script(
    path: str | os.PathLike[str],
    nodes: Sequence[Mapping[str, Any]] = ONE_WORKER,
    data: Any = None,
    *,
    function: str | None = None,
    files: Sequence[str] = (),
    keep_versions: int | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    data_format: str = "parquet",
    spark: SparkSession | None = None,
    name: str | None = None,
    show: bool | None = None,
    **options: Unpack[RunOptions],
) -> ScriptRun:
    """Run a plain Python file on the nodes of a cluster; returns at once, `ScriptRun.wait` waits for the end.

    Each node runs the file as its main program, in a process of its own: ``sys.argv`` holds the node's parameters as
    ``--name value``, TF_CONFIG tells TensorFlow the cluster, and two names are there without an import: ``args``, the
    parameters (``args["lr"]`` or ``args.lr``), and ``ctx``, the node (see `NodeContext`). What the script imports from
    its own folder travels along. It works in a folder of its own, which shows what is in the current one.

    Several may run at once in a session, as long as there are slots.

    Parameters
    ----------
    path : str or path-like
        The file.
    nodes : list of dict
        One for each node: ``job_name`` (``"worker"``, ``"chief"``, ``"ps"`` or ``"evaluator"``), ``params`` (numbers,
        texts, flags, lists and dicts), and ``task_index`` where the order does not say it. Without a chief, the first
        worker leads. In the texts of parameters, ``{job_name}``, ``{task_index}``, ``{output_dir}`` and ``{data_dir}``
        mean the node's own.
    data : DataFrame, arrays, str or list of str, optional
        Rows that are shared out to the nodes that train. The script reads its share with ``ctx.dataset``, or as files
        on its own disk: ``ctx.rows_as_files()``, ``{data_dir}``. A text is a path or a pattern of files, which nodes
        read as for `tfos_lab.run`, or the name of a table that Spark reads.
    function : str, optional
        Call this function of the file with ``(args, ctx)``; what it returns is the node's result. The file is imported
        then, and what stands below ``if __name__ == "__main__":`` does not run.
    files : list of str
        Patterns of further files in the script's folder that travel along.
    keep_versions : int, optional
        Keep the output of so many runs, as ``version-0001``, …, in ``output_dir``; the oldest ones are removed.
    output_dir : str or path-like, optional
        The folder of the versions, ``output/`` and the script's name by default; ``latest`` in it is a link to the
        newest. Without it and without ``keep_versions``, the output stays in the run's folder. The output is what the
        chief writes to ``ctx.output_dir``, and by relative paths in ``work``. A run that fails makes no version.
    data_format : {"parquet", "json", "arrow"}
        How ``{data_dir}`` holds the rows.
    spark : SparkSession, optional
        Whose executors to use; the active session by default. The script ends with it.
    name : str, optional
        Label of the run; the script's name by default.
    show : bool, optional
        Whether progress is shown: live in a notebook, as lines of text elsewhere, while `wait` waits. By default in a
        notebook only.
    {options}

    Returns
    -------
    ScriptRun
        A handle: ``wait()``, ``stop()``, ``state``, ``logs()``, ``results``, ``version``.

    Raises
    ------
    ConfigError
        For a script that is missing, cannot be parsed or lacks the function, nodes that make no cluster, and options
        that cannot work.
    NoSession, NotEnoughSlots, NotEnoughRoom, ExecutorMismatch, PayloadError
        As `tfos_lab.run` does, before anything is started.

    Examples
    --------
    >>> import tfos_lab
    >>> nodes = [{"job_name": "chief", "params": {"lr": 0.1}}, {"job_name": "worker", "params": {"lr": 0.2}}]
    >>> run = tfos_lab.run_script("train.py", nodes, data=frame, keep_versions=3)  # doctest: +SKIP
    >>> run.wait()  # doctest: +SKIP
    """
    __tracebackhide__ = True
    run = make_script_run(
        path,
        nodes,
        data=data,
        function=function,
        files=files,
        keep_versions=keep_versions,
        output_dir=output_dir,
        data_format=data_format,
        spark=spark,
        name=name,
        options=options,
    )
    render_errors()
    if is_shown(show=show):
        # A dashboard closes itself at the end of the nodes; lines of text are written while the user waits.
        live = has_front_end()
        display = open_display(run.cluster, blocking=not live)
        if not live:
            run.watch(display.poll, display.close)
    run.start()
    return run


def scripts() -> ScriptTable:
    """Return all script runs of this process, oldest first; shown as a table of their states.

    Examples
    --------
    >>> for run in tfos_lab.scripts():  # doctest: +SKIP
    ...     run.stop()
    """
    return ScriptTable(script_runs())


class ScriptTable(list[ScriptRun]):
    """Script runs, shown as a table."""

    def __repr__(self) -> str:
        return repr(self._table())

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()

    def _table(self) -> PlainTable:
        rows = [_row(run, time.time()) for run in self]
        return PlainTable(_COLUMNS, rows, empty="no script yet: tfos_lab.run_script('train.py', nodes=[...])")


def _row(run: ScriptRun, now_s: float) -> tuple[str, ...]:
    view = run.view()
    output = str(run.output_dir) if run.output_dir.is_dir() else ""
    return (view.name, run.path.name, *summary.status_row(view, now_s), output, run.cause)
