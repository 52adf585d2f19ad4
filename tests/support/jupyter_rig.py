"""A real JupyterLab, or Notebook 7 of the same server, driven in a real Chromium.

    with JupyterRig(tmp_path) as rig:
        notebook = rig.open_notebook("demo.ipynb", ["1 + 1"])
        notebook.run_cell(0)

The server listens on 127.0.0.1 with a token; its configuration, runtime and workspaces are in a temporary folder. Its
process group is ended at the end; kernels exit by themselves when the server is gone.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.chromium import running_chromium
from tests.support.daemon import Daemon
from tests.support.lazy import Lazy
from tests.support.quick import QUICK_ENV

nbformat = Lazy("nbformat")

REPOSITORY = Path(__file__).resolve().parents[2]

START_TIMEOUT_S = 180
KERNEL_TIMEOUT_MS = 180_000

_SERVER_OPTIONS = (
    "--no-browser",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port=0",
    "--ServerApp.open_browser=False",
    "--ServerApp.allow_root=True",
    "--LabApp.expose_app_in_browser=True",
    "--JupyterNotebookApp.expose_app_in_browser=True",
    "--LabApp.extension_manager=readonly",
)

# For what Playwright does itself, such as loading JupyterLab, clicks and downloads.
_PAGE_TIMEOUT_MS = 120_000

# Records the frame times of the page, for tests of its smoothness.
_WATCH_FRAMES = """() => {
  window.tfosFrames = [];
  let last = performance.now();
  const record = (now) => {
    window.tfosFrames.push(now - last);
    last = now;
    window.tfosFrame = requestAnimationFrame(record);
  };
  window.tfosFrame = requestAnimationFrame(record);
}"""

_KERNEL_IS_IDLE = """async () => {
  const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
  await context?.ready;
  const kernel = context?.session?.kernel;
  if (!kernel || kernel.connectionStatus !== "connected") return false;
  await kernel.info;
  return kernel.status === "idle";
}"""


Cells = Sequence[str] | Mapping[str, str]


class JupyterRig:
    """JupyterLab and a browser, from start to end.

    Notebooks are in ``notebooks`` of ``folder``, logs and configuration beside them. ``base_url`` is as a hub would
    give it, such as ``"/user/alice/"``, and ``python`` that of server and kernels. TensorFlow is a quick one in all
    kernels, unless ``env`` has another PYTHONPATH. Without a ``browser``, it runs one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        base_url: str = "/",
        env: Mapping[str, str] | None = None,
        python: Path | None = None,
        browser: Browser | None = None,
    ) -> None:
        self.notebooks = folder / "notebooks"
        self.notebooks.mkdir(parents=True, exist_ok=True)
        self.token = secrets.token_hex(16)
        self._names: dict[str, list[str]] = {}
        self._folder = folder
        self._base_url = base_url
        self._python = str(python or sys.executable)
        _write_settings(folder / "settings")
        self._ours = ExitStack()
        # A short path, as addresses of sockets have at most 107 characters.
        self._sockets = self._ours.enter_context(tempfile.TemporaryDirectory(prefix="tfos-"))
        self._server = Daemon("jupyter lab", self._command(), log=folder / "lab.log", env=self._environment(env or {}))
        try:
            self.url = self._wait_for_url()
            self._browser = browser or self._ours.enter_context(running_chromium())
        except BaseException:
            self.close()
            raise

    def open_notebook(self, name: str, cells: Cells = (), *, width: int = 1100, height: int = 900) -> Notebook:
        """Open a notebook in a page of JupyterLab; with cells, write it first."""
        notebook = self._open(name, cells, f"lab/tree/{name}?reset&", width, height)
        notebook.command("application:toggle-left-area")
        return notebook

    def open_in_notebook_7(self, name: str, cells: Cells = (), *, width: int = 1100, height: int = 900) -> Notebook:
        """Open a notebook in a page of Notebook 7; with cells, write it first."""
        return self._open(name, cells, f"notebooks/{name}?", width, height)

    def ask(self, path: str, method: str = "GET") -> Any:
        """Return what the server's REST interface answers."""
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}{path}", method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or "null")

    def clear(self) -> None:
        """Close all pages, and end all kernels; nothing is left of notebooks, runs, layout and settings."""
        for context in self._browser.contexts:
            context.close()
        for session in self.ask("api/sessions"):
            self.ask(f"api/sessions/{session['id']}", "DELETE")
        for folder in (self._folder / "workspaces", self._folder / "settings"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self.notebooks)
        self.notebooks.mkdir()
        _write_settings(self._folder / "settings")

    def close(self) -> None:
        """End browser, server and kernels; may be called twice."""
        if self._server is None:
            return
        try:
            self._ours.close()
        finally:
            self._server.stop()
            self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open(self, name: str, cells: Cells, address: str, width: int, height: int) -> Notebook:
        if isinstance(cells, Mapping):
            self._names[name] = [*cells]
            cells = [*cells.values()]
        if cells:
            made = nbformat.v4.new_notebook(
                cells=[nbformat.v4.new_code_cell(source) for source in cells],
                metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            )
            nbformat.write(made, self.notebooks / name)
        page = self._browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(_PAGE_TIMEOUT_MS)
        page.goto(f"{self.url}{address}token={self.token}")
        notebook = Notebook(page, name, self._names.get(name, []))
        notebook.wait_until_ready()
        return notebook

    def _command(self) -> list[str]:
        return [
            *(self._python, "-m", "jupyterlab"),
            *_SERVER_OPTIONS,
            f"--IdentityProvider.token={self.token}",
            f"--ServerApp.base_url={self._base_url}",
            f"--ServerApp.root_dir={self.notebooks}",
            # Not by TCP: the server goes on to connect to kernels that have ended, and a task of Spark's that listens
            # at such a port by then ends with its executor when it hears from a stranger.
            *("--KernelManager.transport=ipc", f"--KernelManager.ip={self._sockets}/kernel"),
        ]

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "IPYTHONDIR": "ipython",
        }
        paths = {name: str(self._folder / folder) for name, folder in folders.items()}
        packages = os.pathsep.join([str(REPOSITORY), *QUICK_ENV.values()])
        return {**os.environ, **paths, "PYTHONPATH": packages, "JUPYTER_PLATFORM_DIRS": "1", **extra}

    def _wait_for_url(self) -> str:
        pattern = rf"(http://127\.0\.0\.1:\d+{re.escape(self._base_url)})"
        return self._server.wait_for_url(pattern, timeout_s=START_TIMEOUT_S)


def _write_settings(folder: Path) -> None:
    """Write settings by which nothing leaves the machine: no news, no updates."""
    path = folder / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))


class Notebook:
    """One notebook in one page; its cells go by their names, if it was opened with such, or by their numbers."""

    def __init__(self, page: Page, name: str, cells: Sequence[str] = ()) -> None:
        self.page = page
        self.name = name
        self._cells = cells
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def wait_until_ready(self) -> None:
        """Wait until the kernel is idle."""
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=KERNEL_TIMEOUT_MS)
        self.page.wait_for_function(_KERNEL_IS_IDLE, timeout=KERNEL_TIMEOUT_MS)

    def use_dark_theme(self) -> None:
        """Change JupyterLab's theme, and wait until it is dark."""
        self.command("apputils:change-theme", theme="JupyterLab Dark")
        self.page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")

    def command(self, command: str, **args: Any) -> None:
        """Run one of JupyterLab's commands."""
        self.page.evaluate(
            "([command, args]) => { window.jupyterapp.commands.execute(command, args); }", [command, args]
        )

    def index(self, cell: int | str) -> int:
        return self._cells.index(cell) if isinstance(cell, str) else cell

    def cell(self, cell: int | str) -> Locator:
        """The cell's element."""
        cells = self.page.locator(".jp-Notebook > .jp-WindowedPanel-outer .jp-Cell, .jp-Notebook > .jp-Cell")
        return cells.nth(self.index(cell))

    def output(self, cell: int | str) -> Locator:
        """The element of the cell's outputs."""
        return self.cell(cell).locator(".jp-Cell-outputArea")

    def picture(self, cell: int | str) -> Locator:
        """The picture of a run, which is saved with its cell."""
        return self.output(cell).locator(".tfos-static")

    @property
    def live(self) -> Locator:
        """The dashboards of the runs that the page follows."""
        return self.page.locator(".tfos-live")

    @property
    def panel(self) -> Locator:
        return self.page.locator("#tfos-lab-clusters")

    def in_state(self, state: str) -> None:
        """Wait until the run that the page follows is in a state."""
        expect(self.live.locator(".tfos-header .tfos-state")).to_have_attribute("data-state", state)

    def start_cell(self, cell: int | str) -> None:
        """Run a cell and return at once."""
        self.cell(cell).locator(".jp-InputPrompt").click()
        self.command("notebook:run-cell")

    def run_cell(self, cell: int | str, *, timeout_s: float = 120) -> None:
        """Run a cell and wait for its end."""
        self.start_cell(cell)
        self.wait_for_end(cell, timeout_s=timeout_s)

    def wait_for_end(self, cell: int | str, *, timeout_s: float = 120) -> None:
        """Wait until the cell has a number: then it has ended."""
        prompt = self.cell(cell).locator(".jp-InputArea-prompt")
        self.page.wait_for_function(
            r"(prompt) => /^\[\d+\]:/.test(prompt.textContent)", arg=prompt.element_handle(), timeout=timeout_s * 1000
        )

    def save(self) -> None:
        """Save the notebook and wait until it is saved."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")

    def interrupt(self) -> None:
        """Press ■; the kernel has been interrupted when this returns."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:interrupt-kernel').then(() => null)")

    def watch_frames(self) -> None:
        """Start to record the page's frame times."""
        self.page.evaluate(_WATCH_FRAMES)

    def frame_times_ms(self) -> list[float]:
        """Return the time between frames since `watch_frames`."""
        return list(self.page.evaluate("() => { cancelAnimationFrame(window.tfosFrame); return window.tfosFrames; }"))

    def close(self) -> None:
        """Close the page; the kernel lives on with the server."""
        self.page.close()
