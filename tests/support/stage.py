"""The dashboard's front end by itself: its bundle in a bare page, with a fake model and a fake kernel."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

from playwright.sync_api import Page, expect

from tests.support.fake_cluster import FakeCluster
from tfos_lab.driver.state.events import BANDS, LogText, MetricsReported
from tfos_lab.notebook.display.card import traits
from tfos_lab.notebook.display.charts import render_charts
from tfos_lab.notebook.display.log_feed import LogFeed
from tfos_lab.notebook.display.series import SeriesBook
from tfos_lab.notebook.display.shown import LIVE_BYTES, render_shown
from tfos_lab.notebook.display.table import LiveTable

_STATIC = resources.files("tfos_lab.notebook.display") / "static"
# Of more, groups have rows, and bands have lines.
MANY_NODES = 64
# A model as anywidget provides it, and functions by which a test plays the kernel.
_STAGE = """
const dashboard = (() => { MODULE })();
const handlers = {};
window.sent = [];
window.traits = TRAITS;
const model = {
  get: (name) => window.traits[name],
  send: (content) => window.sent.push(content),
  on: (name, callback) => { (handlers[name] ??= []).push(callback); },
  off: (name, callback) => { handlers[name] = (handlers[name] ?? []).filter((kept) => kept !== callback); },
};
window.deliver = (message) => {
  for (const handler of handlers["msg:custom"] ?? []) handler(message);
};
window.show = (traits) => {
  const changed = Object.keys(traits).filter((name) => traits[name] !== window.traits[name]);
  Object.assign(window.traits, traits);
  if (changed.length) for (const handler of handlers["change"] ?? []) handler();
};
window.forget = dashboard.initialize({ model });
window.leave = dashboard.render({ model, el: document.body });
window.leftovers = () => Object.values(handlers).flat().length;
"""


class Stage:
    """A bare page with the dashboard in it; the test plays the kernel."""

    def __init__(self, page: Page, cluster: FakeCluster) -> None:
        self.page = page
        self.cluster = cluster
        self.feed = LogFeed()
        self.table = LiveTable(can_ask=True)
        self.book = SeriesBook(cluster.view().started_s)
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.set_content(f"<style>{(_STATIC / 'dashboard.css').read_text()}</style>")
        traits = {**self._view(), "display_key": "k", "blocking": True, "stacks": ""}
        module = re.sub(
            r"export\{(\S+) as default\};?$", r"return \1;", (_STATIC / "dashboard.js").read_text().rstrip()
        )
        page.evaluate(_STAGE.replace("MODULE", module).replace("TRAITS", json.dumps(traits)))

    def _view(self) -> dict[str, Any]:
        view = self.cluster.view()
        shown = render_shown(view.shown, self.cluster.run_dir, LIVE_BYTES)
        shown_traits = traits(view, view.started_s, self.table, "/runs/1", lambda node: f"runs/1/{node}.log")
        return {**shown_traits, "charts": self._charts(), "shown": shown}

    def change(self, node: str, **fields: object) -> None:
        self.cluster.change(node, **fields)
        self.show()

    def show(self) -> None:
        self.page.evaluate("(traits) => window.show(traits)", self._view())

    def write(self, *texts: tuple[str, str]) -> None:
        for node, text in texts:
            self.feed.take_in(LogText(time_s=0.0, node=node, stream="stdout", text=text))
        self.send({"kind": "log", **(self.feed.take_out() or {})})

    def report(self, *reports: MetricsReported) -> None:
        self.book.add(reports)
        self.show()

    def _charts(self) -> str:
        view, series = self.cluster.view(), self.book.series()
        lines = BANDS if len(view.nodes) > MANY_NODES else sorted(view.places, key=view.places.__getitem__)
        return render_charts(series, lines, with_values=True)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message of the kernel."""
        self.page.evaluate("(message) => window.deliver(message)", message)

    def alter(self, **fields: Any) -> None:
        """Change what the cluster as a whole shows."""
        self.cluster.alter(**fields)
        self.show()

    def wait_for_message(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Wait for a message of the page with these fields; return it."""
        handle = self.page.wait_for_function(
            "(fields) => window.sent.find((one) => Object.entries(fields).every(([key, value]) => one[key] === value))",
            arg={"kind": kind, **fields},
        )
        return dict(handle.json_value())

    @property
    def panel(self):
        return self.page.get_by_role("region", name="Log")

    def has_lines(self, *lines: str) -> None:
        expect(self.panel).to_have_text("\n".join(lines), use_inner_text=True)

    def tab(self, name: str):
        return self.page.get_by_role("radio", name=name)

    def row(self, node: str):
        return self.page.get_by_role("row").filter(has=self.page.get_by_role("button", name=node, exact=True))

    def unfold(self) -> None:
        """Show the rows of the nodes that have one together."""
        self.page.locator("tr.tfos-together summary").click()
