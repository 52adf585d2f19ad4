"""The live dashboard, seen from the kernel: what it sends and receives, and that it leaves nothing behind."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm

from tests.support.fake_cluster import FakeCluster
from tfos_lab.engine.state.events import MetricsReported
from tfos_lab.jupyter.display import dashboard, updates, widget
from tfos_lab.jupyter.display.dashboard import Dashboard
from tfos_lab.jupyter.display.runs import plain_text

DEADLINE_S = 5.0


class Browser:
    """Replaces the kernel's messaging: keeps what would be sent to a browser."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.buffers: list[bytes] = []
        self.outputs: list[tuple[str, Any, str]] = []
        self.comms: list[BaseComm] = []

    def create_comm(self, **options: Any) -> BaseComm:
        browser = self

        class RecordingComm(BaseComm):
            # As in ipykernel 7.4: decides where incoming messages are handled.
            def _reply_subshell_for(self, data: object, default: object) -> object:
                raise AssertionError("messages must go where the front end sent them")

            def publish_msg(self, msg_type: str, data: Any = None, **rest: Any) -> None:
                json.dumps(data, allow_nan=False)
                if msg_type == "comm_msg":
                    browser.messages.append(data)
                    browser.buffers += rest.get("buffers") or []

        made = RecordingComm(**options)
        self.comms.append(made)
        return made

    def show(self, kind: str, shown: Any, display_id: str, metadata: dict[str, Any]) -> None:
        assert metadata == {"tfos_lab": {"display": display_id}}, "by this a page finds the output again"
        self.outputs.append((kind, shown, display_id))

    def send(self, content: dict[str, Any]) -> None:
        message = {"content": {"data": {"method": "custom", "content": content}}, "buffers": []}
        self.comm.handle_msg(message)

    @property
    def comm(self) -> BaseComm:
        """The dashboard's own; the widget's layout has one too."""
        return self.comms[-1]

    def views(self) -> list[dict[str, Any]]:
        updates = [message["state"] for message in list(self.messages) if message["method"] == "update"]
        return [update["view"] for update in updates if "view" in update]

    def customs(self, kind: str) -> list[dict[str, Any]]:
        contents = [message["content"] for message in list(self.messages) if message["method"] == "custom"]
        return [content for content in contents if content["kind"] == kind]

    def text(self) -> str:
        return "".join(plain_text(chunk["runs"]) for batch in self.customs("log") for chunk in batch["chunks"])


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Browser:
    made = Browser()
    monkeypatch.setattr(comm, "create_comm", made.create_comm)
    monkeypatch.setattr(
        dashboard, "display", lambda shown, *, display_id, metadata: made.show("display", shown, display_id, metadata)
    )
    monkeypatch.setattr(
        dashboard,
        "update_display",
        lambda shown, *, display_id, raw, metadata: made.show("update", shown, display_id, metadata),
    )
    return made


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(nodes=2)


@pytest.fixture
def shown(browser: Browser, cluster: FakeCluster) -> Iterator[Dashboard]:
    with Dashboard(cluster) as made:
        yield made


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


def test_the_view_is_sent_with_the_widget_and_whenever_it_changes(
    browser: Browser, cluster: FakeCluster, shown: Dashboard
) -> None:
    [(kind, widget, _)] = browser.outputs
    assert kind == "display"
    assert widget.view["headline"] == "0/2 nodes reserved"
    cluster.change("chief:0", state="reserved", host="h1", metrics={"loss": float("nan")})
    wait_for(lambda: browser.views() and browser.views()[-1]["headline"] == "1/2 nodes reserved")
    [view] = [view for view in browser.views() if view["headline"] == "1/2 nodes reserved"]
    assert [column["title"] for column in view["columns"]] == ["Node", "State", "loss", "Host"]
    assert view["rows"][0]["cells"] == {"node": "chief:0", "state": "reserved", "metric loss": "nan", "host": "h1"}
    assert view["rows"][1]["heartbeat_s"] is None


def test_nothing_is_sent_while_nothing_changes(browser: Browser, cluster: FakeCluster, shown: Dashboard) -> None:
    cluster.write("chief:0", "x\n")
    cluster.change("chief:0", state="reserved")
    wait_for(lambda: browser.views() and browser.views()[-1]["rows"][0]["cells"].get("state") == "reserved")
    wait_for(lambda: browser.customs("log") and browser.customs("picture"))
    before = len(browser.messages)
    time.sleep(0.5)
    assert len(browser.messages) == before


def test_log_text_is_sent_as_messages_and_is_never_in_the_widget_s_state(
    browser: Browser, cluster: FakeCluster, shown: Dashboard
) -> None:
    cluster.write("chief:0", "secret \x1b[31mred\x1b[0m\nopen")
    wait_for(lambda: browser.customs("log"))
    [batch] = browser.customs("log")
    assert batch["chunks"][0]["runs"] == [("secret ", ""), ("red", "tfos-fg-red"), ("\n", "")]
    assert batch["open"] == {"chief:0": [("open", "")]}
    assert "secret" not in json.dumps(browser.outputs[0][1].get_state(), default=str)


def test_a_burst_is_sent_in_few_messages(browser: Browser, cluster: FakeCluster, shown: Dashboard) -> None:
    began_s = time.monotonic()
    for number in range(1000):
        cluster.write("chief:0", f"{number}\n")
    wait_for(lambda: browser.text().endswith("999\n"))
    elapsed_s = time.monotonic() - began_s
    assert len(browser.customs("log")) <= elapsed_s / 0.1 + 2, "ten a second"
    assert browser.text() == "".join(f"{number}\n" for number in range(1000))


def test_a_page_that_says_hello_gets_the_history(browser: Browser, cluster: FakeCluster, shown: Dashboard) -> None:
    cluster.write("chief:0", "early\n")
    wait_for(lambda: browser.customs("log"))
    browser.send({"kind": "hello", "page": "abc"})
    [history] = browser.customs("history")
    assert history["page"] == "abc"
    assert plain_text(history["chunks"][0]["runs"]) == "early\n"


def test_a_page_whose_messages_do_not_arrive_gets_the_history_unasked(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "UNREACHABLE_AFTER", 2)
    with Dashboard(cluster):
        wait_for(lambda: browser.customs("history"))
        assert [history["page"] for history in browser.customs("history")] == [""]


def report(cluster: FakeCluster, step: int, **metrics: float) -> None:
    cluster.bus.publish(
        MetricsReported(time_s=time.time(), node="chief:0", step=step, total_steps=None, metrics=metrics)
    )


def test_metrics_are_sent_as_points_of_series(browser: Browser, cluster: FakeCluster, shown: Dashboard) -> None:
    report(cluster, 1, loss=2.0)
    wait_for(lambda: browser.customs("metrics"))
    report(cluster, 2, loss=float("nan"))
    wait_for(lambda: len(browser.customs("metrics")) == 2)
    [[first], [second]] = [message["series"] for message in browser.customs("metrics")]
    assert (first["metric"], first["node"], first["fresh"]) == ("loss", "chief:0", True)
    assert second["points"][0][1:] == (2, None)
    browser.send({"kind": "hello", "page": "late"})
    [whole] = browser.customs("metrics")[-1]["series"]
    assert [point[1] for point in whole["points"]] == [1, 2]


def test_metrics_are_in_the_final_picture(browser: Browser, cluster: FakeCluster) -> None:
    made = Dashboard(cluster)
    report(cluster, 1, loss=2.0)
    made.close()
    assert 'aria-label="loss: chief:0 2"' in browser.outputs[-1][1]["text/html"]
    assert browser.customs("metrics"), "what came last is drawn before the end"


def test_a_page_fetches_a_log_file_piece_by_piece(browser: Browser, cluster: FakeCluster, shown: Dashboard) -> None:
    cluster.write("chief:0", "whole file\n")
    browser.send({"kind": "fetch", "page": "p", "node": "chief:0", "offset": 6})
    assert browser.customs("file") == [{"kind": "file", "page": "p", "node": "chief:0", "offset": 6, "size": 11}]
    assert browser.buffers == [b"file\n"]


@pytest.mark.parametrize("node", ["worker:9", "../../etc/passwd", ""])
def test_only_logs_of_nodes_can_be_fetched(browser: Browser, shown: Dashboard, node: str) -> None:
    browser.send({"kind": "fetch", "page": "p", "node": node, "offset": 0})
    assert not browser.customs("file")


def pictures(browser: Browser) -> list[str]:
    return [message["bundle"]["text/html"] for message in browser.customs("picture")]


def test_the_picture_in_the_document_follows_each_change_of_state(
    browser: Browser, cluster: FakeCluster, shown: Dashboard
) -> None:
    wait_for(lambda: pictures(browser))
    assert 'data-state="launching"' in pictures(browser)[0]
    cluster.set_state("running")
    wait_for(lambda: len(pictures(browser)) == 2)
    assert 'data-state="running"' in pictures(browser)[1]
    assert "Seen at " in pictures(browser)[1]
    [picture, _] = browser.customs("picture")
    assert picture["model"] == browser.comm.comm_id
    assert set(picture["bundle"]) == {"text/html", "text/plain"}


def test_no_picture_follows_the_end(browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Dashboard(cluster)
    page = threading.Thread(target=browser.send, args=[{"kind": "hello", "page": "p"}])
    make_bundle, begun, goes_on = made._updates._make_bundle, threading.Event(), threading.Event()

    def make_slowly() -> dict[str, str]:
        if threading.current_thread() is page:
            begun.set()
            goes_on.wait(DEADLINE_S)
        return make_bundle()

    monkeypatch.setattr(made._updates, "_make_bundle", make_slowly)
    page.start()
    assert begun.wait(DEADLINE_S)
    closing = threading.Thread(target=made.close)
    closing.start()
    closing.join(1.0)
    goes_on.set()
    for thread in (page, closing):
        thread.join(DEADLINE_S)
    assert browser.customs("picture"), "the page has asked while the run went on"
    sent = [message["content"]["kind"] for message in browser.messages if message["method"] == "custom"]
    assert sent[-1] == "end"
    made._updates.send_picture()
    assert browser.messages[-1]["content"]["kind"] == "end"


def test_the_picture_in_the_document_follows_steps_and_output(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "PICTURE_EVERY_S", 0.1)
    monkeypatch.setattr(updates, "PICTURE_SHARE", 1.0)
    with Dashboard(cluster):
        cluster.change("chief:0", step=183, state="running")
        wait_for(lambda: pictures(browser) and ">183<" in pictures(browser)[-1])
        cluster.write("chief:0", "at step 183\n")
        wait_for(lambda: "at step 183" in pictures(browser)[-1])
        count = len(pictures(browser))
        time.sleep(0.5)
        assert len(pictures(browser)) == count, "nothing has changed"


def test_pictures_take_a_small_share_of_the_time(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "PICTURE_EVERY_S", 0.0)
    monkeypatch.setattr(updates, "PICTURE_SHARE", 1e-6)
    with Dashboard(cluster):
        wait_for(lambda: pictures(browser))
        cluster.change("chief:0", step=2)
        time.sleep(0.5)
        assert len(pictures(browser)) == 1


def test_a_page_that_says_hello_gets_the_picture(browser: Browser, cluster: FakeCluster, shown: Dashboard) -> None:
    wait_for(lambda: pictures(browser))
    browser.send({"kind": "hello", "page": "abc"})
    assert len(pictures(browser)) == 2


def test_a_page_gets_signs_of_life_when_nothing_happens(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "SIGN_OF_LIFE_S", 0.1)
    with Dashboard(cluster):
        wait_for(lambda: len(browser.views()) > 2)


def test_stacks_are_asked_for_and_stay_in_the_notebook(browser: Browser, cluster: FakeCluster) -> None:
    with Dashboard(cluster):
        browser.send({"kind": "stacks", "node": "worker:0"})
        wait_for(lambda: browser.customs("stacks"))
        [answer] = browser.customs("stacks")
        assert (answer["node"], "MainThread of worker:0" in answer["text"]) == ("worker:0", True)
        browser.send({"kind": "hello", "page": "late"})
        assert len(browser.customs("stacks")) == 2, "a page that loads later has them, too"
    assert "MainThread of worker:0" in browser.outputs[-1][1]["text/html"]


def test_stop_reaches_the_cluster_from_any_thread_without_waiting(
    browser: Browser, cluster: FakeCluster, shown: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = threading.Event(), threading.Event()

    def stop() -> None:
        asked.set()
        answer.wait(DEADLINE_S)

    monkeypatch.setattr(cluster, "stop", stop)
    browser.send({"kind": "stop"})
    assert asked.wait(DEADLINE_S)
    browser.send({"kind": "stop"})
    assert [thread.name for thread in threading.enumerate()].count(f"tfos-stop-{cluster.id}") == 1
    answer.set()


@pytest.mark.parametrize("rubbish", [{}, {"kind": "dance"}, {"kind": "hello"}, {"kind": "hello", "page": 1}, [], "x"])
def test_rubbish_from_a_page_is_ignored(browser: Browser, shown: Dashboard, rubbish: Any) -> None:
    browser.send(rubbish)
    assert not browser.customs("history")


def test_messages_arrive_while_a_cell_blocks(browser: Browser, shown: Dashboard) -> None:
    assert browser.comm._reply_subshell_for is None


def test_the_end_replaces_the_widget_by_the_static_bundle(browser: Browser, cluster: FakeCluster) -> None:
    made = Dashboard(cluster)
    cluster.write("chief:0", "last line\n")
    cluster.set_state("done")
    made.close()
    made.close()
    assert browser.text() == "last line\n"
    assert browser.views()[-1]["state"] == "done"
    [(_, _, shown_id), (kind, bundle, replaced_id)] = browser.outputs
    assert kind == "update"
    assert replaced_id == shown_id
    assert set(bundle) == {"text/html", "text/plain"}
    assert "last line" in bundle["text/html"]


def test_a_page_that_was_reloaded_gets_the_end(browser: Browser, cluster: FakeCluster) -> None:
    made = Dashboard(cluster)
    made.close()
    browser.send({"kind": "hello", "page": "late"})
    first, second = browser.customs("end")
    assert first == second
    assert first["model"] == browser.comm.comm_id
    assert first["bundle"] == browser.outputs[-1][1]
    assert not browser.customs("history")


def test_widgets_that_have_ended_are_closed_later(browser: Browser, cluster: FakeCluster) -> None:
    first = Dashboard(cluster)
    first.close()
    comms = list(browser.comms)
    assert not comms[-1]._closed
    for _ in range(widget.KEEP_RETIRED):
        Dashboard(cluster).close()
    assert all(made._closed for made in comms)


def test_nothing_is_left_behind(browser: Browser, cluster: FakeCluster) -> None:
    made = Dashboard(cluster)
    names = [thread.name for thread in threading.enumerate()]
    assert f"tfos-display-{cluster.id}" in names
    browser.send({"kind": "stop"})
    made.close()
    assert not [thread.name for thread in threading.enumerate() if cluster.id in thread.name and "tfos-" in thread.name]
    assert not cluster.bus._subscriptions


def test_in_the_background_it_closes_itself(browser: Browser, cluster: FakeCluster) -> None:
    made = Dashboard(cluster, blocking=False)
    cluster.write("chief:0", "text\n")
    cluster.set_state("done")
    wait_for(lambda: browser.customs("end"))
    assert [kind for kind, _, _ in browser.outputs] == ["display", "update"]
    made.close()
    wait_for(lambda: not [thread for thread in threading.enumerate() if cluster.id in thread.name])


@pytest.mark.parametrize("blocking", [True, False])
def test_in_the_background_the_picture_explains_the_failure(
    browser: Browser, cluster: FakeCluster, *, blocking: bool
) -> None:
    made = Dashboard(cluster, blocking=blocking)
    cluster.set_state("failed", "worker:0: ValueError: no")
    wait_for(lambda: browser.views() and browser.views()[-1]["state"] == "failed")
    made.close()
    wait_for(lambda: browser.customs("end"))
    bundle = browser.outputs[-1][1]
    assert ("Cell In[1], line 2" in bundle["text/html"]) is not blocking, "a cell that waits raises it itself"
    assert bundle["text/plain"].endswith("ValueError: no") is not blocking


def test_an_error_in_one_update_does_not_end_the_others(
    browser: Browser, cluster: FakeCluster, shown: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = cluster.view
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise OSError("for a moment")

    monkeypatch.setattr(cluster, "view", fail)
    assert failed.wait(DEADLINE_S)
    monkeypatch.setattr(cluster, "view", view)
    cluster.change("chief:0", state="reserved")
    wait_for(browser.views)


def test_a_second_interrupt_while_closing_leaves_no_widget_behind(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Dashboard(cluster)
    join = made._pump.join

    def interrupted(timeout: float) -> None:
        join(timeout)
        raise KeyboardInterrupt

    monkeypatch.setattr(made._pump, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.close()
    assert browser.outputs[-1][0] == "update"
    assert browser.customs("end")


def test_a_front_end_without_widgets_has_something_to_show(browser: Browser, shown: Dashboard) -> None:
    widget = browser.outputs[0][1]
    data, _ = widget._repr_mimebundle_()
    assert "0/2 nodes reserved" in data["text/html"]
    assert data["text/plain"].startswith("○ mnist: launching")
    assert "application/vnd.jupyter.widget-view+json" in data
