"""The state machine of a cluster, from the first reservation to the last shutdown: messages in, effects out."""

import pytest

from tfos_lab import ClusterConfig
from tfos_lab.core import messages as m
from tfos_lab.core.config import assign_roles
from tfos_lab.driver.state.cluster_state import (
    DRAIN_TIMEOUT_S,
    FAREWELL_S,
    LEAVING_PATIENCE_S,
    LOST_AFTER_S,
    MOVES,
    ClusterState,
    RestartBudget,
)
from tfos_lab.driver.state.events import MetricsReported
from tfos_lab.driver.state.instructions import Failure, Finished, Publish, SendTo, StartAll

GRACE_S = 3.0
CONSEQUENCE_PATIENCE_S = 2.5  # for as long an error that others may have caused waits for its cause
BOOM = m.Outcome(kind="raised", error="ValueError", message="boom\nsecond line", traceback="File x, line 1")
ECHO = m.Outcome(kind="raised", error="UnavailableError", message="Collective aborted", consequence=True)
KILLED = m.Outcome(kind="exited", exit_code=-9)


class Play:
    """A cluster state with its own clock, which keeps the instructions of the last step."""

    def __init__(self, **options):
        self.ranks = assign_roles(ClusterConfig(**options))
        self.restarts = RestartBudget(options.get("restarts", 0))
        self.cluster_state = ClusterState(self.ranks, grace_s=GRACE_S, restarts=self.restarts)
        self.now_s = 1000.0
        self.asked = []

    def receive(self, message, *, after_s=0.1):
        self.now_s += after_s
        self.asked = self.cluster_state.handle(message, self.now_s)
        return self

    def wait(self, seconds):
        self.now_s += seconds
        self.asked = self.cluster_state.tick(self.now_s)
        return self

    def reserve(self, rank):
        return self.receive(m.Reserve(f"host{rank}", f"host{rank}:900{rank}", 100, str(rank), [], rank=rank))

    def end(self, rank, outcome, **when):
        return self.receive(m.Ended(rank=rank, outcome=outcome), **when)

    def returns(self, rank):
        return self.end(rank, m.Outcome(kind="returned", value=b"x"))

    def drain(self, *ranks):
        for rank in ranks:
            self.receive(m.Drained(rank=rank))
        return self

    def all_reserve(self):
        for rank in range(len(self.ranks)):
            self.reserve(rank)
        return self

    def all_run(self):
        self.all_reserve()
        for rank in range(len(self.ranks)):
            self.receive(m.Progressed(rank=rank, state="running", pid=200 + rank))
        return self

    def states(self):
        return {view.name: view.state for view in self.cluster_state.views}

    def sent(self, kind):
        """Ranks that were sent a message of this kind in the last step."""
        return [rank for i in self.asked if isinstance(i, SendTo) and isinstance(i.message, kind) for rank in i.each]

    def published(self, kind):
        return [i.event for i in self.asked if isinstance(i, Publish) and isinstance(i.event, kind)]

    @property
    def is_over(self):
        return Finished() in self.asked


# ---- what nodes report --------------------------------------------------------------------------------------------


def test_a_report_of_a_node_whose_clock_is_two_minutes_off_has_the_driver_s_time():
    play = Play(cluster_size=1).all_run()
    play.receive(m.Reported(rank=0, step=1, total_steps=10, metrics={}, time_s=play.now_s + 120))
    (event,) = play.published(MetricsReported)
    assert event.time_s == pytest.approx(play.now_s, abs=1.0)


@pytest.mark.parametrize(("first", "at_the_end"), [(0, 10), (1, 9)])
def test_a_loop_that_counts_its_steps_from_0_has_done_all_of_them(first, at_the_end):
    play = Play(cluster_size=1).all_run()
    for step in range(first, 10):
        play.receive(m.Reported(rank=0, step=step, total_steps=10, metrics={}, time_s=play.now_s))
    assert play.cluster_state.view_of(0).step == 9
    play.returns(0)
    assert play.cluster_state.view_of(0).step == at_the_end


# ---- good ends ----------------------------------------------------------------------------------------------------


def test_an_evaluator_that_returns_early_ends_nothing():
    play = Play(cluster_size=3, evaluator=True).all_run()
    play.returns(1)
    assert play.sent(m.Finish) == []
    assert play.cluster_state.state == "running"


def test_an_evaluator_goes_on_for_as_long_as_it_is_given_also_after_the_others():
    play = Play(cluster_size=3, evaluator=True).all_run()
    for rank in (0, 2):
        play.returns(rank)
    assert [sent.message.grace_s for sent in play.asked if isinstance(sent, SendTo)] == [GRACE_S] * 3
    play.asked = play.cluster_state.let_evaluator_go_on(play.now_s, 60.0)
    assert play.asked == [SendTo(1, m.Finish(grace_s=60.0))]
    assert not play.wait(40.0).is_over


ORPHANED = m.Outcome(kind="exited", message="the process it was forked from has ended", exit_code=-9, orphaned=True)


def test_what_follows_from_the_end_of_an_executor_waits_for_spark_s_reason():
    aborted = m.Outcome(kind="raised", error="UnavailableError", message="aborted", consequence=True)
    play = Play(cluster_size=3).all_run()
    play.cluster_state.expect_loss()
    play.end(1, ORPHANED).end(2, aborted)
    play.wait(LEAVING_PATIENCE_S - 1.0)
    assert play.cluster_state.causes.first is None
    play.cluster_state.lose(1, "Command exited with code 137", play.now_s)
    causes = play.cluster_state.causes
    assert (causes.first.node, causes.first.kind) == ("worker:0", "Lost")
    assert list(causes.consequences) == ["worker:1"]


def test_how_a_node_has_ended_first_counts():
    play = Play(cluster_size=2).all_run().returns(1).end(1, BOOM)
    assert (play.asked, play.states()["worker:0"]) == ([], "done")
    assert play.cluster_state.outcomes["worker:0"].kind == "returned"


def test_nodes_have_the_time_that_stop_was_given():
    play = Play(cluster_size=2).all_run()
    play.cluster_state.stop(play.now_s, grace_s=60.0)
    play.wait(GRACE_S + 30.0)
    assert not play.is_over
    play.wait(60.0)
    assert play.is_over


@pytest.mark.parametrize("lost", [False, True])
def test_training_begins_though_the_evaluator_has_failed_before_its_function_ran(lost):
    play = Play(cluster_size=2, evaluator=True).all_reserve()
    play.receive(m.Progressed(rank=0, state="running", pid=5)).receive(m.Progressed(rank=1, state="importing"))
    assert play.cluster_state.state == "starting"
    if lost:
        play.cluster_state.lose(1, "its agent has ended", play.now_s)
    else:
        play.end(1, KILLED)
    assert play.cluster_state.state == "running"
    assert play.returns(0).drain(0, 1).cluster_state.state == "done"


def test_training_begins_though_the_evaluator_is_lost_as_the_last_one_that_has_not_reserved():
    play = Play(cluster_size=2, evaluator=True).reserve(0)
    asked = play.cluster_state.lose(1, "its agent has ended", play.now_s)
    assert StartAll({"chief": ["host0:9000"], "evaluator": [""]}) in asked
    assert play.receive(m.Progressed(rank=0, state="running", pid=5)).cluster_state.state == "running"


# ---- failures -----------------------------------------------------------------------------------------------------


def test_a_consequence_without_a_cause_becomes_the_cause():
    play = Play(cluster_size=2).all_run().end(0, ECHO)
    play.wait(CONSEQUENCE_PATIENCE_S / 2)
    assert play.cluster_state.causes.first is None
    play.receive(m.Heartbeat(rank=1)).wait(CONSEQUENCE_PATIENCE_S)
    assert play.cluster_state.causes.first == Failure("chief:0", "UnavailableError", "Collective aborted", gone=True)
    assert play.sent(m.Stop) == [0, 1]


def serving(**options):
    """Return a cluster of a ps, a chief and workers that serve the chief."""
    play = Play(**{"cluster_size": 4, "num_ps": 1, "restarts": 2, **options}).all_reserve()
    play.receive(m.Progressed(rank=1, state="running", pid=201))
    for rank in (0, 2, 3):
        play.receive(m.Progressed(rank=rank, state="serving", pid=200 + rank))
    assert play.cluster_state.state == "running"
    return play


def test_one_that_exits_with_an_error_or_is_killed_again_while_it_starts_is_started_again_too():
    play = serving(restarts=3).end(2, m.Outcome(kind="exited", exit_code=3))
    assert play.sent(m.StartAgain) == [2]
    assert play.end(2, KILLED).sent(m.StartAgain) == [2]
    assert play.end(3, BOOM).sent(m.StartAgain) == [3]
    assert play.restarts.used == 3
    play.receive(m.Progressed(rank=2, state="serving")).end(2, m.Outcome(kind="exited", exit_code=3))
    assert (play.cluster_state.state, play.sent(m.StartAgain)) == ("failed", [])
    assert (play.cluster_state.causes.first.node, play.cluster_state.causes.first.kind) == ("worker:0", "Exited")


def test_a_worker_whose_agent_is_gone_takes_its_address_with_it_so_all_start_again():
    play = serving()
    play.asked = play.cluster_state.lose(2, "its executor is gone", play.now_s)
    assert (play.cluster_state.state, play.sent(m.StartAgain)) == ("restarting", [])


def test_an_error_that_a_lost_worker_has_caused_on_the_chief_is_its_consequence():
    play = serving().end(2, KILLED).end(1, ECHO)
    assert play.cluster_state.state == "restarting"
    assert play.cluster_state.causes.first.node == "worker:0"
    assert list(play.cluster_state.causes.consequences) == ["chief:0"]

    play = serving().end(1, ECHO).end(2, KILLED)
    assert (play.cluster_state.state, play.sent(m.StartAgain)) == ("restarting", [])
    assert play.cluster_state.causes.first.node == "worker:0"

    play = serving().end(2, KILLED).receive(m.Progressed(rank=2, state="serving")).end(1, ECHO)
    assert play.cluster_state.state == "running"
    assert play.wait(2 * CONSEQUENCE_PATIENCE_S).cluster_state.causes.first.node == "chief:0"


def test_a_worker_that_is_killed_while_the_cluster_ends_is_not_started_again():
    play = serving().returns(1).end(2, KILLED)
    assert play.sent(m.StartAgain) == []
    play = serving()
    play.cluster_state.stop(play.now_s)
    assert play.end(2, KILLED).sent(m.StartAgain) == []


def test_consequences_on_all_nodes_fail_the_cluster_without_waiting():
    play = Play(cluster_size=2).all_run().end(0, ECHO).end(1, ECHO)
    assert play.cluster_state.state == "failed"
    assert len(play.cluster_state.causes.consequences) == 1


def test_stop_messages_of_a_failed_cluster_hold_the_reason():
    def reasons(play):
        return {message.message.reason for message in play.asked if isinstance(getattr(message, "message", 0), m.Stop)}

    assert reasons(Play(cluster_size=2).all_run().end(0, BOOM)) == {"chief:0: ValueError: boom"}
    assert reasons(Play(cluster_size=2, restarts=1).all_run().end(0, KILLED)) == {""}


def test_a_node_that_is_ended_for_what_it_has_done_has_failed_and_the_others_were_stopped():
    play = Play(cluster_size=2).all_run()
    hung = Failure("worker:0", "Hung", "no step for 60 s")
    play.cluster_state.fail(hung, play.now_s)
    for rank in (0, 1):
        play.end(rank, m.Outcome(kind="stopped"))
    assert play.states() == {"chief:0": "stopped", "worker:0": "failed"}


def test_nodes_that_wait_for_rows_of_a_failed_feed_have_all_been_stopped():
    play = Play(cluster_size=3).all_run()
    play.cluster_state.fail(Failure("feed", "FeedError", "a null"), play.now_s)
    play.end(0, m.Outcome(kind="raised", error="FeedError", message="a null"))
    play.end(1, m.Outcome(kind="stopped")).end(2, ECHO)
    assert set(play.states().values()) == {"stopped"}
    assert (play.cluster_state.causes.also, play.cluster_state.causes.consequences) == ([], {})


def test_the_same_error_on_other_nodes_is_one_error():
    of_another_row = m.Outcome(kind="raised", error="ValueError", message="boom 2")
    play = Play(cluster_size=3).all_run().end(0, BOOM).end(1, of_another_row).end(2, KILLED)
    assert play.cluster_state.causes.also == ["worker:0"]
    assert list(play.cluster_state.causes.consequences) == ["worker:1"]


def test_a_silent_node_is_lost_and_named_with_its_host():
    play = Play(cluster_size=2).all_run()
    for _ in range(int(LOST_AFTER_S) + 1):
        play.receive(m.Heartbeat(rank=0), after_s=1.0).wait(0)
    assert play.states()["worker:0"] == "lost"
    failure = play.cluster_state.causes.first
    assert (failure.node, failure.kind) == ("worker:0", "Lost")
    assert failure.message == "the node on host1 (executor 1) is gone: not heard of for 5 s"


# ---- output from other hosts --------------------------------------------------------------------------------------


def piece(rank=0):
    return m.FilePiece("output", "model.keras", 0, b"x", rank=rank)


@pytest.mark.parametrize("moved", [piece(), m.EventFilesPut(rank=0)])
def test_a_node_may_send_files_or_put_them_at_an_address_for_as_long_as_they_move(moved):
    play = Play(cluster_size=1).all_run().returns(0)
    for _ in range(5):
        play.receive(moved, after_s=DRAIN_TIMEOUT_S)
        assert not play.wait(GRACE_S).is_over
    assert play.wait(GRACE_S + DRAIN_TIMEOUT_S).is_over
    assert play.cluster_state.state == "done"


@pytest.mark.parametrize(
    ("moved", "awaits", "waits"), [(piece(), MOVES, True), (m.EventFilesPut(rank=0), MOVES, True), (piece(), (), False)]
)
def test_a_stop_waits_for_as_long_as_what_it_awaits_moves(moved, awaits, waits):
    def pass_s(seconds):
        for _ in range(seconds):
            play.receive(m.Heartbeat(rank=0), after_s=1.0).wait(0)
        return play.cluster_state.gave_up

    play = Play(cluster_size=1).all_run()
    play.asked = play.cluster_state.stop(play.now_s, grace_s=0.0, awaits=awaits)
    assert not pass_s(4)
    play.receive(moved)
    assert pass_s(4) != waits
    play.receive(moved)
    assert pass_s(4) != waits
    assert pass_s(4)
    assert play.cluster_state.state == "stopped"


def lost_while_it_brings(rank=0):
    play = Play(cluster_size=2).all_run().receive(m.FilesListed("output", 1, [], rank=rank))
    play.asked = play.cluster_state.lose(rank, "Spark has ended its task", play.now_s)
    return play


def test_a_lost_node_may_still_send_its_output():
    play = lost_while_it_brings()
    assert (play.cluster_state.state, play.sent(m.Shutdown)) == ("failed", [])
    assert 0 in play.sent(m.Stop)
    assert not play.drain(1).is_over
    assert not play.wait(FAREWELL_S - 1.0).is_over
    assert not play.receive(piece()).wait(FAREWELL_S - 1.0).is_over
    play.end(0, m.Outcome(kind="stopped"))
    assert play.states()["chief:0"] == "lost"
    assert play.receive(m.OutputSettled(rank=0)).is_over
    assert play.sent(m.Shutdown) == [0]


def test_a_lost_node_that_has_listed_no_output_is_not_waited_for():
    play = Play(cluster_size=2).all_run()
    play.asked = play.cluster_state.lose(0, "gone", play.now_s)
    assert play.sent(m.Shutdown) == [0]
    assert play.drain(1).is_over


# ---- steps that do not match ---------------------------------------------------------------------------------------

MISMATCH = "Collective ops is aborted by: Collective instance 113 expected type 0 and data_type 1 but got type 2"
ADVICE = "give all nodes equally many steps, or wrap the dataset in ctx.even(dataset)"


def mismatch(steps, *, ended):
    """What a node whose collectives TensorFlow has aborted says of its steps."""
    return m.Outcome(
        kind="raised", error="InternalError", message=MISMATCH, consequence=True, steps=steps, dataset_ended=ended
    )


def test_a_mismatch_of_collectives_is_told_as_one_of_steps_once_the_other_node_has_said_why():
    play = Play(cluster_size=2).all_run().end(1, mismatch(12, ended=True))
    assert play.cluster_state.causes.first is None
    first = play.end(0, mismatch(13, ended=False)).cluster_state.causes.first
    text = f"worker:0 has ended its dataset after 12 steps while chief:0 still trains (step 13): {ADVICE}"
    assert (first.kind, first.message, first.gone) == ("FeedError", text, False)


def test_a_mismatch_that_no_other_node_meets_is_told_after_a_while():
    play = Play(cluster_size=2).all_run().end(1, mismatch(3, ended=False))
    for _ in range(60):
        play.receive(m.Heartbeat(rank=0), after_s=1.0).wait(0)
    told = (
        "do not take the same steps together: give all nodes the same callbacks and validation data, and equally many"
    )
    assert told in play.cluster_state.causes.first.message
