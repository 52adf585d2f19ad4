"""The agent: one node from its reservation to its shutdown, whatever its function, its driver and its host do."""
# ruff: noqa: T201 - what nodes print is what is tested

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.node.conftest import launch_spec, start_for
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.processes import gone
from tests.support.quick import QUICK_ENV
from tfos_lab.core import messages as m
from tfos_lab.core.listener import Listener
from tfos_lab.core.payload import pack
from tfos_lab.node.driver_link import HUNG, how_ended


def run_forever():
    print("up", flush=True)
    threading.Event().wait()


# ---- a normal run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_an_agent_reserves_with_a_port_that_it_keeps_bound_at_all_addresses(launch, address):
    reserved = launch(executor="7", gpus=["3"]).wait_for(m.Reserve)
    assert (reserved.rank, reserved.executor, reserved.gpus, reserved.pid) == (0, "7", ["3"], os.getpid())
    assert reserved.host == socket.gethostname()
    host, port = reserved.address.rsplit(":", 1)
    assert host == "127.0.0.1"
    with socket.socket() as thief, pytest.raises(OSError, match="in use"):
        thief.bind((address, int(port)))  # TensorFlow's server binds 0.0.0.0


# ---- heartbeats ----------------------------------------------------------------------------------------------------


def test_an_agent_sends_heartbeats_while_a_large_payload_waits_for_an_import(launch, tmp_path):
    wait = "while not pathlib.Path(__file__).with_name('go').exists(): time.sleep(0.05)\n"
    (tmp_path / "keras.py").write_text(f"import pathlib, time\n{wait}")
    node = launch(extra_env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{QUICK_ENV['PYTHONPATH']}"})
    node.send(start_for(lambda args, ctx: len(args), bytes(8 << 20)))
    assert node.beats()
    (tmp_path / "go").touch()
    assert node.result() == 8 << 20


def test_an_agent_sends_heartbeats_and_stops_a_child_that_reads_no_messages(run):
    node = run(run_forever)
    os.kill(node.pid, signal.SIGSTOP)
    for _ in range(200):
        node.send(m.FeedAborted(feed=0, reason="x" * 10_000))
    assert node.beats()
    node.send(m.Stop(grace_s=0.5))
    assert node.outcome() == m.Outcome(kind="stopped", exit_code=-signal.SIGKILL)
    node.wait_for(m.Drained)


# ---- the log -------------------------------------------------------------------------------------------------------


def test_without_credit_an_agent_sends_no_more_of_the_log(launch):
    node = launch()
    node.answers = False
    node.send(start_for(lambda: print("z" * (16 << 20), flush=True)))
    node.outcome()
    assert node.beats()
    assert len(node.all(m.Logs)) <= 10


# ---- the end, in every way ----------------------------------------------------------------------------------------


def test_stop_before_the_start_ends_a_node_that_never_ran(launch):
    node = launch()
    node.send(m.Stop(grace_s=1.0))
    assert node.outcome().kind == "stopped"
    node.wait_for(m.Drained)
    node.send(start_for(run_forever))
    assert node.beats()
    assert not node.all(m.Progressed)


def test_a_child_waits_while_other_nodes_reserve_and_ends_with_its_agent(launch):
    mark = {"TFOS_TEST": f"a fork server of {os.getpid()}, with no other children"}

    def processes():
        found = 0
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                found += mark.items() <= process.environ().items()
        return found

    node = launch(extra_env={**QUICK_ENV, **mark})
    eventually(lambda: processes() == 2)  # the fork server, and the child
    node.close()
    eventually(lambda: processes() == 1)


def test_stop_reaches_a_child_that_has_not_been_forked_yet(run):
    node = run(run_forever, extra_env={**QUICK_ENV, "TFOS_TEST": "a fork server that is not warm yet"})
    node.send(m.Stop(grace_s=0.0))
    assert node.outcome().kind == "stopped"
    node.wait_for(m.Drained)


@pytest.mark.parametrize(("name", "grace_s"), [("worker:0", 0.5), ("ps:0", 600.0)])
def test_a_node_that_goes_on_after_training_is_ended_and_a_parameter_server_soon(run, name, grace_s):
    node = run(run_forever, node=name)
    assert node.pid
    node.finish(grace_s)
    assert node.outcome().kind == "stopped"


def test_a_child_that_has_returned_and_does_not_exit_is_killed(run):
    def map_fun():
        atexit.register(threading.Event().wait)
        return os.getpid()

    node = run(map_fun)
    pid = node.result()
    node.finish(0.5)
    assert gone([pid])


def test_a_fork_server_that_cannot_import_tensorflow_fails_the_node_with_the_reason(run, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no libcudart here')\n")
    node = run(run_forever, extra_env={"PYTHONPATH": str(tmp_path)})
    outcome = node.outcome()
    assert (outcome.kind, outcome.error) == ("raised", "ImportError")
    assert "no libcudart here" in outcome.message
    node.wait_for(m.Drained)


def test_garbage_on_the_child_s_socket_does_not_end_the_agent(run):
    def map_fun():
        for fd in range(3, 64):
            try:
                os.write(fd, b"\0\0\0\4junk")
            except OSError:
                continue

    assert run(map_fun).outcome().kind == "returned"


# ---- what keeps an agent alive -------------------------------------------------------------------------------------


HANGS = """
import msgspec, sys, time
from tfos_lab.core import messages as m
from tfos_lab.node.driver_link import DriverLink

spec = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=m.LaunchSpec)
link = DriverLink(spec.driver, hung_after_s=3.0)
link.reserve(m.Reserve("h", "h:1", 1, "", [], rank=0))
time.sleep(1000)
"""


def test_an_agent_whose_loop_hangs_shows_signs_of_life_for_a_while_and_then_ends():
    listener = Listener()
    spec = launch_spec(driver=listener.address)
    agent = subprocess.Popen([sys.executable, "-c", HANGS], stdin=subprocess.PIPE)
    agent.communicate(msgspec.msgpack.encode(spec))
    assert agent.returncode == HUNG
    items = []
    eventually(lambda: items.extend(listener.poll(0.1)) or (items and items[-1].data is None))
    reserved, *signs = [m.decode_from_agent(data) for _, data in items[:-1]]
    assert isinstance(reserved, m.Reserve)
    assert signs
    assert {type(sign) for sign in signs} == {m.Heartbeat}
    assert "did not go on for 60 s" in how_ended(HUNG)
    listener.close()


def test_an_agent_that_cannot_connect_ends_and_whoever_started_it_can_say_what_to_look_at():
    program = "import sys; from tfos_lab.node.agent import run; sys.exit(run(sys.stdin.buffer.read(), []))"
    agent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    agent.communicate(msgspec.msgpack.encode(launch_spec(driver=nobody_listens())))
    assert "could not connect to the notebook: see TFOS_SERVER_PORT" in how_ended(agent.returncode)


def nobody_listens():
    listener = Listener()
    listener.close()
    return listener.address


def test_an_agent_ends_when_the_driver_is_silent_for_too_long(run):
    node = run(run_forever, driver_timeout_s=5.0)
    pid = node.pid
    node.thread.join(PATIENCE_S)
    assert not node.thread.is_alive()
    assert gone([pid])


# ---- a large payload ------------------------------------------------------------------------------------------------


class Payload:
    """Large arguments, of which the driver sends a piece at a time."""

    def __init__(self, size=7 * (1 << 18)):
        self.data = pack(lambda args: (len(args), os.environ["TFOS_LAB_SCRATCH"]), os.urandom(size))
        self.start = start_for(None, payload_bytes=len(self.data))
        self._answered = {}

    def answer(self, node):
        """Answer the questions that a node has asked since the last call."""
        node.poll()
        wanted = node.all(m.PayloadWanted)[self._answered.get(id(node), 0) :]
        self._answered[id(node)] = self._answered.get(id(node), 0) + len(wanted)
        for question in wanted:
            node.send(m.PayloadPiece(question.offset, self.data[question.offset : question.offset + m.PIECE_BYTES]))


def test_a_large_payload_comes_in_pieces_and_nothing_of_a_node_is_left_on_its_host(launch):
    node, payload = launch(cluster_id="leaves-nothing"), Payload()
    node.send(payload.start)
    eventually(lambda: payload.answer(node) or node.all(m.Ended))
    size, scratch = node.result()
    assert size == 7 * (1 << 18)
    assert "leaves-nothing" in scratch
    assert Path(scratch).stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_size for path in Path(scratch).glob("payload")] == [len(payload.data)]
    node.finish()
    node.end()
    assert not Path(scratch).exists()


def test_a_full_disk_is_named_with_the_size(launch, small_disk, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    node, payload = launch(owner=f"small-{os.getpid()}"), Payload(20 << 18)
    node.send(payload.start)
    eventually(lambda: payload.answer(node) or node.all(m.Ended))
    message = node.outcome().message
    assert message.startswith(f"the function and its arguments (5 MB): it cannot be kept in {small_disk}")
    assert "No space left on device); capture less, feed the rows" in message


# ---- folders that hosts share -------------------------------------------------------------------------------------


def test_a_node_whose_log_folder_differs_from_its_peers_does_not_start(launch, tmp_path):
    node = launch(shared_dir=str(tmp_path))
    assert len(list(tmp_path.glob(".tfos-*/*"))) == 1
    node.send(start_for(run_forever))
    outcome = node.outcome()
    assert (outcome.kind, outcome.error) == ("raised", "ConfigError")
    assert f"'{tmp_path}' is another folder for worker:0 (on " in outcome.message
    assert "than for chief:0, and restarts go on from a backup in it: give log_dir=..." in outcome.message
    node.wait_for(m.Drained)
    node.end()
    assert list(tmp_path.iterdir()) == []


def test_a_shared_folder_that_cannot_be_written_to_fails_the_start(launch, tmp_path):
    (tmp_path / "file").touch()
    node = launch(shared_dir=f"{tmp_path}/file/logs")
    node.send(start_for(run_forever))
    assert "(Not a directory), and restarts go on from a backup in it: give log_dir=..." in node.outcome().message
