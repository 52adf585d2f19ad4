"""What a browser makes of HTML: its elements, and its text."""

from __future__ import annotations

from html.parser import HTMLParser


class _Parts(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())


def tags_of(html: str) -> list[str]:
    """Return the names of the elements, in order."""
    return _Parts(html).tags


def text_of(html: str) -> list[str]:
    """Return the pieces of text, in order."""
    return _Parts(html).texts
