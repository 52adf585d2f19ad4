"""A small table of texts, as HTML and as lines."""

from __future__ import annotations

from collections.abc import Sequence

from tfos_lab.core.markup import Html, h, join

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
