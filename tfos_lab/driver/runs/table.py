"""`tfos_lab.runs`: the history of runs as a pandas table, and each run of it by name."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import pandas as pd

from tfos_lab.driver.metrics import by_weight
from tfos_lab.driver.runs.read import choose_run, read_runs
from tfos_lab.driver.runs.run import Run


class RunTable(pd.DataFrame):  # type: ignore[misc]  # pandas has no types here
    """The history of runs: a pandas DataFrame whose items are runs, too; made by `tfos_lab.runs`."""

    # As pandas asks for an attribute that is no column; what is derived from the table is a plain DataFrame.
    _metadata: ClassVar[list[str]] = ["_found"]

    def __getitem__(self, key: Any) -> Any:
        """Return a column, as any DataFrame does, or the run of that name.

        A run is meant by its label (the newest run of that label), its identifier or a part of it, its folder, or the
        address of that. A label that is also the name of a column is that of the column.

        Raises
        ------
        NoRun
            If there is neither such a column nor such a run, or several runs could be meant.
        """
        if not isinstance(key, str | os.PathLike) or key in self.columns:
            return super().__getitem__(key)
        return choose_run(os.fspath(key), self._found)


def runs(folder: str | os.PathLike[str] | None = None) -> RunTable:
    """Return all runs that this machine knows, or those of an address, as a table, newest first.

    Parameters
    ----------
    folder : path or str, optional
        Where the runs are, also an address such as ``"hdfs:///user/ada/runs"``, which was the ``run_store`` of runs on
        any machine; by default ``$TFOS_LAB_RUNS``, or ``runs/`` in the working directory, and the user's cache.

    Returns
    -------
    RunTable
        A pandas DataFrame; ``runs()["NAME"]`` is one run of it, with ``options``, ``code``, ``metrics``, ``logs()``,
        ``run_dir`` and, of a search, the ``table`` of its trials. One row for each run, a search or the independent
        runs of `tfos_lab.parallel` being one run; the index holds the runs' identifiers. Columns: ``name``, ``kind``
        (``cluster``, ``search``, ``parallel``), ``when`` (datetime with the local time zone), ``outcome`` (``done``,
        ``failed``, ``stopped``, ``lost`` where the kernel has gone, or the state of a run that goes on), ``seconds``
        (float64), ``launcher``, ``nodes`` (of independent runs, how many there are) and ``rows`` (int64), ``best``
        (the parameters of a search's best trial), ``options``, ``inputs`` (numbers and texts that the function used,
        by name), ``metrics`` (the last values) and ``phases`` (seconds) as dicts, ``code`` (its source), ``error``,
        ``verdict`` (why it was as slow as it was), ``files`` (paths below ``output``), ``tags`` and ``note`` (see
        `Run.tag`), and ``folder``. Each metric and phase is a float64 column, too, such as ``metrics.loss`` and
        ``phases.run``. ``attrs["unreadable"]`` has a line for each ``run.json`` that cannot be read.

    Raises
    ------
    ConfigError
        If there is no such folder.

    Examples
    --------
    >>> import tfos_lab
    >>> best = tfos_lab.runs().sort_values("metrics.loss").head(3)  # doctest: +SKIP
    >>> tfos_lab.runs()["mnist"].logs("chief:0", tail=5)  # doctest: +SKIP
    """
    found = read_runs(folder)
    table = RunTable(runs_frame(found.runs))
    table._found = found  # noqa: SLF001 - its own
    table.attrs["unreadable"] = [str(one) for one in found.unreadable]
    return table


def runs_frame(found: Sequence[Run]) -> pd.DataFrame:
    """Return these runs as a table; see `runs`."""
    zone = dt.datetime.now().astimezone().tzinfo
    started = pd.to_datetime([run.started_s for run in found], unit="s", utc=True).tz_convert(zone)
    ids = pd.Index([run.id for run in found], name="id", dtype="object")
    seconds = [(run.ended_s or run.record.written_s) - run.started_s for run in found]
    errors = ["" if run.record.error is None else str(run.record.error) for run in found]
    columns: dict[str, Any] = {
        "name": _column([run.name for run in found], ids, "string"),
        "kind": _column([run.kind for run in found], ids, "string"),
        "when": pd.Series(started, index=ids),
        "outcome": _column([run.state.value for run in found], ids, "string"),
        "seconds": _column(seconds, ids, "float64"),
        "launcher": _column([run.record.view.launcher for run in found], ids, "string"),
        "nodes": _column([len(run.record.view.nodes) for run in found], ids, "int64"),
        "rows": _column([run.rows for run in found], ids, "int64"),
        "best": _column([run.best_params for run in found], ids),
        "options": _column([run.options for run in found], ids),
        "inputs": _column([run.inputs for run in found], ids),
        "metrics": _column([run.last_metrics for run in found], ids),
        "phases": _column([run.phases for run in found], ids),
        "code": _column([run.code for run in found], ids, "string"),
        "error": _column(errors, ids, "string"),
        "verdict": _column([run.record.view.verdict for run in found], ids, "string"),
        "files": _column([[file.path for file in run.record.files] for run in found], ids),
        "tags": _column([list(run.tags) for run in found], ids),
        "note": _column([run.note_text for run in found], ids, "string"),
        "folder": _column([run.folder for run in found], ids, "string"),
    }
    columns |= _spread("metrics", [run.last_metrics for run in found], ids)
    columns |= _spread("phases", [run.phases for run in found], ids)
    return pd.DataFrame(columns, index=ids)


def _column(values: list[Any], index: pd.Index, dtype: str = "object") -> pd.Series:
    return pd.Series(values, index=index, dtype=dtype)


def _spread(prefix: str, dicts: list[dict[str, float]], index: pd.Index) -> dict[str, pd.Series]:
    """Return a column for each key of these dicts, NaN where one lacks it."""
    keys = dict.fromkeys(key for one in dicts for key in one)
    names = by_weight(keys) if prefix == "metrics" else keys
    return {
        f"{prefix}.{name}": _column([one.get(name, float("nan")) for one in dicts], index, "float64") for name in names
    }
