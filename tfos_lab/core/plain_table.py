"""A small table of texts, as HTML and as lines."""

from __future__ import annotations

from collections.abc import Sequence

from tfos_lab.core.markup import Html, h, join

_STYLE = "text-align: left"


class PlainTable:
    """Rows of texts below their titles.

    Parameters
    ----------
    columns : sequence of str
        The titles.
    rows : sequence of sequences of str
        The texts, one for each title.
    empty : str
        What is shown where there are no rows.
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
        self._columns = columns
        self._rows = rows
        self._empty = empty

    def __repr__(self) -> str:
        if not self._rows:
            return self._empty
        table = [self._columns, *self._rows]
        widths = [max(len(row[index]) for row in table) for index in range(len(self._columns))]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)

    def _repr_html_(self) -> str:
        return self.html

    @property
    def html(self) -> Html:
        """The table as HTML."""
        if not self._rows:
            return join(self._empty)
        head = h("tr", *(h("th", name, scope="col", style=_STYLE) for name in self._columns))
        rows = (h("tr", *(h("td", text, style=_STYLE) for text in row)) for row in self._rows)
        return h("table", h("thead", head), h("tbody", *rows))
