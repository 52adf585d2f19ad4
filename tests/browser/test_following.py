"""What a cell shows of its run in a real JupyterLab is true: while it runs, when its kernel is lost, and afterwards."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from playwright.sync_api import Locator, Response, expect

from tests.support.jupyter_rig import JupyterRig, Notebook
from tests.support.lazy import Lazy
from tests.support.quick import quick_cell

nbconvert = Lazy("nbconvert")
nbformat = Lazy("nbformat")

pytestmark = pytest.mark.browser

# On a busy machine everything takes long; what never comes is what fails.
expect.set_options(timeout=60_000)

LOOKS = 6
RECORD_STATES = """() => {
  window.kernelStates = [];
  window.jupyterapp.shell.currentWidget.sessionContext.statusChanged.connect((_, state) => {
    window.kernelStates.push(state);
  });
}"""


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
    "background": quick_cell("name=background background", ENDLESS),
    "card": "background",
    "hello": quick_cell("name=hello", "print('hello')"),
    "late": f"%%tfos name=late tensorboard local=processes env=QUICK_ENV\n{WRITE_LATER}",
    "silent": "%%tfos name=silent tensorboard local=processes env=QUICK_ENV\n1",
}


@pytest.fixture(scope="module")
def notebook(rig: JupyterRig) -> Notebook:
    opened = rig.open_notebook("following.ipynb", CELLS)
    opened.run_cell("load")
    return opened


def kernels(rig: JupyterRig) -> list[dict[str, Any]]:
    return list(rig.ask("api/kernels"))


def kernel_state(notebook: Notebook) -> str:
    """What JupyterLab's status bar goes by."""
    return str(notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.kernelDisplayStatus"))


def test_the_kernel_is_busy_while_a_cell_blocks(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.page.evaluate(RECORD_STATES)
    notebook.start_cell("blocking")
    notebook.in_state("running")
    expect(notebook.live.get_by_role("region", name="Log")).to_contain_text("at step")
    seen = []
    for look in range(LOOKS):
        # The page is used meanwhile, which sends the kernel nothing.
        notebook.page.get_by_role("radio", name=("chief:0", "worker:0")[look % 2]).click()
        [kernel] = kernels(rig)
        seen.append((kernel["execution_state"], kernel_state(notebook)))
    assert seen == [("busy", "busy")] * LOOKS
    assert notebook.page.evaluate("() => window.kernelStates") == ["busy"], "not for a moment anything else"
    expect(notebook.page.locator("#jp-main-statusbar")).to_contain_text("Busy")
    notebook.interrupt()
    notebook.wait_for_end("blocking")
    notebook.wait_until_ready()
    [kernel] = kernels(rig)
    assert (kernel["execution_state"], kernel_state(notebook)) == ("idle", "idle")


def test_what_was_printed_is_read_without_a_click_and_the_logs_open(notebook: Notebook) -> None:
    notebook.run_cell("hello")
    said = notebook.picture("hello").locator(".tfos-said")
    expect(said).to_have_text(["all 2 nodeshello"])
    expect(said.first).to_be_visible()
    notebook.picture("hello").get_by_role("link", name="worker:0").click()
    editor = notebook.page.locator(".jp-FileEditor")
    expect(editor).to_contain_text("hello")
    notebook.command("application:close")
    expect(editor).to_have_count(0)


def saved(notebook: Notebook, rig: JupyterRig, name: str, wanted: str, *, past: int = 0) -> str:
    """Save until the cell's picture in the file matches, and shows a step ``past`` this one; return the picture."""
    deadline = time.monotonic() + 60
    while True:
        notebook.save()
        read = nbformat.read(rig.notebooks / notebook.name, as_version=4)
        datas = [
            output.data for output in read.cells[notebook.index(name)].outputs if output.output_type == "display_data"
        ]
        page = datas[0].get("text/html", "") if datas else ""
        if re.search(wanted, page, re.DOTALL) and (not past or last_step(page) > past):
            assert [set(data) for data in datas] == [{"text/html", "text/plain"}], "a widget would not be found again"
            return str(page)
        assert time.monotonic() < deadline, datas
        time.sleep(0.5)


def last_step(page: str) -> int:
    return max((int(number) for number in re.findall(r"at step (\d+)\n", page)), default=0)


def exported(notebook: Notebook, rig: JupyterRig) -> str:
    """Return the saved notebook as HTML."""
    read = nbformat.read(rig.notebooks / notebook.name, as_version=4)
    body, _ = nbconvert.HTMLExporter().from_notebook_node(read)
    return re.sub(r"<[^>]*>", " ", body)


def test_the_saved_notebook_follows_a_run_that_goes_on(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.run_cell("background")
    notebook.in_state("running")
    seen = saved(notebook, rig, "background", r"2/2 nodes running.*at step [1-9]")
    step = last_step(seen)
    assert "Seen at " in seen
    before = kernels(rig)[0]["last_activity"]
    later = saved(notebook, rig, "background", "2/2 nodes running", past=step + 5)
    assert 'data-state="running"' in later
    assert re.search(r"running.*2/2 nodes running", exported(notebook, rig), re.DOTALL)
    assert kernels(rig)[0]["last_activity"] > before, "a server that culls idle kernels must leave it alone"
    notebook.in_state("running")  # the page itself shows the dashboard meanwhile
    expect(notebook.live).to_have_count(1)


def test_the_card_of_a_run_that_goes_on_does_not_say_that_it_follows_it(notebook: Notebook) -> None:
    notebook.run_cell("card")
    said = notebook.picture("card").first.locator(".tfos-seen")
    expect(said).to_contain_text("It runs on (running, 2/2 nodes running). This picture does not follow it. Seen at ")


def test_a_page_that_is_loaded_again_gets_the_dashboard_of_a_run_in_the_background_back(
    notebook: Notebook, rig: JupyterRig
) -> None:
    notebook.page.reload()
    notebook.wait_until_ready()
    notebook.in_state("running")
    expect(notebook.live.get_by_role("region", name="Log")).to_contain_text("at step")
    saved(notebook, rig, "background", "2/2 nodes running")


def test_a_view_that_lost_its_kernel_shows_it_and_so_does_the_file(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.page.evaluate("() => { window.jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }")
    notebook.in_state("lost")
    reason = notebook.live.locator(".tfos-reason")
    expect(reason).to_contain_text(re.compile(r"The kernel was restarted at \d\d:\d\d:\d\d\."))
    expect(reason).to_contain_text(str(rig.notebooks / "runs"))
    expect(notebook.live).not_to_contain_text("● running")
    expect(notebook.live.get_by_role("row").filter(has_text="lost")).to_have_count(2)
    expect(notebook.live.locator('.tfos-tab[data-state="lost"]')).to_have_count(2)
    expect(notebook.page.get_by_role("button", name="Stop background")).to_be_hidden()
    expect(notebook.live.get_by_role("cell", name="now", exact=True)).to_have_count(0)
    lost_file = saved(notebook, rig, "background", "lost.*last seen with 2/2 nodes running.*The kernel was restarted")
    assert 'data-state="running"><span' not in lost_file
    assert "The kernel was restarted at" in exported(notebook, rig)
    notebook.page.reload()
    notebook.wait_until_ready()
    lost = notebook.picture("background")
    expect(lost).to_contain_text("The kernel was restarted at")
    expect(lost.locator('.tfos-state[data-state="running"]')).to_have_count(0)
    assert "model not found" not in notebook.page.inner_text("body")


def test_a_picture_of_a_run_whose_kernel_ended_unseen_is_not_shown_as_running(
    notebook: Notebook, rig: JupyterRig
) -> None:
    notebook.run_cell("load")
    notebook.run_cell("background")
    saved(notebook, rig, "background", "2/2 nodes running")
    notebook.page.goto("about:blank")
    [kernel] = kernels(rig)
    rig.ask(f"api/kernels/{kernel['id']}/restart", method="POST")
    notebook.page.goto(f"{rig.url}lab/tree/{notebook.name}?token={rig.token}")
    notebook.wait_until_ready()
    seen = notebook.picture("background")
    expect(seen).to_contain_text("It is not followed any more: the run has ended since, or its kernel has. Seen at ")
    expect(seen.locator('.tfos-state[data-state="running"]')).to_have_count(0)
    folder = seen.locator(".tfos-where .tfos-path")
    expect(folder).to_have_attribute("title", re.compile(re.escape(str(rig.notebooks / "runs"))))


def test_a_blocking_cell_shows_after_a_reload_that_it_still_runs(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.run_cell("load")
    notebook.start_cell("blocking")
    notebook.in_state("running")
    saved(notebook, rig, "blocking", "2/2 nodes running")
    notebook.page.reload()
    seen = notebook.picture("blocking")
    expect(seen.locator(".tfos-seen")).to_contain_text("It runs on (running, 2/2 nodes running).")
    expect(notebook.page.locator("#jp-main-statusbar")).to_contain_text("Busy")
    [kernel] = kernels(rig)
    assert kernel["execution_state"] == "busy"
    notebook.interrupt()
    expect(seen.locator(".tfos-header")).to_contain_text("stopped")
    expect(seen.locator(".tfos-seen")).to_have_count(0)
    saved(notebook, rig, "blocking", "stopped")


def test_a_run_that_the_saved_notebook_lacks_is_notified(notebook: Notebook, rig: JupyterRig) -> None:
    notebook.wait_until_ready()
    notebook.start_cell("blocking")
    notebook.in_state("running")
    notebook.page.once("dialog", lambda dialog: dialog.accept())  # that it was not saved
    notebook.page.reload()
    toast = notebook.page.locator(".Toastify__toast")
    expect(toast).to_contain_text("The cluster blocking runs on in the kernel of following.ipynb: running, 2/2 nodes")
    expect(toast).to_be_visible()
    expect(notebook.picture("blocking").locator(".tfos-header")).to_contain_text("stopped")
    toast.get_by_role("button", name="Show Clusters").click()
    expect(notebook.page.locator('#tfos-lab-clusters [aria-label="Running clusters"] li')).to_contain_text("blocking")
    notebook.interrupt()
    notebook.wait_until_ready()
    notebook.command("application:toggle-left-area")


def tensorboard(notebook: Notebook, name: str) -> Locator:
    return notebook.output(name).locator(".tfos-tensorboard")


def test_tensorboard_is_shown_when_it_has_something_to_show(notebook: Notebook, rig: JupyterRig) -> None:
    listings: list[Response] = []
    notebook.page.on("response", lambda answer: listings.append(answer) if "plugins_listing" in answer.url else None)
    notebook.start_cell("late")
    notebook.in_state("running")
    expect(tensorboard(notebook, "late")).to_contain_text("waits for the first event files")
    expect(tensorboard(notebook, "late").locator("iframe")).to_have_count(0)
    (rig.notebooks / "go").touch()
    page = tensorboard(notebook, "late").frame_locator("iframe")
    expect(page.locator("card-view").first).to_be_visible()
    assert listings
    shown = [any(dashboard["enabled"] for dashboard in answer.json().values()) for answer in listings]
    assert all(shown), "it would say that no dashboards are active"
    (rig.notebooks / "go").unlink()
    notebook.wait_for_end("late")


def test_tensorboard_of_a_run_without_event_files_explains_it(notebook: Notebook) -> None:
    notebook.run_cell("silent")
    expect(tensorboard(notebook, "silent")).to_contain_text("There are no event files in")
    expect(tensorboard(notebook, "silent").locator("iframe")).to_have_count(0)
