"""TensorBoard in the output of a cell: a frame where the Jupyter server can show it, a link or a sentence elsewhere.

The output is a sentence that a small script replaces by a frame, once it has asked the server for the page and got it.
So a notebook that is opened later, exported or read where there is no Jupyter server shows the sentence: never a blank
frame, and never another run's pages. Where no Jupyter server shows the run, the sentence holds a link of its own.
"""

from __future__ import annotations

import html
import itertools
import json
import os
import shlex
from pathlib import Path
from typing import Any

from tfos_lab.engine.discovery.publisher import show_folder
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.display.outputs import script

_numbers = itertools.count(1)


class TensorBoardView:
    """What a cell shows of TensorBoard.

    Parameters
    ----------
    run_id : str
        By which the Jupyter server knows the run.
    name : str
        How people call it.
    folder : str
        The event files.
    link : str or None
        An address that browsers on this machine can open, where no Jupyter server shows it.
    """

    def __init__(self, run_id: str, name: str, folder: str, link: str | None = None) -> None:
        self.run_id = run_id
        self.name = name
        self.folder = folder
        self.link = link

    def __repr__(self) -> str:
        here, elsewhere = self._commands()
        if self.link:
            return (
                f"TensorBoard of {self.name}: {self.link} on this machine, while this program lives; then {elsewhere}"
            )
        return f"TensorBoard of {self.name}: {here} shows it in a notebook, {elsewhere} in a browser of its own"

    def _commands(self) -> tuple[str, str]:
        folder = shlex.quote(self.folder)
        return f"%tfos tensorboard {folder}", f"tensorboard --logdir {folder}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self._html(), "text/plain": repr(self)}

    def _html(self) -> str:
        element = f"tfos-tensorboard-{os.getpid()}-{next(_numbers)}"
        here, elsewhere = map(html.escape, self._commands())
        options = json.dumps({"element": element, "run": self.run_id, "name": self.name}).replace("<", "\\u003c")
        title = f"TensorBoard of <b>{html.escape(self.name)}</b>"
        beginning = f"{title}:"
        if self.link:
            link = f'<a href="{html.escape(self.link)}" target="_blank" rel="noopener noreferrer">{title}</a>'
            beginning = f"{link} opens in browsers on this machine while this kernel lives; later"
        return (
            f'<div id="{element}" class="tfos-tensorboard">{beginning} '
            f"<code>{here}</code> shows it in JupyterLab, <code>{elsewhere}</code> in a browser of its own.</div>"
            f"<script>({script('tensorboard_frame.js')})({options})</script>"
        )


def show_tensorboard(cluster: Any) -> None:
    """Show a cluster's TensorBoard in the output of the cell that runs, or say why it cannot be shown."""
    from IPython.display import display

    try:
        view = view_cluster(cluster)
    except ConfigError as error:
        print(error)  # noqa: T201 - the cluster runs all the same
        return
    display(view)  # type: ignore[no-untyped-call]


def view_cluster(cluster: Any) -> TensorBoardView:
    """Return the TensorBoard of a cluster of this notebook."""
    publisher = cluster.publisher
    if publisher is None:
        raise ConfigError([f"the cluster '{cluster.name}' cannot be shown: no socket could be made for it"])
    if publisher.tensorboard_socket is None:
        return view_folder(publisher.log_dir, cluster.name)
    return TensorBoardView(cluster.id, cluster.name, publisher.log_dir, publisher.link)


def view_folder(folder: str, name: str = "") -> TensorBoardView:
    """Return the TensorBoard of a folder.

    Raises
    ------
    ConfigError
        If there is no such folder here, or it holds nothing.
    """
    if "://" not in folder:
        path = Path(folder).expanduser().absolute()
        if not path.is_dir():
            raise ConfigError([f"{folder}: there is no such cluster, and no such folder on this machine"])
        folder = str(path)
    try:
        publisher = show_folder(folder)
    except OSError as error:
        raise ConfigError([f"TensorBoard cannot be shown: {error}"]) from error
    return TensorBoardView(publisher.id, name or folder, folder, publisher.link)
