"""What a cell says of its run in a real JupyterLab is so: while it runs, when its kernel is lost, and afterwards."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from playwright.sync_api import Locator, Response, expect

from tests.support.jupyter_rig import JupyterRig, Notebook
from tests.support.quick import QUICK_ENV

pytestmark = pytest.mark.browser

# On a busy machine everything takes long; what never comes is what fails.
expect.set_options(timeout=60_000)

LOOKS = 6


def quick_cell(options: str, body: str) -> str:
    """Return a real cell for two quick nodes."""
    return f"%%tfos {options} cluster_size=2 local=processes env={QUICK_ENV}\n{body}"


ENDLESS = """\
import itertools, time
for step in itertools.count(1):
    print("at step", step, flush=True)
    ctx.report(step=step, loss=1 / step)
    time.sleep(0.05)
"""

# It writes event files when there is a file `go`, and ends when it is gone.
WRITE_LATER = """\
while not go.exists():
    time.sleep(0.05)
write_events(ctx.log_dir, loss=[1 / (i + 1) for i in range(30)])
while go.exists():
    time.sleep(0.05)
"""

CELLS = {
    "load": """%load_ext tfos_lab
import time
from pathlib import Path
from tests.support.quick import QUICK_ENV
from tests.support.unix_http import write_events
go = Path("go").absolute()""",
    "blocking": quick_cell("name=blocking", ENDLESS),
    "hello": quick_cell("name=hello", "print('hello')"),
    "late": f"%%tfos name=late tensorboard local=processes env=QUICK_ENV\n{WRITE_LATER}",
    "short": "%%tfos name=short tensorboard local=processes env=QUICK_ENV\nwrite_events(ctx.log_dir, loss=[0.5, 0.4])",
    "silent": "%%tfos name=silent tensorboard local=processes env=QUICK_ENV\n1",
}


@pytest.fixture(scope="module")
def notebook(extended_rig: JupyterRig) -> Notebook:
    opened = extended_rig.open_notebook("following.ipynb", list(CELLS.values()))
    opened.run_cell(cell("load"))
    return opened


def cell(name: str) -> int:
    return list(CELLS).index(name)


def live(notebook: Notebook) -> Locator:
    return notebook.page.locator(".tfos-live")


def in_state(notebook: Notebook, state: str) -> None:
    expect(live(notebook).locator(".tfos-header .tfos-state")).to_have_attribute("data-state", state)


def kernels(rig: JupyterRig) -> list[dict[str, Any]]:
    request = urllib.request.Request(f"{rig.url}api/kernels", headers={"Authorization": f"token {rig.token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return list(json.load(answer))


def kernel_state(notebook: Notebook) -> str:
    """What JupyterLab's status bar goes by."""
    return str(notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.kernelDisplayStatus"))


def test_the_kernel_is_busy_while_a_cell_blocks(notebook: Notebook, extended_rig: JupyterRig) -> None:
    notebook.start_cell(cell("blocking"))
    in_state(notebook, "running")
    expect(live(notebook).get_by_role("tabpanel")).to_contain_text("at step")
    seen = []
    for look in range(LOOKS):
        # The page speaks to the kernel all the while.
        notebook.page.get_by_role("tab", name=("chief:0", "worker:0")[look % 2]).click()
        with notebook.page.expect_download():
            live(notebook).get_by_role("button", name="Download").click()
        [kernel] = kernels(extended_rig)
        seen.append((kernel["execution_state"], kernel_state(notebook)))
    assert seen == [("busy", "busy")] * LOOKS
    expect(notebook.page.locator("#jp-main-statusbar")).to_contain_text("Busy")
    notebook.interrupt()
    notebook.wait_for_end(cell("blocking"))
    notebook.wait_until_ready()
    [kernel] = kernels(extended_rig)
    assert (kernel["execution_state"], kernel_state(notebook)) == ("idle", "idle")


def picture(notebook: Notebook, name: str) -> Locator:
    return notebook.output(cell(name)).locator(".tfos-static")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_was_printed_is_read_without_a_click_and_the_logs_open(notebook: Notebook, scheme: str) -> None:
    if scheme == "dark":
        notebook.use_dark_theme()
    notebook.run_cell(cell("hello"))
    said = picture(notebook, "hello").locator(".tfos-said")
    expect(said).to_have_text(["chief:0hello", "worker:0hello"])
    expect(said.first).to_be_visible()
    notebook.screenshot(f"printed-{scheme}", notebook.cell(cell("hello")))
    picture(notebook, "hello").get_by_role("link", name="worker:0").click()
    editor = notebook.page.locator(".jp-FileEditor")
    expect(editor).to_contain_text("hello")
    notebook.command("application:close")
    expect(editor).to_have_count(0)
    notebook.command("apputils:change-theme", theme="JupyterLab Light")


def board(notebook: Notebook, name: str) -> Locator:
    return notebook.output(cell(name)).locator(".tfos-board")


def dashboards_of(listing: dict[str, Any]) -> list[str]:
    return [name for name, dashboard in listing.items() if dashboard["enabled"]]


def test_tensorboard_is_shown_when_it_has_something_to_show(notebook: Notebook, extended_rig: JupyterRig) -> None:
    listings: list[Response] = []
    notebook.page.on("response", lambda answer: listings.append(answer) if "plugins_listing" in answer.url else None)
    notebook.start_cell(cell("late"))
    in_state(notebook, "running")
    expect(board(notebook, "late")).to_contain_text("waits for the first event files")
    expect(board(notebook, "late").locator("iframe")).to_have_count(0)
    notebook.screenshot("tensorboard-awaited", board(notebook, "late"))
    (extended_rig.notebooks / "go").touch()
    page = board(notebook, "late").frame_locator("iframe")
    expect(page.locator("card-view").first).to_be_visible()
    assert listings
    assert all(dashboards_of(answer.json()) for answer in listings), "it would say that no dashboards are active"
    (extended_rig.notebooks / "go").unlink()
    notebook.wait_for_end(cell("late"))


def test_tensorboard_of_a_run_that_is_over_at_once_shows_it(notebook: Notebook) -> None:
    notebook.run_cell(cell("short"))
    expect(board(notebook, "short").frame_locator("iframe").locator("card-view").first).to_be_visible()


def test_tensorboard_of_a_run_without_event_files_says_so(notebook: Notebook) -> None:
    notebook.run_cell(cell("silent"))
    expect(board(notebook, "silent")).to_contain_text("There are no event files in")
    expect(board(notebook, "silent").locator("iframe")).to_have_count(0)
