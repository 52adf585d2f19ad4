"""One node as its driver has it: a real agent, a real child of a real fork server, and a TensorFlow that is quick.

Tests send the driver's messages and look at what comes back: ``run(map_fun, args)`` starts a function, and returns the
node.
"""

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec
import pytest

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.quick import QUICK_ENV
from tfos_lab.core import messages as m
from tfos_lab.core.listener import Listener
from tfos_lab.core.payload import pack
from tfos_lab.core.values import decode_value
from tfos_lab.node.agent import Agent
from tfos_lab.node.driver_link import DriverLink

OWNER = f"tests-of-node-{os.getpid()}"


def launch_spec(**changes):
    """Return the launch spec of an agent; its fork servers end with this process."""
    spec = m.LaunchSpec(
        cluster_id="c",
        rank=0,
        node="worker:0",
        driver=m.DriverAddress("tcp://127.0.0.1:1", "", b""),
        owner=OWNER,
        watched_pid=os.getpid(),
        extra_env=QUICK_ENV,
        environ=dict(os.environ),
        cwd=str(Path.cwd()),
        sys_path=list(sys.path),
    )
    return msgspec.structs.replace(spec, **changes)


def start_for(map_fun, args=None, **changes):
    """Return the start message for one node of two."""
    start = m.Start(
        rank=0,
        cluster_spec={"chief": ["a:1"], "worker": ["b:2"]},
        job_name="worker",
        task_index=0,
        is_chief=False,
        payload=b"" if "payload_bytes" in changes else pack(map_fun, args),
        log_dir="/tmp/events",
    )
    return msgspec.structs.replace(start, **changes)


class Node:
    """A node's agent in a thread, and its driver, which is the test: it records messages, and sends what it wants."""

    def __init__(self, task_socket=None, *, answers=True, **spec):
        self.received = []
        self.answers = answers  # reservations, heartbeats and logs
        self._connection = 0
        self._listener = Listener()
        spec = launch_spec(driver=self._listener.address, **spec)
        self.agent = Agent(spec, DriverLink(spec.driver), task_socket)
        self.thread = threading.Thread(target=self._run, name="agent-under-test", daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.agent.run()
        finally:
            self.agent.close()

    def send(self, message):
        self._listener.send(self._connection, m.encode(message))

    def hang_up(self):
        """End the connection, as the system does when the driver is killed."""
        self._listener.close()

    def poll(self, seconds=0.02):
        for connection, data in self._listener.poll(seconds):
            if data is None:
                continue
            self._connection = connection
            message = m.decode_from_agent(data)
            self.received.append(message)
            if self.answers and isinstance(message, m.Heartbeat | m.Reserve):
                self.send(m.DriverHeartbeat())
            if self.answers and isinstance(message, m.Logs):
                self.send(m.LogCredit())

    def all(self, message_type):
        return [message for message in self.received if isinstance(message, message_type)]

    def wait_for(self, message_type, where=lambda message: True):
        """Return the first message of a type (among all received so far), waiting for it."""

        def first():
            self.poll()
            found = [message for message in self.all(message_type) if where(message)]
            assert found, f"no {message_type.__name__} among {self.received[-20:]}"
            return found

        return eventually(first)[0]

    def wait_for_state(self, state):
        return self.wait_for(m.Progressed, lambda message: message.state == state)

    def wait_for_output(self, data, stream="stdout"):
        """Return all that the function has printed, once these bytes are part of it."""
        eventually(lambda: self.poll() or data in self.output(stream))
        return self.output(stream)

    def output(self, stream="stdout"):
        records = [record for message in self.all(m.Logs) for record in message.records]
        return b"".join(record.data for record in records if record.stream == stream)

    def beats(self):
        """Whether the agent shows signs of life now; the first one received may be an old one."""
        before = len(self.received)

        def signs():
            self.poll()
            return [sign for sign in self.received[before:] if isinstance(sign, m.Heartbeat | m.Activity)]

        return eventually(lambda: len(signs()) > 1)

    @property
    def pid(self):
        """The process of the function, once it runs."""
        return self.wait_for_state("running").pid

    def outcome(self):
        return self.wait_for(m.Ended).outcome

    def result(self):
        outcome = self.outcome()
        assert outcome.kind == "returned", outcome
        return decode_value(outcome.value)

    def finish(self, grace_s=5.0):
        """Let the process exit, and wait until everything of it is here."""
        self.send(m.Finish(grace_s=grace_s))
        self.wait_for(m.Drained)

    def end(self):
        """Let the agent end, as a driver does that has everything."""
        self.send(m.Shutdown())
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()

    def close(self):
        """End the agent, with all that is its own; may be called twice."""
        if self._listener is None:
            return
        self.agent.leave()
        self.thread.join(PATIENCE_S)
        self._listener.close()
        self._listener = None
        assert not self.thread.is_alive(), "an agent that never ends"


@pytest.fixture
def launch():
    """A function that launches an agent, which reserves: ``launch(task_socket, **spec)``."""
    nodes = []

    def launch(task_socket=None, **spec):
        nodes.append(Node(task_socket, **{"rank": len(nodes), **spec}))
        nodes[-1].wait_for(m.Reserve)
        return nodes[-1]

    yield launch
    for node in nodes:
        node.close()


@pytest.fixture
def run(launch):
    """A function that runs another one on a node: ``run(map_fun, args, start={}, **spec)``."""

    def run(map_fun, args=None, *, start=None, **spec):
        node = launch(**spec)
        node.send(start_for(map_fun, args, **(start or {})))
        return node

    return run


@pytest.fixture
def short_folder():
    """A temporary folder whose path is short enough for sockets; pytest's own are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def small_disk(short_folder):
    """A real disk of 3 MB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(short_folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user cannot mount a tmpfs")
    yield short_folder
    subprocess.run(["umount", "-l", str(short_folder)], check=True)
