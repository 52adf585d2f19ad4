"""Real children and agents from real fork servers, with a TensorFlow that is quick to import."""

from __future__ import annotations

import os
import select
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from tests.support.quick import QUICK_ENV
from tfos_lab import messages as m
from tfos_lab.node.child_link import ChildLink
from tfos_lab.node.forkserver.client import ForkServerSpec
from tfos_lab.payload.packing import pack

PATIENCE_S = 60.0
OWNER = f"tests-of-node-{os.getpid()}"


def launch_spec(**changes):
    """Return the launch spec of an agent; its fork servers end with this process."""
    spec = m.LaunchSpec(
        cluster_id="c",
        rank=0,
        node="worker:0",
        driver=m.DriverAddress("tcp://127.0.0.1:1", "", "", ""),
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
        cluster_id="c",
        rank=0,
        cluster_spec={"chief": ["a:1"], "worker": ["b:2"]},
        job_name="worker",
        task_index=0,
        is_chief=False,
        payload=pack(map_fun, args),
        env={},
        log_dir="/tmp/events",
    )
    return msgspec.structs.replace(start, **changes)


def fork_server_of(spec):
    """Return the fork server that an agent would fork the child from."""
    return ForkServerSpec.tensorflow(spec.owner, spec.environ, spec.watched_pid, spec.extra_env)


class RunningChild:
    """A child, with its messages, its output, and its outcome."""

    def __init__(self, link):
        self.link = link
        self.received = []
        self.output = {"stdout": b"", "stderr": b""}
        self._printed = threading.Condition()
        # Each thread reads from a copy of the descriptor, which is not closed under it.
        self._readers = [
            threading.Thread(target=self._read, args=(pipe.stream, os.dup(pipe.read_fd)), daemon=True)
            for pipe in link.pipes
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream, descriptor):
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "rb", buffering=0) as output:
            while data := output.read(1 << 16):
                with self._printed:
                    self.output[stream] += data
                    self._printed.notify_all()

    def wait_for_output(self, data):
        """Wait until the child has printed this."""
        with self._printed:
            assert self._printed.wait_for(lambda: data in self.output["stdout"], PATIENCE_S), self.output

    def wait_for(self, message_type):
        """Return the first message of a type; those before it are in `received`."""
        self.link.control._sock.settimeout(PATIENCE_S)
        while True:
            message = m.decode_from_agent(self.link.control.receive().data)
            self.received.append(message)
            if isinstance(message, message_type):
                return message

    def signal(self, number):
        """Signal the process as an agent does, once it has been forked."""
        while not self.link.pid:
            assert select.select([self.link.fork_server], [], [], PATIENCE_S)[0]
            assert self.link.receive_outcome() is None
        self.link.signal(number)

    def outcome(self):
        return self.wait_for(m.Ended).outcome

    def wait_for_exit(self):
        """Return how the process ended, as its fork server reports it."""
        while (outcome := self.link.receive_outcome()) is None:
            select.select([self.link.fork_server], [], [], PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return outcome

    def finish(self):
        self.link.send(m.Finish(grace_s=1.0))
        return self.wait_for_exit()


@pytest.fixture
def start_child(tmp_path):
    """A function that starts a child: ``start_child(map_fun, args, start={}, **spec)``."""
    with ExitStack() as stack:

        def start_child(map_fun, args=None, *, start=None, **spec):
            spec = launch_spec(**spec)
            link = ChildLink.spawn(spec, start_for(map_fun, args, **(start or {})), fork_server_of(spec), tmp_path)
            stack.callback(link.close)
            return RunningChild(link)

        yield start_child


@pytest.fixture
def short_folder():
    """A temporary folder whose path is short enough for sockets; pytest's own are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)
