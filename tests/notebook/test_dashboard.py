"""The live card seen from the kernel: what it sends and answers, its end, and lines of text where nobody watches."""

from __future__ import annotations

import itertools
import json
import re
import threading
from types import SimpleNamespace
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm

from tests.support.eventually import eventually
from tests.support.fake_cluster import FakeCluster
from tfos_lab.driver.state.events import MetricsReported
from tfos_lab.errors import FeedError, LaunchFailed, NodeFailed
from tfos_lab.notebook.display import open_display


class Browser:
    """Takes the place of the kernel's messaging: keeps what would be sent to a page."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.outputs: list[SimpleNamespace] = []
        self.comms: list[BaseComm] = []

    def create_comm(self, **options: Any) -> BaseComm:
        browser = self

        class RecordingComm(BaseComm):
            def publish_msg(self, msg_type: str, data: Any = None, **_: Any) -> None:
                json.dumps(data, allow_nan=False)
                if msg_type == "comm_msg":
                    browser.messages.append(data)

        self.comms.append(RecordingComm(**options))
        return self.comms[-1]

    def publish(self, data: Any, metadata: Any = None, *, transient: Any = None, update: bool = False, **_: Any):
        self.outputs.append(SimpleNamespace(data=data, metadata=metadata, id=transient["display_id"], update=update))

    def send(self, content: object) -> None:
        message = {"content": {"data": {"method": "custom", "content": content}}, "buffers": []}
        self.comm.handle_msg(message)

    @property
    def comm(self) -> BaseComm:
        """The dashboard's own; the widget's layout has one too."""
        return self.comms[-1]

    def views(self) -> list[dict[str, Any]]:
        found = [message["state"] for message in list(self.messages) if message["method"] == "update"]
        return [update["view"] for update in found if "view" in update]

    def part(self, name: str) -> str:
        """What the page shows of a part now."""
        states = [message["state"] for message in list(self.messages) if message["method"] == "update"]
        return str(next((state[name] for state in reversed(states) if name in state), ""))

    def customs(self, kind: str) -> list[dict[str, Any]]:
        contents = [message["content"] for message in list(self.messages) if message["method"] == "custom"]
        return [content for content in contents if content["kind"] == kind]

    def pictures(self) -> list[str]:
        return [message["bundle"]["text/html"] for message in self.customs("picture")]


def plain(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["html"] for chunk in chunks)


@pytest.fixture
def browser(monkeypatch, shell):
    made = Browser()
    monkeypatch.setattr(comm, "create_comm", made.create_comm)
    monkeypatch.setattr(shell, "display_pub", made)
    return made


@pytest.fixture
def cluster():
    return FakeCluster(nodes=2)


@pytest.fixture
def live(browser, cluster):
    with open_display(cluster, interactive=True) as made:
        yield made


def threads_of(cluster) -> list[str]:
    return [thread.name for thread in threading.enumerate() if cluster.id in thread.name and "tfos-" in thread.name]


# ---- what it sends --------------------------------------------------------------------------------------------------


def test_the_view_is_sent_with_the_widget_and_whenever_it_changes(browser, cluster, live):
    [output] = browser.outputs
    assert output.metadata == {"tfos_lab": {"display": output.id}}, "by this a page finds the output again"
    assert "0/2 nodes reserved" in output.data["text/html"], "a front end without widgets has something to show"
    assert output.data["text/plain"].startswith("○ mnist: launching")
    assert "application/vnd.jupyter.widget-view+json" in output.data
    cluster.change("chief:0", state="reserved", host="h1", metrics={"loss": float("nan")}, nan_since={"loss": 1})
    eventually(lambda: "1/2 nodes reserved" in browser.part("head"))
    for cell in ("◔</span> reserved", ">NaN</span></td>", ">h1</td>"):
        assert cell in browser.part("nodes")


def test_many_changes_among_64_nodes_are_few_small_updates(browser):
    cluster = FakeCluster(nodes=64)
    with open_display(cluster, interactive=True):
        for step in range(100):
            cluster.change("worker:7", step=step, metrics={"loss": 0.25})
        eventually(lambda: ">99</td>" in browser.part("nodes"))
        updates = [len(json.dumps(message)) for message in browser.messages if message["method"] == "update"]
    assert len(updates) < 100
    assert max(updates) < 500 * 64


def test_of_very_many_nodes_the_curves_are_the_bands_between_which_they_lie(browser):
    cluster = FakeCluster(nodes=100)
    with open_display(cluster, interactive=True):
        for place, node in enumerate(cluster.nodes):
            cluster.change(node, step=1, metrics={"loss": float(place)})
        eventually(lambda: "max 99, median 50, min 0" in browser.part("charts"))


def test_log_text_is_sent_as_few_messages_and_is_never_in_the_document(browser, cluster, live):
    cluster.write("chief:0", "secret \x1b[31mred\x1b[0m\nopen")
    eventually(lambda: browser.customs("log"))
    [batch] = browser.customs("log")
    assert batch["chunks"][0]["html"] == 'secret <span class="tfos-fg-red">red</span>\n'
    assert batch["open"] == {"chief:0": "open"}
    assert "secret" not in json.dumps(browser.outputs[0].data)
    cluster.write("chief:0", "\n" + "".join(f"{number}\n" for number in range(1000)))
    for number in range(1000):
        cluster.write("worker:0", f"{number}\n")
    eventually(lambda: plain(browser.customs("log")[-1]["chunks"]).endswith("999\n"))
    assert len(browser.customs("log")) < 100, "not one for each piece"


def test_charts_have_the_values_of_their_points_and_are_thinned(browser, cluster, live):
    def report(step, loss):
        cluster.bus.publish(
            MetricsReported(time_s=float(step), node="chief:0", step=step, total_steps=None, metrics={"loss": loss})
        )

    report(1, 2.0)
    report(2, float("nan"))
    eventually(lambda: 'data-points="1=2 2="' in browser.part("charts"))
    for step in range(3, 3000):
        report(step, 1.0)
    points = eventually(lambda: re.findall(r"\b(\d+)=1\b", browser.part("charts")))
    eventually(lambda: "2999=1" in browser.part("charts"))
    assert len(points) < 1000, "thinned"
    live.close()
    assert 'aria-label="loss: chief:0 1"' in browser.outputs[-1].data["text/html"]


def test_the_picture_in_the_document_follows_state_steps_and_output(browser, cluster, live):
    eventually(browser.pictures)
    assert 'data-state="launching"' in browser.pictures()[0]
    cluster.set_state("running")
    cluster.change("chief:0", step=183, state="running")
    cluster.write("chief:0", "at step 183\n")
    eventually(lambda: ">183<" in browser.pictures()[-1] and "at step 183" in browser.pictures()[-1])
    assert "Seen at " in browser.pictures()[-1]
    picture = browser.customs("picture")[-1]
    assert picture["model"] == browser.comm.comm_id
    assert set(picture["bundle"]) == {"text/html", "text/plain"}


def test_rows_per_second_are_those_of_the_last_seconds(browser, cluster, live):
    cluster.set_state("running")

    def rate():
        titles, row, *_ = [*re.findall(r"<tr.*?</tr>", browser.part("nodes")), "", ""]
        keys = re.findall('data-key="([^"]*)"', titles)
        cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall("<t[hd].*?</t[hd]>", row)]
        return dict(zip(keys, cells, strict=True)).get("rate", "")

    rows = itertools.count(0, 64)
    eventually(lambda: cluster.change("chief:0", state="running", rows=next(rows)) or rate() not in ("", "0"))
    eventually(lambda: rate() == "0", patience_s=120)  # what has stopped is not shown as running


# ---- what it answers ------------------------------------------------------------------------------------------------


def test_a_page_that_says_hello_gets_history_and_picture(browser, cluster, live):
    cluster.write("chief:0", "early\n")
    eventually(lambda: browser.customs("log") and browser.pictures())
    before = len(browser.pictures())
    browser.send({"kind": "hello"})
    history = browser.customs("history")[-1]
    assert plain(history["chunks"]) == "early\n"
    assert len(browser.pictures()) > before


def test_stacks_are_asked_for_and_stay_in_the_notebook(browser, cluster, live):
    browser.send({"kind": "stacks", "node": "worker:0"})
    eventually(lambda: "MainThread of worker:0" in browser.part("stacks"))  # a page that loads later has it, too
    live.close()
    assert "MainThread of worker:0" in browser.outputs[-1].data["text/html"]


def test_stop_reaches_the_cluster_without_waiting(browser, cluster, live, monkeypatch):
    asked, answer = threading.Event(), threading.Event()
    monkeypatch.setattr(cluster, "stop", lambda: (asked.set(), answer.wait(60)))
    browser.send({"kind": "stop"})
    assert asked.wait(60)
    answer.set()


@pytest.mark.parametrize("rubbish", [{}, {"kind": "dance"}, {"kind": "stacks", "node": 1}, [], "x"])
def test_rubbish_from_a_page_is_ignored(browser, live, rubbish):
    browser.send(rubbish)
    assert not browser.part("stacks")
    browser.send({"kind": "hello"})
    assert browser.customs("history"), "it goes on"


# ---- its end --------------------------------------------------------------------------------------------------------


def test_the_end_replaces_the_widget_and_nothing_is_left(browser, cluster):
    made = open_display(cluster, interactive=True)
    assert threads_of(cluster)
    cluster.write("chief:0", "last line\n")
    cluster.set_state("done")
    made.close()
    made.close()
    assert browser.views()[-1]["state"] == "done"
    first, last = browser.outputs
    assert (last.update, last.id) == (True, first.id)
    assert set(last.data) == {"text/html", "text/plain"}
    assert "last line" in last.data["text/html"]
    assert not threads_of(cluster)
    browser.send({"kind": "hello"})
    once, again = browser.customs("end")
    assert once == again, "a page that was reloaded gets the end, too"
    assert (once["model"], once["bundle"]) == (browser.comm.comm_id, last.data)
    sent = [message["content"]["kind"] for message in browser.messages if message["method"] == "custom"]
    assert sent[-1] == "end"


@pytest.mark.parametrize("blocking", [True, False])
def test_in_the_background_it_closes_itself_and_explains_the_failure(browser, cluster, *, blocking):
    made = open_display(cluster, interactive=True, blocking=blocking)
    cluster.set_state("failed", "worker:0: ValueError: no")
    eventually(lambda: browser.views() and browser.views()[-1]["state"] == "failed")
    if blocking:
        made.close()
    eventually(lambda: browser.customs("end"))
    data = browser.outputs[-1].data
    assert ("Cell In[1], line 2" in data["text/html"]) is not blocking, "a cell that waits raises it itself"
    assert data["text/plain"].endswith("ValueError: no") is not blocking
    eventually(lambda: not threads_of(cluster))


def test_what_another_call_raises_is_folded_and_names_the_line(browser, cluster):
    open_display(cluster, interactive=True, blocking=False, folds_error=True)
    cluster.set_state("failed", "worker:0: ValueError: no")
    eventually(lambda: browser.customs("end"))
    assert "<summary>Why it failed: Cell In[1], line 2</summary>" in browser.outputs[-1].data["text/html"]
    assert not re.search(r"<details[^>]* open", browser.outputs[-1].data["text/html"])


STACKS = "Thread 1:\n  Cell In[1], line 7, in f\nThread 2:\n  Cell In[1], line 9, in g"


@pytest.mark.parametrize(
    "failure",
    [
        NodeFailed(node="worker:0", kind="Hung", message="no step for 600 s", traceback=STACKS),
        NodeFailed(node="worker:0", kind="Exited", message="exit code 3", log_tail="Cell In[1], line 5"),
        LaunchFailed(reason="Spark has ended\n  Cell In[1], line 3"),
    ],
)
def test_no_line_is_named_but_that_at_which_a_function_raised(browser, cluster, monkeypatch, failure):
    monkeypatch.setattr(cluster, "failure", lambda: failure)
    open_display(cluster, interactive=True, blocking=False, folds_error=True)
    cluster.set_state("failed", "it failed")
    eventually(lambda: browser.customs("end"))
    html = browser.outputs[-1].data["text/html"]
    assert re.search(r"<details[^>]* open[^>]*><summary>Why it failed</summary>", html)


NULL = "column 'x' has 1 null: fill them with df.fillna(...)"


@pytest.mark.parametrize(
    ("failure", "is_said"),
    [
        (NodeFailed(node="feed", kind="FeedError", message=NULL), True),
        (NodeFailed(node="feed", kind="FeedError", message=f"{NULL}\nin 3 rows"), False),
        (FeedError(reason=f"{NULL}."), True),
        (FeedError(reason="column 'x' has 1 null"), False),
    ],
)
def test_a_sentence_that_the_card_begins_with_is_not_said_again(browser, cluster, monkeypatch, failure, is_said):
    monkeypatch.setattr(cluster, "failure", lambda: failure)
    open_display(cluster, interactive=True, blocking=False)
    cluster.set_state("failed", f"feed: FeedError: {NULL}")
    eventually(lambda: browser.customs("end"))
    assert ("Why it failed" in browser.outputs[-1].data["text/html"]) is not is_said


def test_nodes_that_end_after_a_failed_cell_are_not_shown_as_stopping_for_good(browser, cluster):
    cluster.change("chief:0", state="running")
    with open_display(cluster, interactive=True):
        cluster.set_state("failed", "feed: FeedError: no rows")
    assert "stopping" in browser.outputs[-1].data["text/plain"]
    cluster.change("chief:0", state="stopped")
    eventually(lambda: "stopping" not in browser.outputs[-1].data["text/plain"])
    browser.send({"kind": "hello"})
    assert browser.customs("end")[-1]["bundle"] == browser.outputs[-1].data, "a page that was reloaded gets it, too"


# ---- without widgets ------------------------------------------------------------------------------------------------


@pytest.fixture
def drawn(browser, monkeypatch):
    """The pictures of a front end that is said to have no widgets."""
    monkeypatch.setenv("TFOS_LAB_WIDGETS", "0")
    return browser.outputs


@pytest.mark.parametrize("blocking", [True, False])
def test_a_card_without_widgets_is_drawn_again_while_the_run_goes_on(browser, drawn, cluster, *, blocking):
    made = open_display(cluster, interactive=True, blocking=blocking)
    cluster.change("chief:0", state="running", step=7)
    eventually(lambda: ">7</td>" in drawn[-1].data["text/html"])
    cluster.set_state("failed", "worker:0: ValueError: no")
    if blocking:
        made.close()
    eventually(lambda: not threads_of(cluster))
    first, *rest = drawn
    assert not first.update
    assert all((one.update, one.id) == (True, first.id) for one in rest)
    assert all(set(one.data) == {"text/html", "text/plain"} for one in drawn)
    assert not browser.comms
    last = drawn[-1].data
    assert "Seen at" in first.data["text/html"]
    assert "<script" not in first.data["text/html"], "the next picture tells what is new"
    assert "Seen at" not in last["text/html"]
    assert ("Cell In[1], line 2" in last["text/html"]) is not blocking, "a cell that waits raises it itself"


@pytest.fixture
def linked(browser, tmp_path, monkeypatch):
    """The picture of a run in a folder, in a notebook ``work/a.ipynb`` of a Jupyter server."""
    runtime, root = tmp_path / "runtime", tmp_path / "root"
    for folder in (runtime, root / "work"):
        folder.mkdir(parents=True)
    info = {"url": "http://127.0.0.1:8888/", "base_url": "/", "root_dir": str(root)}
    (runtime / "jpserver-7.json").write_text(json.dumps(info))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("JPY_PARENT_PID", "7")
    monkeypatch.setenv("JPY_SESSION_NAME", str(root / "work/a.ipynb"))

    def linked(place):
        (root / place).mkdir(parents=True, exist_ok=True)
        cluster = FakeCluster(nodes=1, run_dir=root / place)
        with open_display(cluster, interactive=True):
            cluster.write("chief:0", "x\n" * 100)
            cluster.set_state("done")
        return browser.outputs[-1].data["text/html"]

    return linked


def test_logs_are_linked_relative_to_the_notebook_where_the_server_shows_them(linked, monkeypatch):
    assert '<a href="runs/a%20run/chief-0.log">' in linked("work/runs/a run")
    assert '<a href="../runs/chief-0.log">' in linked("runs")
    for place in ("../elsewhere", ".cache", "work/.runs"):
        assert "<a " not in linked(place), place
    monkeypatch.delenv("JPY_PARENT_PID")
    assert "<a " not in linked("work/runs/a run"), "outside a notebook"


# ---- lines of text --------------------------------------------------------------------------------------------------


@pytest.fixture
def lines(cluster, capsys):
    """What the text display writes at each look."""
    shown = open_display(cluster, interactive=False)
    capsys.readouterr()

    def poll(*, close=False):
        shown.close() if close else shown.poll()
        return capsys.readouterr().out.splitlines()

    yield poll
    shown.close()


def test_each_line_names_its_node_and_states_come_with_the_number_of_nodes(cluster, lines):
    cluster.write("chief:0", "one\n\x1b[31mtwo\x1b[0m\nunfinish")
    cluster.write("worker:0", "three\n")
    assert lines() == ["[chief:0] one", "[chief:0] two", "[worker:0] three"]
    cluster.write("chief:0", "ed\n10%\r100%\n")
    assert lines() == ["[chief:0] unfinished", "[chief:0] 100%"]
    assert lines() == []
    cluster.set_state("reserving")
    assert lines() == ["[mnist] reserving, 0/2 nodes reserved"]
    cluster.set_state("failed", "chief:0 failed")
    assert lines() == ["[mnist] failed, 0/2 nodes done: chief:0 failed"]


def test_a_flood_is_throttled_counted_and_ends_with_the_last_lines(cluster, lines):
    cluster.write("chief:0", "".join(f"{number}\n" for number in range(1000)) + "the end")
    cluster.write("worker:0", "quiet\n")
    first = lines()
    assert first[-1] == "[worker:0] quiet"
    assert len(first) < 200
    last = lines(close=True)
    hidden = 1001 - (len(first) - 1) - 5
    assert last[0] == f"[chief:0] … {hidden} lines not shown here; the file is complete"
    assert last[1:6] == ["[chief:0] 996", "[chief:0] 997", "[chief:0] 998", "[chief:0] 999", "[chief:0] the end"]
    assert last[6].startswith("○ mnist: launching")
    assert any(line.startswith("logs: ") for line in last)


def test_metrics_verdict_and_hung_nodes_are_told_once(cluster, lines):
    metrics = {"val_loss": 2.0, "accuracy": 0.5, "loss": 1.5}
    for step in (1, 2):
        report = MetricsReported(time_s=0.0, node="chief:0", step=step, total_steps=10, metrics=metrics)
        cluster.bus.publish(report)
    assert lines() == ["[chief:0] step 1/10 · loss 1.5 · accuracy 0.5 · val_loss 2"]
    cluster.set_state("running")
    cluster.change("worker:0", state="running")
    lines()
    cluster.alter(verdict="waits for rows 62 % of the time", progress=0.25, seconds_left=90.0)
    cluster.change("worker:0", hung="no step for 60 s; last: step 3")
    told: list[str] = []
    eventually(lambda: told.extend(lines()) or len(told) >= 2)
    assert sorted(told) == [
        "[mnist] 25 % · 1:30 left · waits for rows 62 % of the time",
        "[worker:0] hangs: no step for 60 s; last: step 3",
    ]


def test_in_the_background_only_the_beginning_and_the_end_are_written(cluster, capsys):
    shown = open_display(cluster, interactive=False, blocking=False)
    assert capsys.readouterr().out == "[mnist] runs in the background; %tfos shows its state\n"
    cluster.write("chief:0", "one\n")
    shown.poll()
    assert capsys.readouterr().out == ""
    shown.close()
