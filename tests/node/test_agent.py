"""The agent: one node from its reservation to its shutdown, with a fake driver."""
# ruff: noqa: T201 - what nodes print is what is tested

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.node.conftest import PATIENCE_S, launch_spec, start_for
from tests.support.quick import QUICK_ENV
from tfos_lab import messages as m
from tfos_lab.node.agent import Agent
from tfos_lab.transport.listener import Listener
from tfos_lab.values import decode_value


class Driver:
    """A driver for one agent: records its messages, and sends what the test wants."""

    def __init__(self):
        self.listener = Listener()
        self.received = []
        self._identity = b""

    def send(self, message):
        self.listener.send(self._identity, m.encode(message))

    def poll(self, seconds):
        for identity, data in self.listener.poll(seconds):
            self._identity = identity
            message = m.decode_from_agent(data)
            self.received.append(message)
            if isinstance(message, m.Heartbeat):
                self.send(m.HeartbeatAck())
            if isinstance(message, m.Logs):
                self.send(m.LogCredit(sequence=message.sequence))

    def wait_for(self, message_type, where=lambda message: True):
        """Return the first message of a type (among all received so far), waiting for it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for message in self.received:
                if isinstance(message, message_type) and where(message):
                    return message
            self.poll(0.05)
        raise AssertionError(f"no {message_type.__name__} among {self.received}")

    def wait_for_state(self, state):
        return self.wait_for(m.Progressed, lambda message: message.state == state)

    def output(self, stream):
        records = [record for message in self.received if isinstance(message, m.Logs) for record in message.records]
        return b"".join(record.data for record in records if record.stream == stream)


@pytest.fixture
def driver():
    driver = Driver()
    yield driver
    driver.listener.close()


@pytest.fixture
def start_agent(driver):
    """A function that starts an agent in a thread; an agent that never ends fails its test."""
    running = []

    def start(task_socket=None, **spec):
        agent = Agent(launch_spec(driver=driver.listener.address, **spec), task_socket)

        def run():
            try:
                agent.run()
            finally:
                agent.close()

        thread = threading.Thread(target=run, name="agent-under-test", daemon=True)
        thread.start()
        running.append((agent, thread))
        return thread

    yield start
    for agent, thread in running:
        agent.leave()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def run_forever():
    print("up", flush=True)
    threading.Event().wait()


def gone(pid):
    try:
        psutil.Process(pid).wait(PATIENCE_S)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


# ---- a normal run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_an_agent_reserves_with_a_port_that_it_keeps_bound_at_all_addresses(driver, start_agent, address):
    start_agent(executor="7", gpus=["3"])
    reserved = driver.wait_for(m.Reserve)
    assert (reserved.rank, reserved.executor, reserved.gpus, reserved.pid) == (0, "7", ["3"], os.getpid())
    assert reserved.host == socket.gethostname()
    host, port = reserved.address.rsplit(":", 1)
    assert host == "127.0.0.1"
    with socket.socket() as thief, pytest.raises(OSError, match="in use"):
        thief.bind((address, int(port)))  # TensorFlow's server binds 0.0.0.0


def test_the_node_itself_may_bind_the_port_that_its_agent_has_bound(driver, start_agent):
    start_agent()
    port = int(driver.wait_for(m.Reserve).address.rsplit(":", 1)[1])

    def map_fun(port):
        with socket.create_server(("127.0.0.1", port)) as server:
            return server.getsockname()[1]

    driver.send(start_for(map_fun, port))
    assert decode_value(driver.wait_for(m.Ended).outcome.value) == port


def test_a_node_is_not_shown_what_others_write_before_it_starts(driver, start_agent, tmp_path):
    start_agent(cwd=str(tmp_path))
    driver.wait_for(m.Reserve)
    (tmp_path / "model").mkdir()  # a chief that stays in this folder was quicker
    driver.send(start_for(lambda args, ctx: Path("model").mkdir()))
    assert driver.wait_for(m.Ended).outcome.kind == "returned"


def test_a_node_of_a_large_cluster_gets_the_addresses_of_the_others_beside_its_start(driver, start_agent):
    start_agent()
    driver.wait_for(m.Reserve)
    addresses = {"chief": ["a:1"], "worker": [f"b:{number}" for number in range(64)]}
    driver.send(m.ClusterSpec.of(addresses))
    driver.send(start_for(lambda args, ctx: ctx.cluster_spec, cluster_spec={}))
    assert decode_value(driver.wait_for(m.Ended).outcome.value) == addresses


def test_each_step_of_a_run_is_reported_from_reservation_to_shutdown(driver, start_agent):
    agent = start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(lambda args: print("working") or args, 5))
    assert decode_value(driver.wait_for(m.Ended).outcome.value) == 5
    driver.send(m.Finish(grace_s=5.0))
    driver.wait_for(m.Drained)
    driver.send(m.Shutdown())
    agent.join(PATIENCE_S)
    assert not agent.is_alive()
    states = [message.state for message in driver.received if isinstance(message, m.Progressed)]
    assert states == ["importing", "starting", "running"]
    assert driver.wait_for_state("starting").pid == driver.wait_for_state("running").pid
    assert driver.output("stdout") == b"working\n"


def test_drained_is_the_last_message_and_is_repeated_until_it_is_answered(driver, start_agent):
    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(lambda: print("x" * 100_000)))
    driver.wait_for(m.Ended)
    driver.send(m.Finish(grace_s=5.0))
    driver.wait_for(m.Drained)
    assert len(driver.output("stdout")) == 100_001
    driver.received.clear()
    driver.wait_for(m.Drained)
    assert {type(message) for message in driver.received} <= {m.Drained, m.Heartbeat}


def test_an_agent_sends_heartbeats_while_it_waits(driver, start_agent):
    start_agent()
    driver.wait_for(m.Heartbeat)
    driver.received.clear()
    driver.wait_for(m.Heartbeat)


def sends_heartbeats(driver):
    """Whether the agent sends heartbeats now; the first one received may be an old one."""
    for _ in range(3):
        driver.received = [message for message in driver.received if not isinstance(message, m.Heartbeat)]
        driver.wait_for(m.Heartbeat)
    return True


def test_an_agent_sends_heartbeats_while_a_large_payload_waits_for_an_import(driver, start_agent, tmp_path):
    wait = "while not pathlib.Path(__file__).with_name('go').exists(): time.sleep(0.05)\n"
    (tmp_path / "keras.py").write_text(f"import pathlib, time\n{wait}")
    start_agent(extra_env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{QUICK_ENV['PYTHONPATH']}"})
    driver.wait_for(m.Reserve)
    driver.send(start_for(lambda args, ctx: len(args), bytes(8 << 20)))
    assert sends_heartbeats(driver)
    (tmp_path / "go").touch()
    assert decode_value(driver.wait_for(m.Ended).outcome.value) == 8 << 20


def test_an_agent_sends_heartbeats_and_stops_a_child_that_reads_no_messages(driver, start_agent):
    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(run_forever))
    os.kill(driver.wait_for_state("running").pid, signal.SIGSTOP)
    for _ in range(200):
        driver.send(m.FeedAborted(feed=0, reason="x" * 10_000))
    assert sends_heartbeats(driver)
    driver.send(m.Stop(grace_s=0.5))
    assert driver.wait_for(m.Ended).outcome == m.Outcome(kind="stopped", exit_code=-signal.SIGKILL)
    driver.wait_for(m.Drained)


def test_an_agent_reports_what_its_child_does_also_while_it_is_stopped(driver, start_agent):
    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(run_forever))
    pid = driver.wait_for_state("running").pid
    driver.wait_for(m.Activity, lambda activity: activity.memory_bytes > 0 and activity.host_memory > 0)
    os.kill(pid, signal.SIGSTOP)
    stopped = driver.wait_for(m.Activity, lambda activity: activity.idle_s > 1.5)
    assert stopped.last_sign in ("began", "printed")
    assert stopped.step is None
    driver.send(m.Stop(grace_s=0.0))
    driver.wait_for(m.Drained)


def test_a_log_waits_for_credit_and_arrives_whole(driver, start_agent):
    start_agent()
    driver.wait_for(m.Reserve)
    size = 8 << 20
    driver.send(start_for(lambda size: print("y" * size, flush=True), size))
    driver.wait_for(m.Ended)
    driver.send(m.Finish(grace_s=5.0))
    driver.wait_for(m.Drained)
    assert driver.output("stdout") == b"y" * size + b"\n"
    sequences = [message.sequence for message in driver.received if isinstance(message, m.Logs)]
    assert sequences == list(range(len(sequences)))


def test_without_credit_an_agent_sends_no_more_of_the_log(driver, start_agent, monkeypatch):
    monkeypatch.setattr(m, "LogCredit", lambda sequence: m.HeartbeatAck())
    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(lambda: print("z" * (16 << 20), flush=True)))
    driver.wait_for(m.Ended)
    driver.poll(0.5)
    batches = [message for message in driver.received if isinstance(message, m.Logs)]
    assert len(batches) <= 10


# ---- the end, in every way ----------------------------------------------------------------------------------------


def test_stop_before_the_start_ends_a_node_that_never_ran(driver, start_agent):
    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(m.Stop(grace_s=1.0))
    assert driver.wait_for(m.Ended).outcome.kind == "stopped"
    driver.wait_for(m.Drained)
    driver.send(start_for(run_forever))
    driver.poll(0.3)
    assert not any(isinstance(message, m.Progressed) for message in driver.received)


def test_stop_ends_a_running_node(driver, start_agent):
    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(run_forever))
    pid = driver.wait_for_state("running").pid
    driver.send(m.Stop(grace_s=30.0))
    assert driver.wait_for(m.Ended).outcome == m.Outcome(kind="stopped", exit_code=-signal.SIGTERM)
    driver.wait_for(m.Drained)
    assert gone(pid)


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace_period(driver, start_agent):
    def map_fun():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ignoring", flush=True)
        threading.Event().wait()

    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(map_fun))
    driver.wait_for(m.Logs)
    stopped_s = time.monotonic()
    driver.send(m.Stop(grace_s=0.5))
    assert driver.wait_for(m.Ended).outcome == m.Outcome(kind="stopped", exit_code=-signal.SIGKILL)
    assert time.monotonic() - stopped_s >= 0.5


def test_stop_reaches_a_child_that_has_not_been_forked_yet(driver, start_agent):
    start_agent(extra_env={**QUICK_ENV, "TFOS_TEST": "a fork server that is not warm yet"})
    driver.wait_for(m.Reserve)
    driver.send(start_for(run_forever))
    driver.send(m.Stop(grace_s=0.0))
    assert driver.wait_for(m.Ended).outcome.kind == "stopped"
    driver.wait_for(m.Drained)


def test_a_killed_child_is_reported_as_an_exit(driver, start_agent):
    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(run_forever))
    os.kill(driver.wait_for_state("running").pid, signal.SIGKILL)
    assert driver.wait_for(m.Ended).outcome == m.Outcome(kind="exited", exit_code=-signal.SIGKILL)
    driver.wait_for(m.Drained)


def test_processes_that_a_node_has_started_end_with_it(driver, start_agent):
    def map_fun():
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return grandchild.pid

    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(map_fun))
    grandchild = decode_value(driver.wait_for(m.Ended).outcome.value)
    driver.send(m.Finish(grace_s=1.0))
    driver.wait_for(m.Drained)
    assert gone(grandchild)


def test_a_node_that_waits_for_training_learns_that_it_is_done(driver, start_agent):
    def wait(args, ctx):
        before = ctx.training_done
        ctx.report()
        return before, ctx.wait_for_training(60), ctx.training_done

    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(wait))
    driver.wait_for(m.Reported)
    driver.send(m.Finish(grace_s=30.0))
    assert decode_value(driver.wait_for(m.Ended).outcome.value) == (False, True, True)
    driver.wait_for(m.Drained)


def test_a_node_that_goes_on_after_training_is_ended_after_the_grace_period(driver, start_agent):
    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(run_forever))
    driver.wait_for_state("running")
    driver.send(m.Finish(grace_s=0.5))
    assert driver.wait_for(m.Ended).outcome.kind == "stopped"
    driver.wait_for(m.Drained)


def test_a_fork_server_that_cannot_import_tensorflow_fails_the_node_with_the_reason(driver, start_agent, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no libcudart here')\n")
    start_agent(extra_env={"PYTHONPATH": str(tmp_path)})
    driver.wait_for(m.Reserve)
    driver.send(start_for(run_forever))
    outcome = driver.wait_for(m.Ended).outcome
    assert (outcome.kind, outcome.error) == ("raised", "ImportError")
    assert "no libcudart here" in outcome.message
    driver.wait_for(m.Drained)


# ---- what keeps an agent alive -------------------------------------------------------------------------------------


def test_an_agent_ends_when_the_driver_is_silent_for_too_long(driver, start_agent):
    agent = start_agent(driver_timeout_s=5.0)
    driver.wait_for(m.Reserve)
    driver.send(start_for(run_forever))
    pid = driver.wait_for_state("running").pid
    agent.join(PATIENCE_S)
    assert not agent.is_alive()
    assert gone(pid)


def test_an_agent_ends_with_its_watched_process(driver, start_agent):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as watched:
        agent = start_agent(watched_pid=watched.pid, owner=f"watched-{os.getpid()}")
        driver.wait_for(m.Reserve)
        driver.send(start_for(run_forever))
        pid = driver.wait_for_state("running").pid
        watched.kill()
    agent.join(PATIENCE_S)
    assert not agent.is_alive()
    assert gone(pid)


def write_output(args, ctx):
    Path(ctx.output_dir, "model").write_text("weights")
    threading.Event().wait()


def test_an_agent_that_has_to_leave_reads_first_that_there_is_output(driver, start_agent, monkeypatch):
    monkeypatch.setattr("tfos_lab.node.agent.LAST_OUTPUT_S", PATIENCE_S)
    handle = Agent._on_child_message

    def leave_before(agent, message):
        if isinstance(message, m.OutputOpened):
            while not list(agent._scratch.path.glob("output/model")):
                time.sleep(0.01)
            agent.leave()  # as a signal does that comes before the message is read
        handle(agent, message)

    monkeypatch.setattr(Agent, "_on_child_message", leave_before)
    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(write_output, output_dir="wanted", output_limit_bytes=1000))
    assert driver.wait_for(m.OutputComes).files == 1
    driver.send(m.Shutdown())


def test_an_agent_frees_its_slot_when_it_is_asked_to(driver, start_agent):
    task, agent_socket = socket.socketpair()
    start_agent(agent_socket)
    driver.wait_for(m.Reserve)
    driver.send(m.FreeSlot())
    task.settimeout(PATIENCE_S)
    assert task.recv(10) == b"1"
    assert task.recv(10) == b""
    driver.send(start_for(lambda: "goes on"))
    assert decode_value(driver.wait_for(m.Ended).outcome.value) == "goes on"
    task.close()


def test_nothing_of_a_node_is_left_on_its_host(driver, start_agent):
    agent = start_agent(cluster_id="leaves-nothing")
    driver.wait_for(m.Reserve)
    driver.send(start_for(lambda: os.environ["TFOS_LAB_SCRATCH"]))
    scratch = decode_value(driver.wait_for(m.Ended).outcome.value)
    assert "leaves-nothing" in scratch
    driver.send(m.Finish(grace_s=1.0))
    driver.wait_for(m.Drained)
    driver.send(m.Shutdown())
    agent.join(PATIENCE_S)
    assert not Path(scratch).exists()


def test_garbage_on_the_child_s_socket_does_not_end_the_agent(driver, start_agent):
    def map_fun():
        for fd in range(3, 64):
            try:
                os.write(fd, b"\0\0\0\4junk")
            except OSError:
                continue

    start_agent()
    driver.wait_for(m.Reserve)
    driver.send(start_for(map_fun))
    assert driver.wait_for(m.Ended).outcome.kind == "returned"


# ---- folders that hosts share -------------------------------------------------------------------------------------


def test_a_node_whose_log_folder_differs_from_its_peers_does_not_start(driver, start_agent, tmp_path, monkeypatch):
    monkeypatch.setattr("tfos_lab.node.files.shared_folder._PATIENCE_S", 0.0)
    start_agent(shared_dir=str(tmp_path))
    driver.wait_for(m.Reserve)
    assert len(list(tmp_path.glob(".tfos-*/*"))) == 1
    driver.send(start_for(run_forever))
    outcome = driver.wait_for(m.Ended).outcome
    assert (outcome.kind, outcome.error) == ("raised", "ConfigError")
    assert "than for chief:0, and restarts go on from a backup in it" in outcome.message
    driver.wait_for(m.Drained)
    driver.send(m.Shutdown())


def test_where_the_chief_saves_is_reported_with_a_mark_beside_it(driver, start_agent, tmp_path):
    def save(args, ctx):
        return [ctx.model_dir(f"{args}/model.keras") for _ in range(2)]

    thread = start_agent(executor="1")
    driver.wait_for(m.Reserve)
    driver.send(start_for(save, str(tmp_path), is_chief=True))
    saving = driver.wait_for(m.SavesTo)
    assert saving.path == f"{tmp_path}/model.keras"
    assert Path(saving.mark).parent.parent == tmp_path
    assert Path(saving.mark).exists()
    driver.wait_for(m.Ended)
    driver.send(m.Finish(grace_s=1.0))
    driver.wait_for(m.Drained)
    driver.send(m.Shutdown())
    thread.join(PATIENCE_S)
    assert sum(isinstance(message, m.SavesTo) for message in driver.received) == 1
    assert list(tmp_path.iterdir()) == []
