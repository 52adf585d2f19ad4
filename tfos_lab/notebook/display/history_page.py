"""A run again, with its options, code and files: the output of ``%tfos history NAME``, and a file to send to somebody.

The file is HTML that needs no network, runs no scripts, and has no paths and no secrets.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import msgspec

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.markup import Html, h, join
from tfos_lab.core.paths import without_keys
from tfos_lab.driver.record.inputs import hide_secrets
from tfos_lab.driver.runs.run import Run
from tfos_lab.errors import ConfigError
from tfos_lab.notebook.display.card import make_bundle
from tfos_lab.notebook.display.history import style_sheets
from tfos_lab.notebook.display.kernel import link_to
from tfos_lab.texts import format_bytes, format_count

_MAX_FILES = 50


class RunPage:
    """One run as the output of a cell."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __repr__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        bundle = self._bundle(self.run.folder)
        more = self._details(self._options(), self._code(), self._files(), self._hint())
        return {
            "text/html": f"{bundle['text/html']}\n{more}",
            "text/plain": "\n".join([bundle["text/plain"], *self._more_text()]),
        }

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

    def _more_text(self) -> list[str]:
        run = self.run
        inputs = ", ".join(f"{name}={value!r}" for name, value in run.inputs.items())
        files = [f"output: {format_count(run.record.file_count, 'file')} in {self._output}"] if run.record.files else []
        return [
            *([f"inputs: {inputs}"] if inputs else []),
            *files,
            f"TensorBoard and logs: {' · '.join(self._commands())}",
        ]

    @property
    def _output(self) -> str:
        return f"{self.run.folder}/output"

    def _commands(self) -> list[str]:
        if self.run.address:
            return [f"%tfos tensorboard {self.run.event_dir}"]
        return [f"%tfos {command} {self.run.id}" for command in ("tensorboard", "logs")]

    # ---- HTML -------------------------------------------------------------------------------------------------------

    def _details(self, *parts: Html | None) -> str:
        return f"{style_sheets()}{h('div', *parts, cls='tfos tfos-static tfos-history')}"

    def _hint(self) -> Html:
        first, *others = (h("code", one) for one in self._commands())
        return h("div", first, *(join(" · ", one) for one in others), cls="tfos-hint")

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
        items = [h("li", self._file(file.path), " ", format_bytes(file.size_bytes)) for file in shown]
        more = run.record.file_count - len(shown)
        rest = h("li", f"and {more:,} more in {self._output}") if more > 0 else None
        return _folded(format_count(run.record.file_count, "file"), h("ul", *items, rest))

    def _file(self, name: str) -> Html:
        link = None if self.run.address else link_to(Path(self._output, name))
        return h("a", name, href=link) if link else h("code", name)


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
    body = h("body", h("main", Html(_to_send(RunPage(run).to_send()))))
    return f"<!doctype html>\n{h('html', head, body, lang='en')}\n"


def _to_send(page: str) -> str:
    parts = _PARTS.split(_SCRIPT.sub("", page))
    return "".join(_tag(part) if at % 2 else join(_without_paths(html.unescape(part))) for at, part in enumerate(parts))


def _tag(tag: str) -> str:
    return _TOLD.sub(lambda found: found[1] + html.escape(_without_paths(html.unescape(found[2]))), tag)


def _without_paths(text: str) -> str:
    """Return a text without the folders of paths, keys of addresses, and what passwords are set to."""
    return _PATH.sub(r"…/\1", without_keys(hide_secrets(text)))
