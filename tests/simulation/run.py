"""One simulated run: the kernel with whoever waits for the run, the launcher, restarts, and the faults of the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation import faults
from tests.simulation.agents import Agent, Child
from tests.simulation.feeding import FeedJob
from tests.simulation.head import Head, Kernel
from tests.simulation.plan import Plan
from tests.simulation.world import EPOCH_S, Host, World
from tfos_lab.core import messages as m
from tfos_lab.core.launchers import THIS_MACHINE
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.state.cluster_state import RestartBudget
from tfos_lab.driver.state.events import (
    FeedProgressed,
    LogText,
    MetricsReported,
    NodeChanged,
    NodeStartedAgain,
    StateChanged,
)
from tfos_lab.node.driver_link import how_ended

if TYPE_CHECKING:
    from tests.simulation.faults import Done
    from tests.simulation.reading import Reader, Row
    from tfos_lab.driver.state.events import Event

RESERVATION_S = 20.0
# Somebody whose run has not ended by then stops it; no plan takes so long unless it hangs.
PATIENCE_S = 300.0
# What comes afterwards is waited for so long.
_AFTERWARDS_S = 700.0


@dataclass
class Life:
    agent: Agent
    began_s: float
    ended_s: float | None = None
    was_excused: bool = False


@dataclass
class Seen:
    """What could be seen of a run.

    ``states`` are those of the cluster as they were published, with the reason. ``nodes`` has the states of each node
    of each head; if it was started again alone, which happened ``alone`` times, since then. ``lost`` were nodes that
    were called so while the run went on. ``told`` is what whoever waited for the run was told, beside its state. Of the
    last head, ``rows`` are those that each node has read, and ``steps`` the plans of its nodes: steps, and the nodes
    that take part. ``started`` are the agents that were told to start, and what they were told of the addresses of all.
    """

    states: list[tuple[float, RunState, str]] = field(default_factory=list)
    nodes: dict[tuple[int, str], list[NodeState]] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    alone: int = 0
    told: str = ""
    rows: dict[str, list[Row]] = field(default_factory=dict)
    steps: set[tuple[int, int]] = field(default_factory=set)
    started: list[tuple[Agent, dict[str, list[str]]]] = field(default_factory=list)


class Run:
    """A run of a plan; `live` makes it.

    ``heads`` has one for each start of all nodes, and ``over_s`` when it was over. ``agents`` are all that there have
    been, ``done`` the faults that were done, and ``lives`` the children. ``unnoticed`` are agents that are stopped for
    good, as their children are, after they gave their slot back: nobody but their executor's end ends them.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        self.kernel = Kernel(self.world)
        self.budget = RestartBudget(plan.restarts)
        self.heads: list[Head] = []
        self.over_s: list[float] = []
        self.agents: list[Agent] = []
        self.done: list[Done] = []
        self.lives: list[Life] = []
        self.seen = Seen()
        self.unnoticed: list[Agent] = []
        self.feed: FeedJob | None = None
        self.user_stops = False
        self._pids = 100
        self._by_identity: dict[bytes, Agent] = {}
        self._launcher_is_closed = False
        self._executors_gone: dict[str, float] = {}
        self._hosts = self._places()

    def _places(self) -> dict[str, tuple[Host, str]]:
        """Return each node's host and executor; nodes of this machine have none."""
        if not self.plan.spark:
            here = Host(self.world, "here")
            return {spec.node: (here, "") for spec in self.plan.specs}
        hosts = [Host(self.world, f"host-{number}") for number in range(self.plan.nodes)]
        together = self.plan.together
        return {spec.node: (hosts[spec.rank // together], str(spec.rank // together)) for spec in self.plan.specs}

    @property
    def head(self) -> Head:
        """The nodes as they are now."""
        return self.heads[-1]

    @property
    def present(self) -> list[Agent]:
        """The agents of these nodes."""
        return [agent for agent in self.agents if agent.head_number == self.head.number and agent.is_there]

    def agent_of(self, node: str) -> Agent | None:
        return next((agent for agent in reversed(self.present) if agent.name == node), None)

    def host_of(self, node: str) -> Host:
        """Return where a node runs."""
        return self._hosts[node][0]

    def next_pid(self) -> int:
        """Return the pid of another process."""
        self._pids += 1
        return self._pids

    # ---- the run ----------------------------------------------------------------------------------------------------

    def live(self) -> Run:
        """Let it happen, until the last process is gone."""
        world = self.world
        for fault in self.plan.faults:
            world.at(fault.at_s, faults.do, self, fault)
        world.at(PATIENCE_S, self._lose_patience)
        self._make_head()
        while True:
            head = self.head
            head.serve()
            self.over_s.append(world.now_s)
            self._close_launcher()
            if self.kernel.is_gone or head.state.state is not RunState.RESTARTING:
                break
            world.wait(world.now_s + world.between(0.01, 0.3), lambda: self.kernel.is_gone)
            while self.kernel.is_paused:
                world.wait(self.kernel.paused_until_s, lambda: False)
            if self.user_stops:
                head.abandon()
            if self.user_stops or self.kernel.is_gone:
                break
            self._make_head()
        self._await_ends()
        for agent in self.agents:
            is_free = agent.executor and not agent.holds_slot
            if is_free and agent.stands == "stopped" and agent.child is not None and agent.child.is_stopped:
                self.unnoticed.append(agent)
                agent.on_executor_gone()
        self._await_ends()
        return self

    def _await_ends(self) -> None:
        until_s = self.world.now_s + _AFTERWARDS_S
        self.world.wait(until_s, lambda: not any(agent.is_there or agent.child for agent in self.agents))

    def _make_head(self) -> None:
        self._launcher_is_closed = False
        head = Head(
            self.plan,
            len(self.heads),
            self.budget,
            world=self.world,
            kernel=self.kernel,
            send=self._to_agent,
            publish=self._on_event,
            on_executor_gone=self._on_executor_gone,
        )
        self.heads.append(head)
        self.seen.rows, self.seen.steps = {}, set()
        for spec in self.plan.specs:
            late_s = faults.late_s(self, spec.node)
            if late_s is not None:
                self.launch(spec.node, self.world.between(0.01, 0.5) + late_s)
        head.await_start(RESERVATION_S)
        self.feed = FeedJob(self, head) if self.plan.partitions else None

    def launch(self, node: str, delay_s: float) -> None:
        """Start an agent; Spark has another executor for one that is gone."""
        spec = next(spec for spec in self.plan.specs if spec.node == node)
        host, executor = self._hosts[node]
        if executor in self._executors_gone:
            executor = f"{executor}-again"
        agent = Agent(self, self.head.number, spec, host, executor)
        self.agents.append(agent)
        self._by_identity[agent.identity] = agent
        self.world.at(delay_s, agent.begin)

    def is_launching(self, agent: Agent) -> bool:
        """Whether an agent may still begin: its launcher has not been closed."""
        is_wanted = not self._launcher_is_closed and agent.head_number == self.head.number
        return is_wanted and agent.executor not in self._executors_gone

    def tell_user(self, error: str) -> None:
        """Raise an error for whoever waits for the run, who stops it for that."""
        self.seen.told = error
        self.stop(0.0)

    def _lose_patience(self) -> None:
        if not self.head.is_over:
            self.kernel.call(lambda: self.tell_user("it did not end"))

    def stop(self, grace_s: float) -> None:
        """Stop all nodes, as `Cluster.stop` does."""
        self.user_stops = True
        self.world.tell("user", f"stops, {grace_s:g} s")
        self.head.stop(grace_s)

    # ---- messages and events ----------------------------------------------------------------------------------------

    def to_driver(self, agent: Agent, item: tuple[bytes, bytes | None]) -> None:
        """A message of an agent arrives at the driver that it belongs to."""
        if agent.head_number == self.head.number:
            self.head.arrive(item)

    def _to_agent(self, identity: bytes, data: bytes) -> None:
        agent = self._by_identity.get(identity)
        if agent is not None:
            agent.receive(data)

    def is_reachable(self, agent: Agent) -> bool:
        """Whether an agent can connect to its driver: one that is paused still has its port."""
        is_served = not self.kernel.is_gone and agent.head_number == self.head.number and not self.head.is_over
        return is_served and not agent.host.is_cut

    def _on_event(self, event: Event) -> None:
        kind = type(event)
        if kind in (FeedProgressed, MetricsReported, LogText):
            return
        self.world.tell("driver", event)
        if isinstance(event, StateChanged):
            self.seen.states.append((self.world.now_s, event.state, event.reason))
        elif isinstance(event, NodeChanged):
            self.seen.nodes.setdefault((self.head.number, event.node), []).append(event.state)
            if event.state == "lost" and not self.head.state.state.is_ending:
                self.seen.lost.append(event.node)
        elif isinstance(event, NodeStartedAgain):
            self.seen.nodes[self.head.number, event.node] = []
            self.seen.alone += 1

    # ---- the launcher -----------------------------------------------------------------------------------------------

    def _close_launcher(self) -> None:
        """Have agents end that are still there; a host that is cut off learns of it afterwards."""
        if self._launcher_is_closed:
            return
        self._launcher_is_closed = True
        for agent in self.present:
            # With its slot, an agent has given up the connection to whoever has started it.
            if agent.executor and not agent.holds_slot:
                agent.hang_up()
            else:
                self.world.at(agent.host.arrival_s() - self.world.now_s, agent.ask_to_leave)

    def on_agent_end(self, agent: Agent, code: int) -> None:
        """The launcher sees an agent's end."""
        if self._launcher_is_closed or agent.head_number != self.head.number:
            return
        head = self.head
        if not agent.executor:
            self._report(head, self.world.between(0.005, 0.3), agent.rank, how_ended(code))
        elif agent.holds_slot and code and agent.executor not in self._executors_gone:
            self._fail_task(head, agent, how_ended(code))

    def _report(self, head: Head, delay_s: float, rank: int, why: str) -> None:
        def report() -> None:
            if not self._launcher_is_closed:
                self.world.tell("launcher", f"rank {rank}: {why}")
                head.lose(rank, why)

        self.world.at(delay_s, self.kernel.call, report)

    def _fail_task(self, head: Head, agent: Agent, why: str) -> None:
        """A node's task has failed: Spark ends those of the others, or starts this one again."""
        after_s = self.world.between(0.1, 1.0)
        if not self.plan.barrier:
            self.world.at(after_s, self._retry, head, agent.name)
            return
        self._report(head, after_s, agent.rank, why)
        for other in self.present:
            if other is not agent and other.holds_slot:
                self._report(head, after_s + 0.001, other.rank, "Spark has ended its task")
                self.world.at(after_s + other.host.arrival_s() - self.world.now_s, other.ask_to_leave)

    def _retry(self, head: Head, node: str) -> None:
        if head is self.head and not self._launcher_is_closed:
            self.launch(node, 0.1)

    def lose_executor(self, executor: str) -> set[str]:
        """End an executor, with the nodes that it has or was to have; Spark tells of it later. Return their names."""
        agents = [agent for agent in self.present if agent.executor == executor]
        known_s = self.world.now_s + self.world.between(0.2, 4.0)
        self._executors_gone[executor] = known_s
        had_slots = any(agent.holds_slot for agent in agents)
        for agent in agents:
            agent.on_executor_gone()
        if had_slots:
            head, after_s = self.head, known_s - self.world.now_s + self.world.between(0.0, 0.3)
            self._report_executor(head, after_s, executor)
            for other in self.present:
                if other not in agents and other.holds_slot and self.plan.barrier:
                    self._report(head, after_s + 0.001, other.rank, "Spark has ended its task")
                    self.world.at(after_s, other.ask_to_leave)
        return {agent.name for agent in self.agents if agent.executor == executor}

    def _on_executor_gone(self, executor: str) -> None:
        """An agent has told of it: Spark is asked until it knows."""
        if executor != THIS_MACHINE:
            known_s = max(self._executors_gone[executor] - self.world.now_s, 0.0)
            self._report_executor(self.head, known_s + self.world.between(0.05, 1.0), executor)

    def _report_executor(self, head: Head, delay_s: float, executor: str) -> None:
        def report() -> None:
            if not self._launcher_is_closed:
                self.world.tell("launcher", f"executor {executor} is gone")
                head.lose_executor(executor, "Spark has lost its executor: it was killed")

        self.world.at(delay_s, self.kernel.call, report)

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def note_child(self, agent: Agent) -> None:
        """A child begins."""
        self.lives.append(Life(agent, self.world.now_s))

    def note_child_gone(self, agent: Agent, outcome: m.Outcome, *, is_early: bool) -> None:
        """A child has ended; peers notice, if its function was at work."""
        life = next(life for life in reversed(self.lives) if life.agent is agent)
        life.ended_s = self.world.now_s
        if is_early and outcome.kind == "exited":
            self.trouble(agent)

    def trouble(self, agent: Agent, *, silent: bool = False) -> None:
        """The peers of a node notice that it is gone."""
        for child in self._peers(agent):
            child.misses(agent, silent)

    def block(self, agent: Agent) -> None:
        """The peers of a node wait for it from now on."""
        for child in self._peers(agent):
            child.waits_for_ever = child.waits_for_ever or child.trains

    def _peers(self, agent: Agent) -> list[Child]:
        if agent.spec.job_name == "evaluator" or (self.plan.ps and agent.spec.job_name == "worker"):
            return []
        others = [one for one in self.agents if one is not agent and one.head_number == agent.head_number]
        return [one.child for one in others if one.child is not None]

    def note_rows(self, agent: Agent, reader: Reader) -> None:
        """A node has read all its rows."""
        if agent.head_number == self.head.number:
            self.seen.rows[agent.name] = reader.rows
            assert reader.plan is not None
            self.seen.steps.add((reader.plan.steps, sum(share.nodes for share in reader.plan.shares)))

    def told(self) -> str:
        """Return the run in a few lines: plan, faults, end, and the whole story."""
        state = self.head.state
        return "\n".join(
            [
                repr(self.plan),
                *(f"{one.kind} ({', '.join(sorted(one.nodes))})" for one in self.done),
                f"{state.state} after {self.world.now_s - EPOCH_S:.1f} s: {state.reason or self.seen.told}",
                self.world.text(),
            ]
        )
