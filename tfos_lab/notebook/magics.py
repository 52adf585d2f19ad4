"""The magics: ``%%tfos`` runs a cell on a cluster, ``%tfos`` manages clusters.

They parse, call the driver and show results. ``%load_ext tfos_lab`` comes here.
"""

from __future__ import annotations

import logging
from typing import Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand, output_can_be_silenced

from tfos_lab.core import sources
from tfos_lab.core.package_versions import misfits
from tfos_lab.driver.warm_servers import warm_in_background
from tfos_lab.errors import ConfigError
from tfos_lab.node.remote_files import register_file_systems
from tfos_lab.notebook import completion
from tfos_lab.notebook.cell.export import FinishedCell, NotebookCells
from tfos_lab.notebook.cell.function import cell_number, make_labeller, make_map_fun
from tfos_lab.notebook.commands import Commands, describe_commands
from tfos_lab.notebook.display import error_messages, load_in_background
from tfos_lab.notebook.interactive import run_on_nodes
from tfos_lab.notebook.options import (
    describe_options,
    forget_defaults,
    is_for_waiting_nodes,
    parse_options,
    read_configuration,
)
from tfos_lab.notebook.run import run_cell

logger = logging.getLogger(__name__)

_HELP = f"""Run this cell on a cluster: ``%%tfos cluster_size=4``.

The cell is a function, ``map_fun(args, ctx)``, that every node runs in a process of its
own. Names of the notebook are captured by value; ``return`` works, and the value of a last
expression is returned: the cell shows what the nodes returned. The cluster is then in the
variable ``cluster`` (or ``name``).

Options are ``key=value``; values are Python literals, or names and expressions of the
notebook.

{describe_options()}

    %%tfos cluster_size=4 data=train_df epochs=3 args={{'lr': 0.001}}
    with ctx.strategy().scope():
        model = build()
    model.fit(ctx.dataset(64, label='label'), callbacks=ctx.callbacks())

Without a cell, in a line of its own:

{describe_commands()}
"""


@magics_class
class TfosMagics(Magics):
    """``%%tfos`` and ``%tfos``."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._notebook = shell
        self._finished: dict[int, FinishedCell] = {}
        self.commands = Commands(shell, lambda: NotebookCells(self._texts()[:-1], self._finished))

    @output_can_be_silenced
    @no_var_expand
    @line_cell_magic
    def tfos(self, line: str, cell: str | None = None) -> Any:
        """Run a cell on a cluster."""
        __tracebackhide__ = True
        if cell is None:
            return self.commands.run(line)
        if is_for_waiting_nodes(line):
            return run_on_nodes(self._notebook, line, cell)
        options = parse_options(line, self._notebook.user_ns)
        map_fun = make_map_fun(self._notebook, line, cell)
        captured = tuple(map_fun.__kwdefaults__ or ())
        number = cell_number(self._notebook)
        # After %reset the numbers begin anew: some are of cells that were run before, or of others by now.
        texts = self._texts()[:number]
        self._finished = {
            earlier: finished
            for earlier, finished in self._finished.items()
            if earlier < len(texts) and texts[earlier].startswith("%%tfos") and finished.body.strip() in texts[earlier]
        }
        self._finished[number] = FinishedCell(line, cell, options, captured)
        return run_cell(self._notebook, map_fun, options)

    tfos.__doc__ = _HELP

    def _texts(self) -> list[str]:
        history = self._notebook.history_manager
        return list(history.input_hist_raw) if history else []


# What IPython takes the first word of a line for that begins with ``%%tfos`` further down in a cell.
_MISPLACED = "%tfos"


def _misplaced(_line: str) -> None:
    raise ConfigError(
        ["%%tfos has to be the first line of its cell: move what stands above it, comments too, below it or elsewhere"]
    )


def load_ipython_extension(shell: Any) -> None:
    """Register magics, completion and error rendering, and start warming; may be called twice.

    Prints nothing, unless the versions of what is installed cannot work.
    """
    magics = TfosMagics(shell)
    shell.register_magics(magics)
    shell.register_magic_function(_misplaced, "line", _MISPLACED)
    read_configuration(shell.config)
    completion.install(shell, magics.commands.complete)
    sources.add_labeller(make_labeller(shell))
    error_messages.install(shell)
    error_messages.show_warnings()
    for problem in misfits():
        logger.warning("%s.", problem)
    register_file_systems()
    warm_in_background()
    load_in_background()


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics and completion; clusters continue."""
    for kind in ("line", "cell"):
        for name in ("tfos", _MISPLACED):
            shell.magics_manager.magics[kind].pop(name, None)
    completion.remove(shell)
    forget_defaults()
    error_messages.hide_warnings()
