"""HTML that cannot forget to escape: text becomes text, and only what `h` has made is markup; small tables. Pure."""

from __future__ import annotations

import html
from collections.abc import Sequence


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def h(tag: str, *children: object, **attributes: object) -> Html:
    """Make an element; text is escaped, elements are not, and None is left out.

    Of attributes, ``cls`` is ``class``, and an underscore a hyphen. True makes one without a value, and None and False
    leave it out.

    Examples
    --------
    >>> h("b", "a < b", h("i", "c"), None, cls="x", data_do="stop", title='"', hidden=True, open=False)
    '<b class="x" data-do="stop" title="&quot;" hidden>a &lt; b<i>c</i></b>'
    """
    told = "".join(_attribute(name, value) for name, value in attributes.items())
    return Html(f"<{tag}{told}>{join(*children)}</{tag}>")


def join(*children: object) -> Html:
    """Return elements and text one after the other."""
    return Html("".join(map(_content, children)))


def _content(child: object) -> str:
    return child if isinstance(child, Html) else "" if child is None else html.escape(str(child))


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    shown = "class" if name == "cls" else name.replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{html.escape(str(value))}"'


# ---- a small table of texts, as HTML and as lines -------------------------------------------------------------------


_STYLE = "text-align: left"
_LINES_STYLE = f"{_STYLE}; white-space: pre; font-family: var(--jp-code-font-family, monospace)"


class PlainTable:
    """Rows of texts below their titles; ``empty`` is shown where there are none.

    Texts in columns that are ``numeric`` end below one another; by default none are.
    """

    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str = "", numeric: Sequence[bool] = ()
    ) -> None:
        self._columns = columns
        self._rows = rows
        self._empty = empty
        self._aligned = [str.rjust if right else str.ljust for right in numeric] or [str.ljust] * len(columns)

    def __repr__(self) -> str:
        if not self._rows:
            return self._empty
        table = [self._columns, *self._rows]
        widths = [max(len(row[index]) for row in table) for index in range(len(self._columns))]
        cells = (zip(self._aligned, row, widths, strict=True) for row in table)
        return "\n".join("  ".join(align(text, width) for align, text, width in row).rstrip() for row in cells)

    def _repr_html_(self) -> str:
        return self.html

    @property
    def html(self) -> Html:
        """The table as HTML."""
        if not self._rows:
            return join(self._empty)
        head = h("tr", *(h("th", name, scope="col", style=_STYLE) for name in self._columns))
        rows = (h("tr", *map(_cell, row)) for row in self._rows)
        return h("table", h("thead", head), h("tbody", *rows))


def _cell(text: str) -> Html:
    """Return a cell; lines, such as those of a table, stay below one another."""
    return h("td", text, style=_LINES_STYLE if "\n" in text else _STYLE)
