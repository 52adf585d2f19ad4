"""Matplotlib's backend on nodes: ``plt.show()`` shows all open figures in the notebook, as `ctx.show` does.

Matplotlib imports it, by the name in ``MPLBACKEND``; so nodes do not import it themselves, nor need Matplotlib.
"""

from __future__ import annotations

from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

from tfos_lab.node.context.shown import show_by_title

__all__ = ["FigureCanvas", "show"]


def show(*_args: object, **_named: object) -> None:
    """Show all open figures by their titles; those without one stay, as steps of ``figure``."""
    for number in plt.get_fignums():
        show_by_title(plt.figure(number))
    plt.close("all")
