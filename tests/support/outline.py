"""What a reader finds in HTML that Python has drawn."""

from __future__ import annotations

from html.parser import HTMLParser

# Elements without an end.
VOID = ("br", "img", "input", "meta", "wbr")


def words(html: str) -> str:
    return " ".join(Outline(html).text.split())


class Outline(HTMLParser):
    """What a reader finds in a document: its text, a line for each part, with the words that stand for pictures."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert not self._open, f"left open: {self._open}"

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        given = dict(attributes)
        self.attributes.append(given)
        told = [f"{name}={given[name]}" for name in ("aria-label", "title", "data-state", "href") if given.get(name)]
        if "open" in given:
            told.append("open")
        if tag in ("div", "tr", "table", "details", "figure", "summary", "pre", "svg") or told:
            self.lines.append(" ".join([f"<{tag}>", *told]))

    def handle_endtag(self, tag):
        assert tag in VOID or self._open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        if data.strip():
            self.texts.append(data.strip())
        if data.strip() and not {"style", "script"} & {*self._open[-1:]}:
            self.lines.append(data.strip("\n"))
