"""The output of ``%tfos compare``: curves over each other, the last metrics, and what differs, as HTML and text."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tfos_lab.core.plain_table import PlainTable
from tfos_lab.engine.runs.compare import code_diff, differences, last_metrics, phase_seconds
from tfos_lab.engine.runs.run import Run
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.display import history_text as texts
from tfos_lab.jupyter.display.formats import format_metric
from tfos_lab.jupyter.display.history_charts import LETTERS, hue, line_sample, render_curves
from tfos_lab.jupyter.display.history_text import escape
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
        legend = "".join(self._legend_item(number, run) for number, run in enumerate(self.runs))
        tables = "".join(self._table(title, rows) for title, rows in self._tables() if rows)
        same = "" if self._differing() else f'<div class="tfos-note">{_SAME}</div>'
        curves = render_curves(self.runs) or '<div class="tfos-note">None of them has reported metrics.</div>'
        return (
            f'{texts.style_sheets()}<div class="tfos tfos-static tfos-history">'
            f'<div class="tfos-header"><strong class="tfos-name">{len(self.runs)} runs compared</strong></div>'
            f'<ul class="tfos-legend">{legend}</ul>{curves}'
            f'<div class="tfos-tables">{tables}</div>{same}{self._code()}</div>'
        )

    def _legend_item(self, number: int, run: Run) -> str:
        when, took = texts.when_text(run.started_s, self._now_s), texts.took_text(run, self._now_s)
        return (
            f'<li class="{hue(number)}">{line_sample(number)}<span class="tfos-letter">{LETTERS[number]}</span>'
            f"<b>{escape(run.name)}</b> <code>{escape(self._ids[run.id])}</code>{texts.outcome_html(run)}"
            f'<span class="tfos-facts">{escape(when)} · {escape(took)}</span></li>'
        )

    def _table(self, title: str, rows: Rows) -> str:
        head = "".join(
            f'<th scope="col" class="{_kind(title)} {hue(number)}"><span class="tfos-letter">{letter}</span></th>'
            for number, letter in enumerate(self._letters())
        )
        body = "".join(
            f'<tr><th scope="row">{escape(name)}</th>'
            + "".join(f'<td class="{_kind(title)}">{escape(text) or "–"}</td>' for text in cells)
            + "</tr>"
            for name, cells in rows
        )
        return (
            f'<div class="tfos-table-box" tabindex="0" role="region" aria-label="{title}"><table class="tfos-table">'
            f'<caption>{title}</caption><thead><tr><th scope="col">{_first(title)}</th>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def _code(self) -> str:
        """Return how the code of each run differs from that of the first one."""
        first, parts = self.runs[0], []
        for letter, run in zip(self._letters()[1:], self.runs[1:], strict=True):
            lines = code_diff(first, run) if first.code and run.code else []
            if lines:
                diff = "\n".join(map(_diff_line, lines[2:]))
                parts.append(
                    f"<details><summary>How the code of {letter} differs from that of {LETTERS[0]}</summary>"
                    f'<pre class="tfos-log tfos-diff" tabindex="0">{diff}</pre></details>'
                )
        return "".join(parts)


def _check(runs: Sequence[Run]) -> None:
    if len(runs) < 2:
        raise ConfigError(["name at least two runs: %tfos compare A B; %tfos history lists them"])
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


def _diff_line(line: str) -> str:
    tag = {"+": "ins", "-": "del"}.get(line[:1])
    return f"<{tag}>{escape(line)}</{tag}>" if tag else escape(line)
