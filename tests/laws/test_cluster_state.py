"""The cluster state under any sequence of what nodes, launchers and users do: it stays true, and comes to an end."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.laws.random_data import fuzzed
from tfos_lab import ClusterConfig
from tfos_lab.core import messages as m
from tfos_lab.core.config import assign_roles
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.state.cluster_state import DRAIN_TIMEOUT_S, ClusterState, RestartBudget
from tfos_lab.driver.state.events import StateChanged
from tfos_lab.driver.state.instructions import Failure, Finished, Publish, SendTo

GRACE_S = 1.0
TICK_S = 0.2
RANKS = st.integers(0, 3)
OUTCOMES = st.builds(
    m.Outcome,
    kind=st.sampled_from(["returned", "returned", "raised", "exited", "stopped"]),
    error=st.sampled_from(["ValueError", "UnavailableError"]),
    message=st.sampled_from(["no", "a collective instance of another step"]),
    consequence=st.booleans(),
    exit_code=st.sampled_from([0, 3, -9]),
)


class ClusterLife(RuleBasedStateMachine):
    """Nodes that reserve, run, end, are lost and drain, in any order and also twice; the user stops at any time."""

    @initialize(size=st.integers(1, 4), num_ps=st.integers(0, 2), restarts=st.integers(0, 2))
    def begin(self, size, num_ps, restarts):
        config = ClusterConfig(cluster_size=size + num_ps, num_ps=num_ps)
        budget = RestartBudget(restarts)
        self.state = ClusterState(assign_roles(config), grace_s=GRACE_S, restarts=budget)
        self.size = len(self.state.views)
        self.now_s = 1000.0
        self.finished = 0
        self.published = []
        self.first = None
        self.ended = {}
        self.outcomes = {}

    def do(self, instructions):
        for instruction in instructions:
            match instruction:
                case SendTo(rank=rank, message=message):
                    assert 0 <= rank < self.size
                    m.decode_to_agent(m.encode(message))
                case Publish(event=StateChanged(state=state)):
                    self.published.append(state)
                case Finished():
                    self.finished += 1

    def receive(self, message):
        self.do(self.state.handle(message, self.now_s))

    # ---- what nodes do ----------------------------------------------------------------------------------------------

    @rule(rank=RANKS)
    def reserve(self, rank):
        self.receive(m.Reserve(rank=rank, host="h", address=f"h:{rank}", pid=rank, executor="e", gpus=[]))

    @rule()
    def all_reserve(self):
        for rank in range(self.size):
            self.reserve(rank)

    @rule(rank=RANKS, state=st.sampled_from(["importing", "starting", "running", "serving"]))
    def progress(self, rank, state):
        self.receive(m.Progressed(rank=rank, state=state, pid=100 + rank))

    @rule()
    def all_run(self):
        for rank in range(self.size):
            self.progress(rank, "running")

    @rule(rank=RANKS, outcome=OUTCOMES)
    def end(self, rank, outcome):
        self.receive(m.Ended(rank=rank, outcome=outcome))

    @rule()
    def all_return(self):
        for rank in range(self.size):
            self.end(rank, m.Outcome(kind="returned"))

    @rule(rank=RANKS)
    def drain(self, rank):
        self.receive(m.Drained(rank=rank))

    @rule(rank=RANKS, step=st.none() | st.integers(0, 9))
    def report(self, rank, step):
        self.receive(m.Reported(rank=rank, step=step, total_steps=9, metrics={"loss": 0.5}, time_s=self.now_s))

    @rule(rank=RANKS, place=st.sampled_from(["", "/there"]))
    def open_output(self, rank, place):
        self.receive(m.OutputOpened(rank=rank, place=place))

    @rule(rank=RANKS, data=st.binary(max_size=4))
    def send_output(self, rank, data):
        self.receive(m.FilePiece("output", "a", 0, data, rank=rank))

    @rule(rank=RANKS)
    def finish_output(self, rank):
        self.receive(m.OutputSettled(rank=rank))

    @rule(rank=st.integers(-2, 9))
    def beat(self, rank):
        self.receive(m.Heartbeat(rank=rank))

    # ---- what others do ---------------------------------------------------------------------------------------------

    @rule(rank=RANKS)
    def lose(self, rank):
        if rank < self.size:
            self.do(self.state.lose(rank, "its agent ended", self.now_s))

    @rule(kind=st.sampled_from(["LaunchFailed", "FeedError"]))
    def fail(self, kind):
        self.do(self.state.fail(Failure("launcher", kind, "no room"), self.now_s))

    @rule(grace_s=st.none() | st.just(0.0))
    def stop(self, grace_s):
        self.do(self.state.stop(self.now_s, grace_s=grace_s))

    @rule()
    def abandon(self):
        self.do(self.state.abandon(self.now_s))

    @rule(passed_s=st.sampled_from([TICK_S, 1.0, 2.9, 20.0]))
    def tick(self, passed_s):
        self.now_s += passed_s
        self.do(self.state.tick(self.now_s))

    # ---- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def what_has_ended_stays_ended(self):
        for view in self.state.views:
            was = self.ended.get(view.name)
            # An agent may be lost after its node's function has ended.
            assert was is None or view.state in (was, NodeState.LOST), f"{view.name} was {was}, is {view.state}"
            if view.state.ended:
                self.ended[view.name] = view.state
        for node, outcome in self.outcomes.items():
            assert self.state.outcomes[node] is outcome
        self.outcomes = self.state.outcomes

    @invariant()
    def the_first_cause_stays_the_first(self):
        cause = self.state.causes.first
        assert self.first is None or cause is self.first
        self.first = cause
        assert cause is None or self.state.state is not RunState.FAILED or self.state.reason.startswith(cause.node)

    @invariant()
    def the_end_is_told_once_and_is_the_last_state(self):
        assert self.finished <= 1
        ends = [state for state in self.published if state.ended]
        assert len(ends) <= 1
        assert not ends or self.published[-1] is ends[0] is self.state.state
        assert not self.finished or self.state.state.is_settled

    @precondition(lambda self: self.finished)
    @rule()
    def nothing_follows_the_end(self):
        before = self.state.state, self.state.reason
        self.do(self.state.stop(self.now_s))
        self.do(self.state.tick(self.now_s))
        assert (self.state.state, self.state.reason) == before

    def teardown(self):
        """Whatever has been: once stopped, the cluster ends in time, though no node answers any more."""
        if not hasattr(self, "state"):
            return
        self.do(self.state.stop(self.now_s))
        for _ in range(int((GRACE_S + DRAIN_TIMEOUT_S + 5.0) / TICK_S)):
            self.tick(TICK_S)
        assert self.finished == 1
        assert self.state.state.is_settled
        self.what_has_ended_stays_ended()
        self.the_first_cause_stays_the_first()


ClusterLife.TestCase.settings = fuzzed(80, steps=25)
TestClusterLife = ClusterLife.TestCase
