"""The table of ``%tfos history``: runs of this and earlier kernels, newest first, as HTML and as text."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfos_lab.core.plain_table import PlainTable
from tfos_lab.engine.runs.find import fitting
from tfos_lab.engine.runs.read import Runs
from tfos_lab.engine.runs.run import Run
from tfos_lab.jupyter.display import history_text as texts
from tfos_lab.jupyter.display.history_text import escape
from tfos_lab.texts import format_count, format_seconds

SHOWN = 30
_MAX_METRICS = 3
_MAX_UNREADABLE = 10
_EMPTY = "no run has been recorded{where}: write %%tfos above a cell"


@dataclass(frozen=True)
class _Column:
    """One column: the text of its cells, their HTML where it is more than the text, and when it is left out."""

    title: str
    text: Callable[[Run], str]
    html: Callable[[Run], str] | None = None
    kind: str = ""
    optional: bool = False


class HistoryTable:
    """The history as the output of a cell.

    Parameters
    ----------
    found : Runs
        What was read.
    names : sequence of str
        Which runs to show: labels, identifiers, or patterns of them; all by default.
    last : int, optional
        At most so many, the newest.

    Raises
    ------
    ConfigError
        If no run fits a name.
    """

    def __init__(self, found: Runs, names: Sequence[str] = (), last: int | None = SHOWN) -> None:
        chosen = fitting(names, found.runs)
        self.runs = chosen[:last]
        self._count = len(chosen)
        self._unreadable = [str(one) for one in found.unreadable]
        self._places = [str(place) for place in found.places]
        self._now_s = time.time()
        self._ids = texts.short_ids(found.runs)

    def __repr__(self) -> str:
        return "\n".join([*self._plain_table(), *self._unreadable_lines()])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": self._html(), "text/plain": repr(self)}

    # ---- columns ----------------------------------------------------------------------------------------------------

    def _columns(self) -> list[_Column]:
        varied = texts.varied_inputs(self.runs)
        columns = [
            _Column("Run", self._name_text, self._name_html),
            _Column("When", lambda run: texts.when_text(run.started_s, self._now_s), self._when_html),
            _Column("Outcome", texts.outcome_text, texts.outcome_html),
            _Column("Time", lambda run: texts.took_text(run, self._now_s), self._time_html, "numeric"),
            *(_metric_column(name) for name in texts.common_metrics(self.runs, _MAX_METRICS)),
            _Column("Inputs", lambda run: texts.inputs_text(run, varied), None, "wrapped", optional=True),
            _Column("Nodes", texts.nodes_text, None, "numeric", optional=True),
            _Column("On", lambda run: run.record.view.launcher),
            _Column("Rows", lambda run: f"{run.rows:,}" if run.rows else "", None, "numeric", optional=True),
            _Column("Files", lambda run: str(run.record.file_count or ""), None, "numeric", optional=True),
        ]
        return [column for column in columns if not column.optional or any(map(column.text, self.runs))]

    def _name_text(self, run: Run) -> str:
        return f"{run.name} {self._ids[run.id]}{' (pinned)' if run.pinned else ''}"

    def _name_html(self, run: Run) -> str:
        pin = '<span class="tfos-pin">pinned</span>' if run.pinned else ""
        return f'<b>{escape(run.name)}</b> <code title="{escape(run.id)}">{escape(self._ids[run.id])}</code>{pin}'

    def _when_html(self, run: Run) -> str:
        moment = dt.datetime.fromtimestamp(run.started_s).astimezone()
        exact = moment.isoformat(timespec="seconds")
        return f'<time datetime="{exact}" title="{exact}">{texts.when_text(run.started_s, self._now_s)}</time>'

    def _time_html(self, run: Run) -> str:
        return f"{texts.took_text(run, self._now_s)}{_phase_bar(run)}"

    # ---- text -------------------------------------------------------------------------------------------------------

    def _plain_table(self) -> list[str]:
        if not self.runs:
            return [self._empty()]
        columns = self._columns()
        rows = [[column.text(run) for column in columns] for run in self.runs]
        failed = [f"{self._ids[run.id]}: {error}" for run in self.runs if (error := texts.error_text(run))]
        table = repr(PlainTable([column.title.lower() for column in columns], rows, empty=""))
        return [self._caption(), table, *failed]

    def _empty(self) -> str:
        return _EMPTY.format(where=f" in {' or '.join(self._places)}" if self._places else "")

    def _caption(self) -> str:
        runs = f"{format_count(self._count, 'run')} in {' and '.join(self._places)}"
        return runs if self._count == len(self.runs) else f"The newest {len(self.runs)} of {runs}; last=all shows them"

    def _unreadable_lines(self) -> list[str]:
        more = len(self._unreadable) - _MAX_UNREADABLE
        return [*self._unreadable[:_MAX_UNREADABLE], *([f"and {more} more that cannot be read"] if more > 0 else [])]

    # ---- HTML -------------------------------------------------------------------------------------------------------

    def _html(self) -> str:
        bad = "".join(f'<div class="tfos-unreadable">{escape(line)}</div>' for line in self._unreadable_lines())
        hint = f'<div class="tfos-hint">{self._hint()}</div>' if self.runs else ""
        body = self._html_table() if self.runs else escape(self._empty())
        return f'{texts.style_sheets()}<div class="tfos tfos-static tfos-history">{body}{bad}{hint}</div>'

    def _hint(self) -> str:
        first, *others = [self._ids[run.id] for run in self.runs]
        lines = [
            f"%tfos open {first}",
            *[f"%tfos compare {others[0]} {first}" for _ in others[:1]],
            f"%tfos pin {first}",
        ]
        return " · ".join(f"<code>{escape(line)}</code>" for line in [*lines, "%tfos prune keep=20"])

    def _html_table(self) -> str:
        columns = self._columns()
        head = "".join(f'<th scope="col"{_class(column)}>{escape(column.title)}</th>' for column in columns)
        rows = "".join(_row(run, columns) for run in self.runs)
        return (
            '<div class="tfos-table-box" tabindex="0" role="region" aria-label="Runs"><table class="tfos-table">'
            f"<caption>{escape(self._caption())}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        )


def _metric_column(name: str) -> _Column:
    return _Column(name, lambda run: texts.metric_text(run.last_metrics.get(name)), None, "numeric")


def _class(column: _Column) -> str:
    return f' class="tfos-{column.kind}"' if column.kind else ""


def _row(run: Run, columns: Sequence[_Column]) -> str:
    first, *others = columns
    cells = "".join(f"<td{_class(column)}>{_content(column, run)}</td>" for column in others)
    row = f'<tr><th scope="row">{_content(first, run)}</th>{cells}</tr>'
    if error := texts.error_text(run):
        row += f'<tr class="tfos-detail"><td colspan="{len(columns)}">{escape(error)}</td></tr>'
    return row


def _content(column: _Column, run: Run) -> str:
    return column.html(run) if column.html is not None else escape(column.text(run))


def _phase_bar(run: Run) -> str:
    """Return a bar whose parts are the phases, with their seconds as its text."""
    phases = run.phases
    whole_s = sum(phases.values())
    if whole_s <= 0:
        return ""
    label = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in phases.items())
    parts = "".join(
        f'<span data-span="{escape(name)}" style="width:{100 * seconds / whole_s:.1f}%"></span>'
        for name, seconds in phases.items()
    )
    return f'<div class="tfos-took" role="img" aria-label="{escape(label)}" title="{escape(label)}">{parts}</div>'
