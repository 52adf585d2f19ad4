"""TensorBoard in the output of a cell: a frame where the Jupyter server can show it, a link or a sentence elsewhere.

The output is a sentence. A small script replaces it by a frame after it has got the page from the server. A notebook
that is opened later, exported, or read without a Jupyter server therefore shows the sentence: never a blank frame, and
never the pages of another run. Where no Jupyter server shows the run, the sentence contains a link.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core.markup import h, join
from tfos_lab.driver.publisher import show_folder
from tfos_lab.errors import ConfigError
from tfos_lab.notebook.display.assets import inline_script, unique_id

if TYPE_CHECKING:
    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.runs.run import Run


@dataclass(frozen=True, repr=False)
class TensorBoardView:
    """The output of a cell that shows TensorBoard, of a run that the Jupyter server knows by its id, or of a folder.

    Where no Jupyter server shows it, ``link`` is an address for browsers on this machine.
    """

    run_id: str
    name: str
    folder: str
    link: str | None = None

    def __repr__(self) -> str:
        here, elsewhere = self._commands()
        if self.link:
            return (
                f"TensorBoard of {self.name}: {self.link} on this machine, while this program lives; then {elsewhere}"
            )
        return f"TensorBoard of {self.name}: {here} shows it in a notebook, {elsewhere} in a browser of its own"

    def _commands(self) -> tuple[str, str]:
        """Return what shows the folder in a notebook, and what shows it elsewhere."""
        folder = shlex.quote(self.folder)
        return f"%tfos tensorboard {folder}", f"tensorboard --logdir {folder}"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": self._html(), "text/plain": repr(self)}

    def _html(self) -> str:
        element = unique_id("tensorboard")
        here, elsewhere = (h("code", command) for command in self._commands())
        options = {"element": element, "run": self.run_id, "name": self.name}
        title = join("TensorBoard of ", h("b", self.name))
        beginning = join(title, ":")
        if self.link:
            link = h("a", title, href=self.link, target="_blank", rel="noopener noreferrer")
            beginning = join(link, " opens in browsers on this machine while this kernel lives; later")
        told = (beginning, " ", here, " shows it in JupyterLab, ", elsewhere, " in a browser of its own.")
        return h("div", *told, id=element, cls="tfos-tensorboard") + inline_script("tensorboard_frame.js", options)


def show_tensorboard(cluster: Cluster) -> None:
    """Show a cluster's TensorBoard in the output of the cell that runs, or print why that is impossible."""
    from IPython.display import display

    try:
        view = view_cluster(cluster)
    except ConfigError as error:
        print(error)  # noqa: T201 - the cluster runs anyway
        return
    display(view)  # type: ignore[no-untyped-call]


def view_cluster(cluster: Cluster) -> TensorBoardView:
    """Return the TensorBoard of a cluster of this notebook."""
    publisher, folder = cluster.publisher, cluster.output.events.folder
    if publisher is None or publisher.tensorboard_socket is None:
        return view_folder(folder, cluster)
    return TensorBoardView(cluster.id, cluster.name, folder, publisher.link)


def view_folder(folder: str, of: Cluster | Run | None = None) -> TensorBoardView:
    """Return the TensorBoard of a folder, or of a run whose folder it is.

    Raises a `ConfigError` if there is none, or TensorBoard cannot be shown.
    """
    if "://" not in folder:
        path = Path(folder).expanduser().absolute()
        if not path.is_dir() and of is not None:
            has_none = "has left no event files on this machine" if of.state.ended else "has written no event files yet"
            raise ConfigError([f"the run {of.id} {has_none}: {folder} is not there"])
        if not path.is_dir():
            raise ConfigError([f"{folder}: there is no such cluster, and no such folder on this machine"])
        folder = str(path)
    try:
        publisher = show_folder(folder)
    except OSError as error:
        raise ConfigError([f"TensorBoard cannot be shown: {error}"]) from error
    return TensorBoardView(publisher.id, folder if of is None else of.name, folder, publisher.link)
