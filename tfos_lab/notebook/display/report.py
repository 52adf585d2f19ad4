"""A run as one HTML file to send to somebody: it needs no network, runs no scripts, and has no paths and no secrets."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

from tfos_lab.core.markup import Html, h, join
from tfos_lab.core.paths import without_keys
from tfos_lab.driver.record.inputs import hide_secrets
from tfos_lab.driver.runs.run import Run
from tfos_lab.errors import ConfigError
from tfos_lab.notebook.display.history_page import RunPage

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
