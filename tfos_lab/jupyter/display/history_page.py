"""The output of ``%tfos open``: a run of the history as its cell showed it, with its options, code and files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tfos_lab.core.config import ClusterConfig
from tfos_lab.engine.runs.run import Run
from tfos_lab.jupyter.display import history_text as texts
from tfos_lab.jupyter.display.formats import format_bytes
from tfos_lab.jupyter.display.history_text import escape
from tfos_lab.jupyter.display.log_files import link_to
from tfos_lab.jupyter.display.static_bundle import make_bundle
from tfos_lab.texts import format_count

_MAX_FILES = 50


class RunPage:
    """One run as the output of a cell.

    Parameters
    ----------
    run : Run
        The run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def __repr__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        run, view = self.run, self.run.view()
        files = run.here("shown").parent if view.shown else None
        bundle = make_bundle(view, self._read_tail, run.folder, run.reports, link_of=self._link_to_log, files=files)
        return {
            "text/html": f"{bundle['text/html']}\n{self._more_html()}",
            "text/plain": "\n".join([bundle["text/plain"], *self._more_text()]),
        }

    def _read_tail(self, node: str, lines: int) -> str:
        return self.run.logs(node, tail=lines)

    def _link_to_log(self, node: str) -> str | None:
        return link_to(self.run.log_path(node))

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
        pin = "unpin" if self.run.pinned else "pin"
        return [f"%tfos {command} {self.run.id}" for command in ("tensorboard", "logs", pin)]

    def _more_html(self) -> str:
        run = self.run
        code = run.record.code
        where = f" of {code.file}" if code is not None else ""
        parts = [
            self._options(),
            _details(f"Code{where}", f'<pre class="tfos-log" tabindex="0">{escape(run.code)}</pre>')
            if run.code
            else "",
            self._files(),
            f'<div class="tfos-hint">{" · ".join(f"<code>{escape(one)}</code>" for one in self._commands())}</div>',
        ]
        return f'{texts.style_sheets()}<div class="tfos tfos-static tfos-history">{"".join(parts)}</div>'

    def _options(self) -> str:
        run = self.run
        defaults = msgspec.to_builtins(ClusterConfig())
        options = [(name, value) for name, value in run.options.items() if value and value != defaults.get(name)]
        named = [*run.inputs.items(), *options, *(_version(item) for item in run.record.versions.items())]
        rows = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in named)
        caption = "Other options have their defaults"
        head = '<thead><tr><th scope="col">name</th><th scope="col">value</th></tr></thead>'
        table = f'<table class="tfos-table"><caption>{caption}</caption>{head}<tbody>{rows}</tbody></table>'
        return _details("Inputs and options", f'<div class="tfos-tables">{table}</div>')

    def _files(self) -> str:
        run = self.run
        if not run.record.files:
            return ""
        shown = run.record.files[:_MAX_FILES]
        items = "".join(f"<li>{self._file(file.path)} {format_bytes(file.size_bytes)}</li>" for file in shown)
        more = run.record.file_count - len(shown)
        rest = f"<li>and {more:,} more in {escape(self._output)}</li>" if more > 0 else ""
        return _details(format_count(run.record.file_count, "file"), f"<ul>{items}{rest}</ul>")

    def _file(self, name: str) -> str:
        link = None if self.run.address else link_to(Path(self._output, name))
        return f'<a href="{escape(link)}">{escape(name)}</a>' if link else f"<code>{escape(name)}</code>"


def _version(item: tuple[str, str | None]) -> tuple[str, str]:
    name, version = item
    return f"{name} (version)", version or "not installed"


def _details(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
