"""The history as HTML and text: runs as a table (``%tfos history``), beside one another (``A B``), or one (``A``).

Each row of the table unfolds to the run's curves. A small script lets readers sort and filter, where scripts run. A run
can also be written as a file to send to somebody, which needs no network, runs no scripts, and has no paths and no
secrets.
"""

from __future__ import annotations

import datetime as dt
import html
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.markup import Html, PlainTable, h, join
from tfos_lab.core.paths import without_keys
from tfos_lab.driver.metrics import EPOCH, by_weight
from tfos_lab.driver.record.inputs import hide_secrets
from tfos_lab.driver.runs.compare import code_diff, differences, last_metrics, leading_reports, phase_seconds
from tfos_lab.driver.runs.read import Runs, fitting
from tfos_lab.driver.runs.run import Run
from tfos_lab.driver.state.phases import SHORTEST_S
from tfos_lab.errors import ConfigError
from tfos_lab.notebook.display import summary
from tfos_lab.notebook.display.assets import inline_script, read_asset, unique_id
from tfos_lab.notebook.display.card import make_bundle
from tfos_lab.notebook.display.charts import draw_sample, hue_at, render_charts
from tfos_lab.notebook.display.kernel import link_to
from tfos_lab.notebook.display.series import all_series
from tfos_lab.notebook.display.table import render_state, table_box, title_of
from tfos_lab.texts import format_bytes, format_count, format_metric, format_seconds

# ---- texts -----------------------------------------------------------------------------------------------------------

_MAX_INPUTS = 4


def _style_sheets() -> str:
    """Return the style element of an output of the history."""
    return f"<style>{read_asset('summary.css')}{read_asset('history.css')}</style>"


def short_ids(runs: Iterable[Run]) -> dict[str, str]:
    """Return what is enough to name each run: the end of its identifier, or all of it where others end so, too."""
    ends = {run.id: run.id.rpartition("-")[2] for run in runs}
    counts = Counter(ends.values())
    return {one: end if counts[end] == 1 else one for one, end in ends.items()}


def _outcome_text(run: Run) -> str:
    """Return the run's state with its sign."""
    return f"{run.state.look.sign} {run.state}"


def _common_metrics(runs: Sequence[Run], at_most: int) -> list[str]:
    """Return the metrics that most of the runs have reported, the loss first."""
    counts = Counter(name for run in runs for name in run.last_metrics if name != EPOCH)
    ranked = sorted(by_weight(counts), key=lambda name: -counts[name])[:at_most]
    return by_weight(ranked)


def _inputs_text(run: Run, names: Sequence[str]) -> str:
    """Return these inputs of a run: ``lr 0.1 · units 64``; of a search, also ``best: lr 0.2`` of its best trial."""
    own = [f"{name.removeprefix('args.')} {_plain(run.inputs[name])}" for name in names if name in run.inputs]
    best = " · ".join(f"{name} {_plain(value)}" for name, value in list(run.best_params.items())[:_MAX_INPUTS])
    return " · ".join([*own, *([f"best: {best}"] if best else [])])


def _nodes_text(run: Run) -> str:
    """Return how many nodes there were, or how many independent runs."""
    count = len(run.record.view.nodes)
    noun = {"search": "trial", "parallel": "run"}.get(run.kind)
    return format_count(count, noun) if noun else str(count or "")


def _metric_text(value: float) -> str:
    """Return a metric of a record, which does not tell NaN from what is infinite."""
    return format_metric(value) if math.isfinite(value) else "not finite"


def _plain(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    text = str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"


# ---- the table of runs -----------------------------------------------------------------------------------------------

SHOWN = 30
_MAX_METRICS = 3
_MAX_UNREADABLE = 10


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

    @property
    def cls(self) -> str | None:
        """The class of its cells."""
        return f"tfos-{self.kind}" if self.kind else None

    def content(self, run: Run) -> Html | str:
        """Return what a cell shows."""
        return self.html(run) if self.html is not None else self.text(run)

    def cell(self, run: Run) -> Html:
        """Return the cell of a run."""
        rank = self.rank(run) if self.rank is not None else None
        sorted_by = None if rank is None or math.isnan(rank) else f"{rank:.12g}"
        return h("td", self.content(run), cls=self.cls, data_rank=sorted_by)


class HistoryTable:
    """The history as the output of a cell: the newest runs that fit the names, or all.

    Raises a `ConfigError` if no run fits a name.
    """

    def __init__(self, found: Runs, names: Sequence[str] = (), last: int | None = SHOWN) -> None:
        chosen = fitting(names, found.runs)
        self.runs = chosen[:last]
        self._count = len(chosen)
        self._unreadable = [str(one) for one in found.unreadable[:_MAX_UNREADABLE]]
        if (more := len(found.unreadable) - _MAX_UNREADABLE) > 0:
            self._unreadable.append(f"and {more} more that cannot be read")
        self._places = [str(place) for place in found.places]
        self._now_s = time.time()
        self._ids = short_ids(found.runs)

    def __repr__(self) -> str:
        if not self.runs:
            return "\n".join([self._empty(), *self._unreadable])
        columns = self._columns()
        rows = [[column.text(run) for column in columns] for run in self.runs]
        titles, numeric = [one.title.lower() for one in columns], [one.kind == "numeric" for one in columns]
        told = [(run, text) for run in self.runs for text in (summary.error_text(run), run.note_text) if text]
        below = [f"{self._ids[run.id]}: {text}" for run, text in told]
        table = repr(PlainTable(titles, rows, numeric=numeric))
        return "\n".join([self._caption(), table, *below, *self._unreadable])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": self._html(), "text/plain": repr(self)}

    # ---- columns ----------------------------------------------------------------------------------------------------

    def _columns(self) -> list[_Column]:
        names = dict.fromkeys(name for run in self.runs for name in run.inputs)
        varied = [name for name in names if len({repr(run.inputs.get(name)) for run in self.runs}) > 1][:_MAX_INPUTS]
        columns = [
            _Column("Run", self._name_text, self._name_html),
            _Column("When", self._when_text, self._when_html, rank=lambda run: run.started_s),
            _Column("Outcome", _outcome_text, lambda run: render_state(run.state)),
            _Column(
                "Time",
                lambda run: summary.took_text(run.view(), self._now_s),
                kind="numeric",
                rank=lambda run: (run.ended_s or self._now_s) - run.started_s,
            ),
            *(_metric_column(name) for name in _common_metrics(self.runs, _MAX_METRICS)),
            _Column("Inputs", lambda run: _inputs_text(run, varied), None, "wrapped", optional=True),
            _Column("Nodes", _nodes_text, None, "numeric", optional=True),
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
        return summary.when_text(run.started_s, self._now_s)

    def _when_html(self, run: Run) -> Html:
        exact = dt.datetime.fromtimestamp(run.started_s).astimezone().isoformat(timespec="seconds")
        return h("time", self._when_text(run), datetime=exact, title=exact)

    # ---- text and HTML ----------------------------------------------------------------------------------------------

    def _empty(self) -> str:
        where = f" in {' or '.join(self._places)}" if self._places else ""
        return f"no run has been recorded{where}: write %%tfos above a cell"

    def _caption(self) -> str:
        runs = f"{format_count(self._count, 'run')} in {' and '.join(self._places)}"
        return runs if self._count == len(self.runs) else f"The newest {len(self.runs)} of {runs}; last=all shows them"

    def _html(self) -> str:
        element = unique_id("history")
        body: Html | str = self._empty()
        hint = None
        if self.runs:
            columns = self._columns()
            named = (title_of(column.title, column.cls) for column in columns)
            titles = (h("th", title, scope="col", cls=cls) for title, cls in named)
            bodies = (h("tbody", *self._rows(run, columns)) for run in self.runs)
            table = h("table", h("caption", self._caption()), h("thead", h("tr", *titles)), *bodies, cls="tfos-table")
            body = table_box("Runs", table)
            first, *others = [self._ids[run.id] for run in self.runs]
            both = [join(" · ", h("code", f"%tfos history {other} {first}")) for other in others[:1]]
            hint = h("div", h("code", f"%tfos history {first}"), *both, cls="tfos-hint")
        bad = (h("div", line, cls="tfos-unreadable") for line in self._unreadable)
        page = h("div", body, *bad, hint, cls="tfos tfos-static tfos-history", id=element,
                 data_lm_suppress_shortcuts="true")  # fmt: skip
        script = inline_script("history_table.js", {"element": element}) if len(self.runs) > 1 else ""
        return f"{_style_sheets()}{page}{script}"

    def _rows(self, run: Run, columns: Sequence[_Column]) -> Iterator[Html]:
        first, *others = columns
        yield h("tr", h("th", first.content(run), scope="row"), *(one.cell(run) for one in others))
        for told, cls in ((summary.error_text(run), "tfos-detail"), (run.note_text, "tfos-run-note")):
            if told:
                yield h("tr", h("td", h("div", told), colspan=len(columns)), cls=cls)
        more = h("td", *self._details(run), colspan=len(columns))
        yield h("tr", more, cls="tfos-more-row", hidden=True)

    def _details(self, run: Run) -> Iterator[Html]:
        """Return what a row unfolds to: the curves, and the facts that have no column."""
        yield _render_curves([run], only=_common_metrics([run], _MAX_METRICS))
        inputs = " · ".join(f"{name} {value}" for name, value in run.inputs.items())
        told = ((name, seconds) for name, seconds in run.phases.items() if seconds >= SHORTEST_S)
        phases = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in told)
        facts = {"Why": run.record.view.verdict, "Inputs": inputs, "Phases": phases}
        shown = (h("div", h("dt", name), h("dd", text)) for name, text in facts.items() if text)
        yield h("dl", *shown, cls="tfos-row-facts")
        yield h("div", "All of it: ", h("code", f"%tfos history {self._ids[run.id]}"), cls="tfos-hint")


def _metric_column(name: str) -> _Column:
    def text(run: Run) -> str:
        return _metric_text(run.last_metrics[name]) if name in run.last_metrics else ""

    return _Column(name, text, None, "numeric", rank=lambda run: run.last_metrics.get(name))


_LETTERS = "ABCDEFGHIJKL"


def _render_curves(runs: Sequence[Run], only: Collection[str] | None = None) -> Html:
    """Return the charts of some runs, each by its letter: of all metrics, or of ``only`` some in one look."""
    series = [
        one | {"node": letter}
        for letter, run in zip(_LETTERS, runs, strict=False)
        for one in all_series(leading_reports(run), run.started_s)
        # Epochs of several runs may end at different steps.
        if one["metric"] != EPOCH and (only is None or one["metric"] in only)
    ]
    return render_charts(series, _LETTERS[: len(runs)], has_looks=only is None, names_lines=False)


# ---- runs beside one another -----------------------------------------------------------------------------------------


class _Compared(NamedTuple):
    """A table of the comparison: its title, what its rows are, the class of its cells, and the rows."""

    title: str
    of: str
    cls: str
    rows: list[tuple[str, list[str]]]


class Comparison:
    """Two or more runs beside one another, in the order of their letters.

    Raises a `ConfigError` for one run, the same run twice, or more than twelve.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        if len(runs) < 2:
            raise ConfigError(["name at least two runs: %tfos history A B"])
        if len(runs) > len(_LETTERS):
            raise ConfigError([f"{len(runs)} runs are too many to compare at once: name {len(_LETTERS)} at most"])
        self._ids = short_ids(runs)
        if len(self._ids) < len(runs):
            again, _ = Counter(run.id for run in runs).most_common(1)[0]
            raise ConfigError([f"{again} is named twice: a run can be compared with others only"])
        self.runs = list(runs)
        self._now_s = time.time()
        self._letters = _LETTERS[: len(runs)]
        differing = [(one.name, list(one.texts)) for one in differences(runs)]
        self._same = [] if differing else ["Options, inputs and versions are the same."]
        tables = [
            _Compared("What differs", "fact", "tfos-wrapped", differing),
            _Compared("Last metrics", "metric", "tfos-numeric", _texts(last_metrics(runs), _metric_text)),
            _Compared("Seconds by phase", "phase", "tfos-numeric", _texts(phase_seconds(runs), format_seconds)),
        ]
        self._tables = [table for table in tables if table.rows]

    def __repr__(self) -> str:
        runs = [
            f"{letter}  {run.name} {self._ids[run.id]} · {self._when(run)} · {_outcome_text(run)} · {self._took(run)}"
            for letter, run in zip(self._letters, self.runs, strict=True)
        ]
        tables = [
            repr(PlainTable([table.title.lower(), *self._letters], [[name, *cells] for name, cells in table.rows]))
            for table in self._tables
        ]
        return "\n\n".join(["\n".join(runs), *tables, *self._same])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": self._html(), "text/plain": repr(self)}

    def _when(self, run: Run) -> str:
        return summary.when_text(run.started_s, self._now_s)

    def _took(self, run: Run) -> str:
        return summary.took_text(run.view(), self._now_s)

    # ---- HTML -------------------------------------------------------------------------------------------------------

    def _html(self) -> str:
        title = h("strong", f"{len(self.runs)} runs compared", cls="tfos-name")
        legend = h("ul", *(self._legend_item(*one) for one in enumerate(self.runs)), cls="tfos-legend")
        curves = _render_curves(self.runs) or h("div", "None of them has reported metrics.", cls="tfos-note")
        tables = h("div", *map(self._table, self._tables), cls="tfos-tables")
        same = (h("div", sentence, cls="tfos-note") for sentence in self._same)
        header = h("div", title, cls="tfos-header")
        page = h("div", header, legend, curves, tables, *same, *self._code(), cls="tfos tfos-static tfos-history")
        return f"{_style_sheets()}{page}"

    def _legend_item(self, number: int, run: Run) -> Html:
        return h(
            "li",
            draw_sample(number),
            h("span", self._letters[number], cls="tfos-letter"),
            h("b", run.name),
            " ",
            h("code", self._ids[run.id]),
            render_state(run.state),
            h("span", f"{self._when(run)} · {self._took(run)}", cls="tfos-facts"),
            cls=f"tfos-hue{hue_at(number)}",
        )

    def _table(self, table: _Compared) -> Html:
        letters = (
            h("th", h("span", letter, cls="tfos-letter"), scope="col", cls=f"{table.cls} tfos-hue{hue_at(number)}")
            for number, letter in enumerate(self._letters)
        )
        head = h("thead", h("tr", h("th", table.of, scope="col"), *letters))
        rows = (
            h("tr", h("th", name, scope="row"), *(h("td", text or "–", cls=table.cls) for text in cells))
            for name, cells in table.rows
        )
        drawn = h("table", h("caption", table.title), head, h("tbody", *rows), cls="tfos-table")
        return table_box(table.title, drawn)

    def _code(self) -> Iterator[Html]:
        """Yield how the code of each run differs from that of the first one."""
        first = self.runs[0]
        for letter, run in zip(self._letters[1:], self.runs[1:], strict=True):
            diff = code_diff(first, run) if first.code and run.code else []
            lines: list[Html | str] = []
            for line in diff[2:]:
                tag = {"+": "ins", "-": "del"}.get(line[:1])
                lines += [h(tag, line) if tag else line, "\n"]
            if lines:
                title = h("summary", f"How the code of {letter} differs from that of {self._letters[0]}")
                yield h("details", title, h("pre", *lines[:-1], cls="tfos-log tfos-diff", tabindex=0))


def _texts(values: Mapping[str, Sequence[float | None]], write: Callable[[float], str]) -> list[tuple[str, list[str]]]:
    return [(name, ["" if one is None else write(one) for one in own]) for name, own in values.items()]


# ---- one run again ---------------------------------------------------------------------------------------------------


_MAX_FILES = 50
# How long a run's folder is searched for event files.
_SEARCH_S = 1.0


class RunPage:
    """One run as the output of a cell."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __repr__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        run, bundle = self.run, self._bundle(self.run.folder)
        commands = self._commands()
        first, *others = (h("code", command) for command in commands.values())
        hint = h("div", first, *(join(" · ", one) for one in others), cls="tfos-hint")
        more = self._details(self._options(), self._code(), self._files(), hint)
        inputs = ", ".join(f"{name}={value!r}" for name, value in run.inputs.items())
        files = f"{format_count(run.record.file_count, 'file')} in {self._output}"
        lines = [
            bundle["text/plain"],
            f"inputs: {inputs}" if inputs else "",
            f"output: {files}" if run.record.files else "",
            f"{' and '.join(commands)}: {' · '.join(commands.values())}",
        ]
        return {"text/html": f"{bundle['text/html']}\n{more}", "text/plain": "\n".join(filter(None, lines))}

    def to_send(self) -> str:
        """Return the HTML for a reader elsewhere: without links and commands."""
        return f"{self._bundle(None)['text/html']}\n{self._details(self._options(), self._code())}"

    def _bundle(self, folder: str | None) -> dict[str, str]:
        run, view = self.run, self.run.view()
        files = run.here("shown").parent if view.shown else None
        return make_bundle(
            view,
            lambda node, lines: run.logs(node, tail=lines),
            folder,
            run.reports,
            link_of=lambda node: link_to(run.log_path(node)) if folder else None,
            files=files,
            comes_back=False,
        )

    @property
    def _output(self) -> str:
        return f"{self.run.folder}/output"

    def _commands(self) -> dict[str, str]:
        """Return the commands that show more of the run, by what they show."""
        run, events = self.run, self.run.event_dir
        if run.address:
            return {"TensorBoard": f"%tfos tensorboard {events}"}
        commands = {"TensorBoard": f"%tfos tensorboard {run.id}", "logs": f"%tfos logs {run.id}"}
        if "://" not in events and not _has_event_files(events):
            del commands["TensorBoard"]
        return commands

    # ---- HTML -------------------------------------------------------------------------------------------------------

    def _details(self, *parts: Html | None) -> str:
        return f"{_style_sheets()}{h('div', *parts, cls='tfos tfos-static tfos-history')}"

    def _code(self) -> Html | None:
        run = self.run
        where = f" of {run.record.code.file}" if run.record.code is not None else ""
        return _folded(f"Code{where}", h("pre", run.code, cls="tfos-log", tabindex=0)) if run.code else None

    def _options(self) -> Html:
        run = self.run
        defaults = msgspec.to_builtins(ClusterConfig())
        options = [(name, value) for name, value in run.options.items() if value and value != defaults.get(name)]
        versions = [(f"{name} (version)", one or "not installed") for name, one in run.record.versions.items()]
        named = [*run.inputs.items(), *options, *versions]
        rows = (h("tr", h("th", name, scope="row"), h("td", str(value))) for name, value in named)
        head = h("thead", h("tr", h("th", "name", scope="col"), h("th", "value", scope="col")))
        caption = h("caption", "Other options have their defaults")
        table = h("table", caption, head, h("tbody", *rows), cls="tfos-table")
        return _folded("Inputs and options", h("div", table, cls="tfos-tables"))

    def _files(self) -> Html | None:
        run = self.run
        if not run.record.files:
            return None
        shown = run.record.files[:_MAX_FILES]
        items = []
        for file in shown:
            link = None if run.address else link_to(Path(self._output, file.path))
            name = h("a", file.path, href=link) if link else h("code", file.path)
            items.append(h("li", name, " ", format_bytes(file.size_bytes)))
        if (more := run.record.file_count - len(shown)) > 0:
            items.append(h("li", f"and {more:,} more in {self._output}"))
        return _folded(format_count(run.record.file_count, "file"), h("ul", *items))


def _has_event_files(folder: str) -> bool:
    """Whether there are event files in a folder or below it; one that takes long to look through is assumed to."""
    until_s = time.monotonic() + _SEARCH_S
    return any(
        time.monotonic() > until_s or any("tfevents" in name for name in names) for _, _, names in os.walk(folder)
    )


def _folded(title: str, content: Html) -> Html:
    return h("details", h("summary", title), content)


# ---- a run as a file to send -----------------------------------------------------------------------------------------

# Nothing is loaded, and nothing runs.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL | re.IGNORECASE)
# Style sheets, tags, and the text between them: an attribute has no ">", as `h` escapes it.
_PARTS = re.compile(r"(<style>.*?</style>|<[^>]*>)", re.DOTALL)
_TOLD = re.compile(r'((?:title|aria-label)=")([^"]*)')
# Of a path of at least two names, the last one stays; addresses are none.
_PATH = re.compile(r"(?<![\w.:~…/-])(?:file:(?://)?)?(?:/[\w.@+%=~-]+)+/([\w.@+%=~-]+)")


def write_report(run: Run, path: str | os.PathLike[str] | None = None) -> Path:
    """Write the file; see `Run.report`."""
    target = Path.cwd() if path is None else Path(path).expanduser().absolute()
    if target.is_dir():
        target /= f"{run.id}.html"
    try:
        target.write_text(render_report(run), encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"the report cannot be written to {target}: {error.strerror}; name another file"]) from error
    return target


def render_report(run: Run) -> str:
    """Return the document."""
    head = h(
        "head",
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Html('<meta name="viewport" content="width=device-width">'),
        h("title", f"{run.name} {run.id}"),
        h("style", "body { max-width: 1100px; margin: 16px auto; padding: 0 12px } @media (prefers-color-scheme: dark) "
          "{ body { background: #0d1117 } }"),
    )  # fmt: skip
    parts = _PARTS.split(_SCRIPT.sub("", RunPage(run).to_send()))
    parts[::2] = (join(_without_paths(html.unescape(text))) for text in parts[::2])
    parts[1::2] = (
        _TOLD.sub(lambda found: found[1] + html.escape(_without_paths(html.unescape(found[2]))), tag)
        for tag in parts[1::2]
    )
    body = h("body", h("main", Html("".join(parts))))
    return f"<!doctype html>\n{h('html', head, body, lang='en')}\n"


def _without_paths(text: str) -> str:
    """Return a text without the folders of paths, keys of addresses, and what passwords are set to."""
    return _PATH.sub(r"…/\1", without_keys(hide_secrets(text)))
