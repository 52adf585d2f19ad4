"""The history: runs as a table (``%tfos history``) and beside one another (``%tfos history A B``), as HTML and text.

Each row of the table unfolds to the run's curves. A small script lets readers sort and filter, where scripts run.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfos_lab.core.markup import Html, h, join
from tfos_lab.core.plain_table import PlainTable
from tfos_lab.driver.metrics import EPOCH, by_weight
from tfos_lab.driver.runs.compare import code_diff, differences, last_metrics, phase_seconds
from tfos_lab.driver.runs.find import fitting
from tfos_lab.driver.runs.read import Runs
from tfos_lab.driver.runs.run import Run
from tfos_lab.errors import ConfigError
from tfos_lab.notebook.display.assets import inline_script, read_style_sheet, unique_id
from tfos_lab.notebook.display.charts import LETTERS, hue, line_sample, render_curves
from tfos_lab.texts import format_count, format_metric, format_seconds

# ---- texts -----------------------------------------------------------------------------------------------------------

_MAX_INPUTS = 4


def style_sheets() -> str:
    """Return the style element of an output of the history."""
    return f"<style>{read_style_sheet('summary.css')}{read_style_sheet('history.css')}</style>"


def short_ids(runs: Iterable[Run]) -> dict[str, str]:
    """Return what is enough to name each run: the end of its identifier, or all of it where others end so, too."""
    ids = [run.id for run in runs]
    ends = Counter(_end(one) for one in ids)
    return {one: _end(one) if ends[_end(one)] == 1 else one for one in ids}


def _end(run_id: str) -> str:
    return run_id.rpartition("-")[2]


def when_text(time_s: float, now_s: float) -> str:
    """Return a moment as people write it: ``today 11:19``, ``14 Nov 09:05``, ``3 May 2025 17:00``."""
    moment, now = dt.datetime.fromtimestamp(time_s).astimezone(), dt.datetime.fromtimestamp(now_s).astimezone()
    clock = f"{moment:%H:%M}"
    if moment.date() == now.date():
        return f"today {clock}"
    year = "" if moment.year == now.year else f" {moment.year}"
    return f"{moment.day} {moment:%b}{year} {clock}"


def took_text(run: Run, now_s: float) -> str:
    """Return how long the run took, or goes on."""
    return format_seconds(max(0.0, (run.ended_s or now_s) - run.started_s))


def outcome_text(run: Run) -> str:
    """Return the run's state with its sign."""
    return f"{run.state.look.sign} {run.state}"


def outcome_html(run: Run) -> Html:
    """Return the run's state with its sign and colour."""
    sign = h("span", run.state.look.sign, aria_hidden="true")
    return h("span", sign, f" {run.state}", cls="tfos-state", data_state=run.state)


def error_text(run: Run) -> str:
    """Return why the run failed, or that a metric of it is not a number, in one line."""
    return run.record.view.alarm if run.record.error is None else str(run.record.error)


def metric_text(value: float | None) -> str:
    """Return a metric, or nothing where there is none."""
    return "" if value is None else format_metric(value)


def common_metrics(runs: Sequence[Run], at_most: int) -> list[str]:
    """Return the metrics that most of the runs have reported, the loss first."""
    counts = Counter(name for run in runs for name in run.last_metrics if name != EPOCH)
    ranked = sorted(by_weight(counts), key=lambda name: -counts[name])[:at_most]
    return by_weight(ranked)


def varied_inputs(runs: Sequence[Run]) -> list[str]:
    """Return the names of some inputs that are not the same in all of these runs."""
    names = dict.fromkeys(name for run in runs for name in run.inputs)
    varied = [name for name in names if len({repr(run.inputs.get(name)) for run in runs}) > 1]
    return varied[:_MAX_INPUTS]


def inputs_text(run: Run, names: Sequence[str]) -> str:
    """Return these inputs of a run: ``lr 0.1 · units 64``; of a search, those of its best trial, too."""
    own = [f"{name.removeprefix('args.')} {_plain(run.inputs[name])}" for name in names if name in run.inputs]
    return " · ".join([*own, *filter(None, [best_text(run)])])


def best_text(run: Run) -> str:
    """Return the parameters of a search's best trial: ``best: lr 0.1 · units 64``."""
    named = " · ".join(f"{name} {_plain(value)}" for name, value in list(run.best_params.items())[:_MAX_INPUTS])
    return f"best: {named}" if named else ""


def nodes_text(run: Run) -> str:
    """Return how many nodes there were, or how many independent runs."""
    count = len(run.record.view.nodes)
    noun = {"search": "trial", "parallel": "run"}.get(run.kind)
    return format_count(count, noun) if noun else str(count or "")


def _plain(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    text = str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"


# ---- the table of runs -----------------------------------------------------------------------------------------------

SHOWN = 30
_MAX_METRICS = 3
_MAX_UNREADABLE = 10

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
        self._ids = short_ids(found.runs)

    def __repr__(self) -> str:
        return "\n".join([*self._plain_table(), *self._unreadable_lines()])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": self._html(), "text/plain": repr(self)}

    # ---- columns ----------------------------------------------------------------------------------------------------

    def _columns(self) -> list[_Column]:
        varied = varied_inputs(self.runs)
        columns = [
            _Column("Run", self._name_text, self._name_html),
            _Column("When", self._when_text, self._when_html, rank=lambda run: run.started_s),
            _Column("Outcome", outcome_text, outcome_html),
            _Column("Time", self._took_text, self._time_html, "numeric", rank=self._seconds),
            *(_metric_column(name) for name in common_metrics(self.runs, _MAX_METRICS)),
            _Column("Inputs", lambda run: inputs_text(run, varied), None, "wrapped", optional=True),
            _Column("Nodes", nodes_text, None, "numeric", optional=True),
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
        return when_text(run.started_s, self._now_s)

    def _when_html(self, run: Run) -> Html:
        exact = dt.datetime.fromtimestamp(run.started_s).astimezone().isoformat(timespec="seconds")
        return h("time", self._when_text(run), datetime=exact, title=exact)

    def _took_text(self, run: Run) -> str:
        return took_text(run, self._now_s)

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
        told = [(run, text) for run in self.runs for text in (error_text(run), run.note_text) if text]
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
        element = unique_id("history")
        bad = (h("div", line, cls="tfos-unreadable") for line in self._unreadable_lines())
        hint = h("div", self._hint(), cls="tfos-hint") if self.runs else None
        body = self._html_table() if self.runs else self._empty()
        page = h("div", body, *bad, hint, cls="tfos tfos-static tfos-history", id=element,
                 data_lm_suppress_shortcuts="true")  # fmt: skip
        script = inline_script("history_table.js", {"element": element}) if len(self.runs) > 1 else ""
        return f"{style_sheets()}{page}{script}"

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
        for told, cls in ((error_text(run), "tfos-detail"), (run.note_text, "tfos-run-note")):
            if told:
                yield h("tr", h("td", told, colspan=len(columns)), cls=cls)

    def _details(self, run: Run) -> Iterator[Html]:
        """Return what a row unfolds to: the curves, and the facts that have no column."""
        metrics = common_metrics([run], _MAX_METRICS)
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
        lambda run: metric_text(run.last_metrics.get(name)),
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


# ---- runs beside one another -----------------------------------------------------------------------------------------

MAX_RUNS = len(LETTERS)
_SAME = "Options, inputs and versions are the same."

Rows = list[tuple[str, list[str]]]


class Comparison:
    """Two or more runs beside one another.

    Parameters
    ----------
    runs : sequence of Run
        The runs, in the order of their letters.

    Raises
    ------
    ConfigError
        For one run, the same run twice, or more than twelve.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        _check(runs)
        self.runs = list(runs)
        self._now_s = time.time()
        self._ids = short_ids(runs)

    def __repr__(self) -> str:
        tables = [
            repr(PlainTable([title.lower(), *self._letters()], [[name, *cells] for name, cells in rows], empty=""))
            for title, rows in self._tables()
            if rows
        ]
        runs = [f"{letter}  {self._fact_text(run)}" for letter, run in zip(self._letters(), self.runs, strict=True)]
        return "\n\n".join(["\n".join(runs), *tables, *([] if self._differing() else [_SAME])])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": self._html(), "text/plain": repr(self)}

    # ---- what is told -----------------------------------------------------------------------------------------------

    def _letters(self) -> list[str]:
        return list(LETTERS[: len(self.runs)])

    def _fact_text(self, run: Run) -> str:
        when, took = when_text(run.started_s, self._now_s), took_text(run, self._now_s)
        return f"{run.name} {self._ids[run.id]} · {when} · {outcome_text(run)} · {took}"

    def _tables(self) -> list[tuple[str, Rows]]:
        return [
            ("What differs", self._differing()),
            ("Last metrics", _rows(last_metrics(self.runs), format_metric)),
            ("Seconds by phase", _rows(phase_seconds(self.runs), format_seconds)),
        ]

    def _differing(self) -> Rows:
        return [(one.name, list(one.texts)) for one in differences(self.runs)]

    # ---- HTML -------------------------------------------------------------------------------------------------------

    def _html(self) -> str:
        title = h("strong", f"{len(self.runs)} runs compared", cls="tfos-name")
        legend = h("ul", *(self._legend_item(*one) for one in enumerate(self.runs)), cls="tfos-legend")
        curves = render_curves(self.runs) or h("div", "None of them has reported metrics.", cls="tfos-note")
        tables = h("div", *(self._table(*one) for one in self._tables() if one[1]), cls="tfos-tables")
        same = None if self._differing() else h("div", _SAME, cls="tfos-note")
        header = h("div", title, cls="tfos-header")
        page = h("div", header, legend, curves, tables, same, *self._code(), cls="tfos tfos-static tfos-history")
        return f"{style_sheets()}{page}"

    def _legend_item(self, number: int, run: Run) -> Html:
        when, took = when_text(run.started_s, self._now_s), took_text(run, self._now_s)
        return h(
            "li",
            line_sample(number),
            h("span", LETTERS[number], cls="tfos-letter"),
            h("b", run.name),
            " ",
            h("code", self._ids[run.id]),
            outcome_html(run),
            h("span", f"{when} · {took}", cls="tfos-facts"),
            cls=hue(number),
        )

    def _table(self, title: str, rows: Rows) -> Html:
        kind = _kind(title)
        letters = (
            h("th", h("span", letter, cls="tfos-letter"), scope="col", cls=f"{kind} {hue(number)}")
            for number, letter in enumerate(self._letters())
        )
        head = h("thead", h("tr", h("th", _first(title), scope="col"), *letters))
        body = h("tbody", *(_row(name, cells, kind) for name, cells in rows))
        table = h("table", h("caption", title), head, body, cls="tfos-table")
        return h("div", table, cls="tfos-table-box", tabindex=0, role="region", aria_label=title)

    def _code(self) -> Iterator[Html]:
        """Yield how the code of each run differs from that of the first one."""
        first = self.runs[0]
        for letter, run in zip(self._letters()[1:], self.runs[1:], strict=True):
            lines = code_diff(first, run) if first.code and run.code else []
            if lines:
                diff = itertools.chain.from_iterable(("\n", _diff_line(line)) for line in lines[2:])
                title = h("summary", f"How the code of {letter} differs from that of {LETTERS[0]}")
                yield h("details", title, h("pre", *list(diff)[1:], cls="tfos-log tfos-diff", tabindex=0))


def _check(runs: Sequence[Run]) -> None:
    if len(runs) < 2:
        raise ConfigError(["name at least two runs: %tfos history A B"])
    if len(runs) > MAX_RUNS:
        raise ConfigError([f"{len(runs)} runs are too many to compare at once: name {MAX_RUNS} at most"])
    ids = [run.id for run in runs]
    again = next((one for one in ids if ids.count(one) > 1), None)
    if again is not None:
        raise ConfigError([f"{again} is named twice: a run can be compared with others only"])


def _rows(values: Mapping[str, Sequence[float | None]], write: Callable[[float], str]) -> Rows:
    return [(name, ["" if one is None else write(one) for one in own]) for name, own in values.items()]


def _kind(title: str) -> str:
    return "tfos-wrapped" if title == "What differs" else "tfos-numeric"


def _first(title: str) -> str:
    return {"Last metrics": "metric", "What differs": "option", "Seconds by phase": "phase"}[title]


def _row(name: str, cells: Sequence[str], kind: str) -> Html:
    return h("tr", h("th", name, scope="row"), *(h("td", text or "–", cls=kind) for text in cells))


def _diff_line(line: str) -> Html | str:
    tag = {"+": "ins", "-": "del"}.get(line[:1])
    return h(tag, line) if tag else line
