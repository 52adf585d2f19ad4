"""Matplotlib's backend on nodes: ``plt.show()`` shows all open figures in the notebook, as `ctx.show` does.

Matplotlib imports it, by the name in ``MPLBACKEND``; so nodes do not import it themselves, nor need Matplotlib.
"""

from __future__ import annotations

import itertools

from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

from tfos_lab.node.context.shown import showing

__all__ = ["FigureCanvas", "show"]

_untitled = itertools.count(1)


def show(*_args: object, **_named: object) -> None:
    """Show all open figures by their titles; those without one stay, as steps of ``figure``."""
    for number in plt.get_fignums():
        figure = plt.figure(number)
        titles = [figure.get_label(), figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
        title = next(filter(None, map(str, titles)), "")
        for context in showing:
            context.show(figure, title or "figure", step=None if title else next(_untitled))
    plt.close("all")
