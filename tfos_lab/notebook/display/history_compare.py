"""The output of ``%tfos history A B``: curves over each other, the last metrics, and what differs, as HTML and text."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from tfos_lab.core.markup import Html, h
from tfos_lab.core.plain_table import PlainTable
from tfos_lab.driver.runs.compare import code_diff, differences, last_metrics, phase_seconds
from tfos_lab.driver.runs.run import Run
from tfos_lab.errors import ConfigError
from tfos_lab.notebook.display import history_text as texts
from tfos_lab.notebook.display.formats import format_metric
from tfos_lab.notebook.display.history_charts import LETTERS, hue, line_sample, render_curves
from tfos_lab.texts import format_seconds

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
        self._ids = texts.short_ids(runs)

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
        when, took = texts.when_text(run.started_s, self._now_s), texts.took_text(run, self._now_s)
        return f"{run.name} {self._ids[run.id]} · {when} · {texts.outcome_text(run)} · {took}"

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
        return f"{texts.style_sheets()}{page}"

    def _legend_item(self, number: int, run: Run) -> Html:
        when, took = texts.when_text(run.started_s, self._now_s), texts.took_text(run, self._now_s)
        return h(
            "li",
            line_sample(number),
            h("span", LETTERS[number], cls="tfos-letter"),
            h("b", run.name),
            " ",
            h("code", self._ids[run.id]),
            texts.outcome_html(run),
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
