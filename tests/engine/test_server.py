"""The driver's thread: which message goes where, what it answers, and what an error of its own does."""

from __future__ import annotations

import threading

import pytest

from tests.support.fake_nodes import FakeListener, identity_of, until
from tfos_lab import messages as m
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.roles import assign_roles
from tfos_lab.engine.bus import Bus
from tfos_lab.engine.generation_maker import RunServices
from tfos_lab.engine.history import History
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.server import Server
from tfos_lab.engine.state.cluster_state import ClusterState
from tfos_lab.engine.state.events import LogText, MetricsReported
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.hangs import Hangs
from tfos_lab.engine.state.unread import UnreadWatch

pytestmark = pytest.mark.leaves_nothing


class Stand:
    """A server of two nodes, and what it was asked to do."""

    def __init__(self, folder, nodes=2):
        config = ClusterConfig(cluster_size=nodes)
        specs = assign_roles(config)
        history = History(0.0)
        self.bus = Bus(history.record)
        self.events = self.bus.subscribe()
        services = RunServices.make(config, RunDir(folder), history=history, bus=self.bus)
        self.folder = folder
        self.listener = FakeListener()
        self.state = ClusterState(specs, grace_s=1.0)
        feed_state = FeedState({spec.rank: spec.node for spec in specs}, lock_step=True, resumes=False)
        self.saves, self.gone, self.started = [], [], []
        self.over = threading.Event()
        self.server = Server(
            cluster_id="stand",
            listener=self.listener,
            cluster_state=self.state,
            feed_state=feed_state,
            hangs=Hangs(self.state, list, timeout_s=0.0, fails=False),
            unread=UnreadWatch(self.state, feed_state, warn_s=0.0),
            bus=self.bus,
            logs=services.log_writer,
            event_files=services.event_files,
            output=services.output,
            cells=services.cells,
            tunnel=None,
            make_start=self.make_start,
            on_saving=lambda saving, node: self.saves.append((saving.path, node.node)),
        )

    def make_start(self, rank, spec):
        self.started.append(rank)
        spec_of = {"job_name": "worker", "task_index": 0, "is_chief": False, "payload": b"", "env": {}, "log_dir": ""}
        return m.Start(cluster_id="stand", rank=rank, cluster_spec=spec, **spec_of)

    def start(self):
        self.server.start(on_executor_gone=self.gone.append, on_over=self.over.set)

    def deliver(self, message, identity=None):
        self.listener.deliver(identity or identity_of(message.rank), message)

    def reserve(self, rank, identity=None):
        self.deliver(m.Reserve(rank, "host", f"host:{rank}", 1, f"e{rank}", []), identity)

    def settle(self):
        """Wait until all that was delivered has been handled."""
        done = threading.Event()
        self.server.request(lambda _now_s: done.set() or [])
        assert done.wait(60)


@pytest.fixture
def nodes():
    return 2


@pytest.fixture
def stand(tmp_path, nodes):
    stand = Stand(tmp_path, nodes)
    stand.start()
    yield stand
    stand.server.request(stand.state.stop)
    stand.server.request(stand.state.give_up)
    stand.server.join(60)
    assert stand.over.is_set()


def test_nodes_are_told_to_start_when_all_have_reserved(stand):
    stand.reserve(0)
    stand.settle()
    assert stand.started == []
    stand.reserve(1)
    until(lambda: stand.listener.sent_to(identity_of(1)) == ["Start"])
    assert stand.started == [0, 1]


def test_it_can_be_started_twice(stand):
    stand.start()
    stand.reserve(0)
    stand.settle()
    assert len(stand.listener.sent) == 0


def test_a_retried_task_takes_the_rank_until_the_nodes_have_started(stand):
    stand.reserve(1, b"first/1")
    stand.reserve(1, b"second/1")
    stand.reserve(0)
    until(lambda: stand.listener.sent_to(b"second/1") == ["Start"])
    assert stand.listener.sent_to(b"first/1") == []
    stand.deliver(m.Progressed(rank=1, state="running"), b"second/1")
    stand.reserve(1, b"third/1")
    until(lambda: stand.listener.sent_to(b"third/1") == ["Stop", "Shutdown"])
    assert stand.listener.sent_to(b"second/1") == ["Start"]


def test_a_reservation_that_is_repeated_is_answered_and_changes_nothing(stand):
    for _ in range(2):
        stand.reserve(1)
    until(lambda: stand.listener.sent_to(identity_of(1)) == ["HeartbeatAck"])
    stand.reserve(0)
    until(lambda: stand.listener.sent_to(identity_of(1)) == ["HeartbeatAck", "Start"])
    stand.deliver(m.Progressed(rank=1, state="running"))
    stand.reserve(1)
    until(lambda: stand.listener.sent_to(identity_of(1)) == ["HeartbeatAck", "Start", "HeartbeatAck"])
    assert stand.state.view_of(1).state == "running"
    assert sorted(stand.started) == [0, 1]


def test_a_task_whose_rank_another_has_taken_does_not_take_it_back(stand):
    for identity, port in ((b"first/1", 1), (b"second/1", 2), (b"first/1", 1)):
        stand.deliver(m.Reserve(1, "host", f"host:{port}", 1, "e1", []), identity)
    until(lambda: stand.listener.sent_to(b"first/1") == ["Stop", "Shutdown"])
    assert stand.state.view_of(1).address == "host:2"


@pytest.mark.parametrize("nodes", [65])
def test_the_addresses_of_many_nodes_are_sent_beside_their_start_messages(stand):
    for rank in range(65):
        stand.reserve(rank)
    until(lambda: len(stand.started) == 65 and len(stand.listener.sent) == 130)
    assert {tuple(stand.listener.sent_to(identity_of(rank))) for rank in range(65)} == {("ClusterSpec", "Start")}
    specs = [message for _, message in stand.listener.sent if isinstance(message, m.ClusterSpec)]
    assert sum(map(len, specs[0].addresses.values())) == 65
    assert all(message.cluster_spec == {} for _, message in stand.listener.sent if isinstance(message, m.Start))


def test_figures_that_come_together_count_as_if_each_came_alone(stand):
    run_both(stand)
    reports = [m.Reported(1, step, None, {"loss": 1.0 / step}, float(step)) for step in (1, 2)]
    stand.deliver(m.Figures(1, [*reports, m.Activity(1, step=2, cpu=0.5), m.Heartbeat(1)]))
    stand.settle()
    view = stand.state.view_of(1)
    assert (view.step, view.metrics, view.activity.cpu) == (2, {"loss": 0.5}, 0.5)
    assert stand.listener.sent_to(identity_of(1))[-1] == "HeartbeatAck"
    reported = [event.step for event in stand.events.take() if isinstance(event, MetricsReported)]
    assert reported == [1, 2]


def log_of(sequence, text):
    return m.Logs(1, sequence, [m.LogRecord(1.0, "stdout", text)])


def test_logs_that_come_with_a_heartbeat_are_stored_once_and_in_order_and_one_credit_answers_all(stand):
    run_both(stand)
    stand.listener.sent.clear()
    first, second, third = (log_of(n, text) for n, text in enumerate((b"a\n", b"b\n", b"c\n")))
    stand.deliver(first)
    stand.deliver(m.Figures(1, [first, second, m.Reported(1, 1, None, {"loss": 1.0}, 1.0), third, m.Heartbeat(1)]))
    stand.deliver(m.Figures(1, [second, m.Heartbeat(1)]))  # its acknowledgement was lost
    stand.settle()
    assert (stand.folder / "worker-0.log").read_text() == "a\nb\nc\n"
    assert "".join(event.text for event in stand.events.take() if isinstance(event, LogText)) == "a\nb\nc\n"
    answers = [message for identity, message in stand.listener.sent if identity == identity_of(1)]
    assert answers == [m.LogCredit(0), m.LogCredit(2), m.LogCredit(1)]


def test_who_has_not_reserved_is_sent_away(stand):
    stand.deliver(m.Heartbeat(rank=0), b"stranger/0")
    until(lambda: stand.listener.sent_to(b"stranger/0") == ["Stop", "Shutdown"])


def test_a_rank_that_does_not_exist_changes_nothing(stand):
    stand.reserve(7)
    stand.reserve(0)
    stand.settle()
    assert stand.state.state == "reserving"


def test_a_message_that_cannot_be_decoded_is_dropped(stand, caplog):
    stand.listener.post((b"agent/0", b"\xc1 nonsense"))
    stand.settle()
    assert "cannot be decoded" in caplog.text
    assert stand.state.state == "launching"


def test_logs_are_stored_once_shown_once_and_acknowledged_each_time(stand):
    stand.reserve(0)
    batch = m.Logs(rank=0, sequence=0, records=[m.LogRecord(1.0, "stdout", b"hello\n")])
    stand.deliver(batch)
    stand.deliver(batch)  # its acknowledgement was lost
    until(lambda: stand.listener.sent_to(identity_of(0)) == ["LogCredit", "LogCredit"])
    assert (stand.folder / "chief-0.log").read_text() == "hello\n"
    assert [event.text for event in stand.events.take() if isinstance(event, LogText)] == ["hello\n"]


def test_where_the_chief_saves_and_which_executor_ended_is_passed_on(stand):
    stand.reserve(0)
    stand.deliver(m.SavesTo(rank=0, path="/data/model"))
    stand.deliver(m.ExecutorGone(rank=0))
    stand.settle()
    assert stand.saves == [("/data/model", "chief:0")]
    assert stand.gone == ["e0"]


def test_an_error_of_its_own_fails_the_cluster_instead_of_hanging_it(stand, caplog):
    def broken(_now_s):
        raise ZeroDivisionError("a bug")

    stand.server.request(broken)
    until(lambda: stand.state.state == "failed")
    assert (stand.state.causes.first.node, stand.state.causes.first.kind) == ("driver", "ZeroDivisionError")
    assert "could not handle" in caplog.text


def test_the_end_closes_the_listener_and_is_reported_once(stand):
    stand.server.request(stand.state.stop)
    assert stand.over.wait(60)
    assert stand.listener.closed
    assert stand.server.over.is_set()


def run_both(stand):
    """Have both nodes reserve and run."""
    for rank in (0, 1):
        stand.reserve(rank)
    for rank in (0, 1):
        stand.deliver(m.Progressed(rank=rank, state="running", pid=1))
    stand.settle()
    assert stand.state.state == "running"


NOT_SENT = [
    (m.encode(m.FeedReady(rank=1, feed=3, locations=[])), "FeedReady (feed 3 does not exist)"),
    (m.encode(m.Heartbeat(rank=0)), "Heartbeat (in the name of rank 0)"),
    (m.encode(m.Heartbeat(rank=-1)), "Heartbeat (there is no rank -1)"),
    (m.encode(m.Heartbeat(rank=2**40)), "Heartbeat (there is no rank 1099511627776)"),
    (m.encode(m.Reserve(0, "host", "host:0", 1, "e0", [])), "Reserve (in the name of rank 0)"),
    (m.encode(m.Figures(1, [m.Heartbeat(0)])), "Figures (figures of rank 0)"),
    (b"\xc1 nonsense", "a message that cannot be decoded"),
    (b"", "a message that cannot be decoded"),
]


@pytest.mark.parametrize(("data", "what"), NOT_SENT, ids=[what for _, what in NOT_SENT])
def test_a_node_that_sends_what_no_node_sends_fails_by_itself(stand, data, what):
    run_both(stand)
    stand.listener.post((identity_of(1), data))
    stand.settle()
    assert stand.state.state == "failed"
    cause = stand.state.causes.first
    assert (cause.node, cause.kind) == ("worker:0", "Refused")
    assert cause.message.startswith(f"worker:0 sent what no node sends: {what}")
    assert cause.message.endswith("; it was refused")
    assert stand.listener.sent_to(identity_of(1))[-2:] in (["Stop", "Shutdown"], ["Shutdown", "Stop"])
    assert [view.state for view in stand.state.views] == ["running", "failed"]


def test_a_message_that_cannot_be_handled_is_its_sender_s_failure(stand, monkeypatch, caplog):
    def handle(*_):
        raise IndexError("list index out of range")

    run_both(stand)
    monkeypatch.setattr(stand.server._feed_state, "handle", handle)
    stand.deliver(m.FeedStopped(rank=1))
    stand.settle()
    assert stand.state.state == "failed"
    cause = stand.state.causes.first
    assert (cause.node, cause.kind) == ("worker:0", "Refused")
    assert "what no node sends: FeedStopped (IndexError: " in cause.message
    assert "cannot be handled" in caplog.text


def test_nothing_more_is_taken_from_a_node_that_was_refused(stand):
    run_both(stand)
    stand.listener.post((identity_of(1), b"nonsense"))
    stand.deliver(m.Reported(1, 5, None, {"loss": 1.0}, 1.0))
    stand.reserve(1)
    stand.deliver(m.Logs(1, 0, [m.LogRecord(1.0, "stdout", b"hello\n")]))
    stand.settle()
    view = stand.state.views[1]
    assert (view.state, view.step) == ("failed", None)
    assert not (stand.folder / "worker-0.log").exists()
    stand.deliver(m.Drained(rank=0))
    assert stand.over.wait(60)


def test_a_node_that_is_refused_after_its_end_has_ended_well(stand):
    run_both(stand)
    for rank in (0, 1):
        stand.deliver(m.Ended(rank, m.Outcome("returned", value=b"")))
    stand.listener.post((identity_of(1), b"nonsense"))
    stand.deliver(m.Drained(rank=0))
    assert stand.over.wait(60)
    assert stand.state.state == "done"


def test_a_stranger_with_keys_cannot_end_a_node(stand):
    run_both(stand)
    for data in (b"nonsense", m.encode(m.Reserve(7, "h", "h:7", 1, "e7", [])), m.encode(m.Ended(1, m.Outcome("no")))):
        stand.listener.post((b"stranger", data))
    stand.settle()
    assert stand.state.state == "running"
    assert stand.listener.sent_to(b"stranger") == ["Stop", "Shutdown"] * 3
