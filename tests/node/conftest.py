"""Children and agents of the tests' own: real processes from real fork servers, whose TensorFlow is a quick one."""

from __future__ import annotations

import os
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
from tfos_lab.payload.packing import pack

PATIENCE_S = 60.0
OWNER = f"tests-of-node-{os.getpid()}"


def launch_spec(**changes):
    """What an agent of these tests is told; its fork server ends with this process."""
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
    """What a driver says to a node of two."""
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
    """Which fork server a spec's child comes from, as an agent would say it."""
    from tfos_lab.node.forkserver.client import import_environ_of

    return spec.owner, "tensorflow", import_environ_of(spec.environ, spec.extra_env), spec.environ, spec.watched_pid


class Hatchling:
    """A child, read to its end: what it said, what it printed, how it left."""

    def __init__(self, link):
        self.link = link
        self.said = []
        self.output = {"stdout": b"", "stderr": b""}
        self._printed = threading.Condition()
        # Each reads from a descriptor of its own, which nobody closes meanwhile.
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

    def wait_for(self, data):
        """Wait until the child has printed this."""
        with self._printed:
            assert self._printed.wait_for(lambda: data in self.output["stdout"], PATIENCE_S), self.output

    def hear_until(self, kind):
        """Return the first message of a kind; those before it are in `said`."""
        self.link.control._sock.settimeout(PATIENCE_S)
        while True:
            message = m.decode_from_agent(self.link.control.receive()[0])
            self.said.append(message)
            if isinstance(message, kind):
                return message

    def signal(self, number):
        """Signal the process as an agent does."""
        if not self.link.pid:
            assert self.link.fork_server_reply() is None
        self.link.signal(number)

    def outcome(self):
        return self.hear_until(m.Ended).outcome

    def left(self):
        """Return how the process ended, as its fork server tells."""
        self.link.fork_server._sock.settimeout(PATIENCE_S)
        while True:
            outcome = self.link.fork_server_reply()
            if outcome is not None:
                break
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return outcome

    def finish(self):
        self.link.send(m.Finish(grace_s=1.0))
        return self.left()


@pytest.fixture
def hatch(tmp_path):
    """A function that starts a child: ``hatch(map_fun, args, start={}, **spec)``."""
    with ExitStack() as stack:

        def spawn(map_fun, args=None, *, start=None, **spec):
            spec = launch_spec(**spec)
            link = ChildLink.spawn(spec, start_for(map_fun, args, **(start or {})), fork_server_of(spec), tmp_path)
            stack.callback(link.close)
            return Hatchling(link)

        yield spawn


@pytest.fixture
def short_folder():
    """A temporary folder whose path is short enough for sockets; pytest's own are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)
