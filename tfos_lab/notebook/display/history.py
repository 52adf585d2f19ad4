"""The table of ``%tfos history``: runs of this and earlier kernels, newest first, as HTML and as text.

Each run unfolds by itself. A small script lets readers sort and filter, where scripts run.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tfos_lab.core.markup import Html, h, join
from tfos_lab.core.plain_table import PlainTable
from tfos_lab.driver.runs.find import fitting
from tfos_lab.driver.runs.read import Runs
from tfos_lab.driver.runs.run import Run
from tfos_lab.notebook.display import history_text as texts
from tfos_lab.notebook.display.assets import inline_script
from tfos_lab.notebook.display.history_charts import render_curves
from tfos_lab.texts import format_count, format_seconds

SHOWN = 30
_MAX_METRICS = 3
_MAX_UNREADABLE = 10
_numbers = itertools.count(1)

_EMPTY = "no run has been recorded{where}: write %%tfos above a cell"


@dataclass(frozen=True)
class _Column:
    """One column: the text of its cells, their HTML where it is more than the text, and when it is left out.

    Its cells are sorted by ``rank``, where that is not their text.
    """

    title: str
    text: Callable[[Run], str]
    html: Callable[[Run], Html] | None = None
    kind: str = ""
    optional: bool = False
    rank: Callable[[Run], float | None] | None = None


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
            _Column("When", self._when_text, self._when_html, rank=lambda run: run.started_s),
            _Column("Outcome", texts.outcome_text, texts.outcome_html),
            _Column("Time", self._took_text, self._time_html, "numeric", rank=self._seconds),
            *(_metric_column(name) for name in texts.common_metrics(self.runs, _MAX_METRICS)),
            _Column("Inputs", lambda run: texts.inputs_text(run, varied), None, "wrapped", optional=True),
            _Column("Nodes", texts.nodes_text, None, "numeric", optional=True),
            _Column("On", lambda run: run.record.view.launcher),
            _Column("Rows", lambda run: f"{run.rows:,}" if run.rows else "", None, "numeric", optional=True),
            _Column("Files", lambda run: str(run.record.file_count or ""), None, "numeric", optional=True),
        ]
        return [column for column in columns if not column.optional or any(map(column.text, self.runs))]

    def _name_text(self, run: Run) -> str:
        tags = "".join(f" #{tag}" for tag in run.tags)
        return f"{run.name} {self._ids[run.id]}{tags}"

    def _name_html(self, run: Run) -> Html:
        short = self._ids[run.id]
        more = h("details", h("summary", aria_label=f"Details of {run.name} {short}"), cls="tfos-more")
        tags = (h("span", tag, cls="tfos-tag") for tag in run.tags)
        name = h("span", h("b", run.name), " ", h("code", short, title=run.id), *tags)
        return h("div", more, name, cls="tfos-node")

    def _when_text(self, run: Run) -> str:
        return texts.when_text(run.started_s, self._now_s)

    def _when_html(self, run: Run) -> Html:
        exact = dt.datetime.fromtimestamp(run.started_s).astimezone().isoformat(timespec="seconds")
        return h("time", self._when_text(run), datetime=exact, title=exact)

    def _took_text(self, run: Run) -> str:
        return texts.took_text(run, self._now_s)

    def _seconds(self, run: Run) -> float:
        return (run.ended_s or self._now_s) - run.started_s

    def _time_html(self, run: Run) -> Html:
        return join(self._took_text(run), _phase_bar(run))

    # ---- text -------------------------------------------------------------------------------------------------------

    def _plain_table(self) -> list[str]:
        if not self.runs:
            return [self._empty()]
        columns = self._columns()
        rows = [[column.text(run) for column in columns] for run in self.runs]
        told = [(run, text) for run in self.runs for text in (texts.error_text(run), run.note_text) if text]
        below = [f"{self._ids[run.id]}: {text}" for run, text in told]
        table = repr(PlainTable([column.title.lower() for column in columns], rows, empty=""))
        return [self._caption(), table, *below]

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
        element = f"tfos-history-{os.getpid()}-{next(_numbers)}"
        bad = (h("div", line, cls="tfos-unreadable") for line in self._unreadable_lines())
        hint = h("div", self._hint(), cls="tfos-hint") if self.runs else None
        body = self._html_table() if self.runs else self._empty()
        page = h("div", body, *bad, hint, cls="tfos tfos-static tfos-history", id=element,
                 data_lm_suppress_shortcuts="true")  # fmt: skip
        script = inline_script("history_table.js", {"element": element}) if len(self.runs) > 1 else ""
        return f"{texts.style_sheets()}{page}{script}"

    def _hint(self) -> Html:
        first, *others = [self._ids[run.id] for run in self.runs]
        both = [join(" · ", h("code", f"%tfos history {other} {first}")) for other in others[:1]]
        return join(h("code", f"%tfos history {first}"), *both)

    def _html_table(self) -> Html:
        columns = self._columns()
        titles = (h("th", column.title, scope="col", cls=_class(column)) for column in columns)
        bodies = (h("tbody", *self._rows(run, columns)) for run in self.runs)
        table = h("table", h("caption", self._caption()), h("thead", h("tr", *titles)), *bodies, cls="tfos-table")
        return h("div", table, cls="tfos-table-box", tabindex=0, role="region", aria_label="Runs")

    def _rows(self, run: Run, columns: Sequence[_Column]) -> Iterator[Html]:
        first, *others = columns
        cells = (h("td", _content(one, run), cls=_class(one), data_rank=_rank(one, run)) for one in others)
        yield h("tr", h("th", _content(first, run), scope="row"), *cells)
        more = h("td", *self._details(run), colspan=len(columns))
        yield h("tr", more, cls="tfos-more-row", hidden=True)
        for told, cls in ((texts.error_text(run), "tfos-detail"), (run.note_text, "tfos-run-note")):
            if told:
                yield h("tr", h("td", told, colspan=len(columns)), cls=cls)

    def _details(self, run: Run) -> Iterator[Html]:
        """Return what a row unfolds to: the curves, and the facts that have no column."""
        metrics = texts.common_metrics([run], _MAX_METRICS)
        yield Html(render_curves([run], only=metrics))
        phases = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in run.phases.items())
        inputs = " · ".join(f"{name} {value}" for name, value in run.inputs.items())
        facts = {"Why": run.record.view.verdict, "Inputs": inputs, "Phases": phases}
        shown = (h("div", h("dt", name), h("dd", text)) for name, text in facts.items() if text)
        yield h("dl", *shown, cls="tfos-row-facts")
        yield h("div", "All of it: ", h("code", f"%tfos history {self._ids[run.id]}"), cls="tfos-hint")


def _metric_column(name: str) -> _Column:
    return _Column(
        name,
        lambda run: texts.metric_text(run.last_metrics.get(name)),
        None,
        "numeric",
        rank=lambda run: run.last_metrics.get(name),
    )


def _class(column: _Column) -> str | None:
    return f"tfos-{column.kind}" if column.kind else None


def _content(column: _Column, run: Run) -> Html | str:
    return column.html(run) if column.html is not None else column.text(run)


def _rank(column: _Column, run: Run) -> str | None:
    rank = column.rank(run) if column.rank is not None else None
    return None if rank is None or math.isnan(rank) else f"{rank:.12g}"


def _phase_bar(run: Run) -> Html | None:
    """Return a bar whose parts are the phases, with their seconds as its text."""
    phases = run.phases
    whole_s = sum(phases.values())
    if whole_s <= 0:
        return None
    label = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in phases.items())
    parts = (
        h("span", data_span=name, style=f"width:{100 * seconds / whole_s:.1f}%") for name, seconds in phases.items()
    )
    return h("div", *parts, cls="tfos-took", role="img", aria_label=label, title=label)
