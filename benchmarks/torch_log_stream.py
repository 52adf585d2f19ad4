"""The log streaming of pyspark's TorchDistributor, without Torch: processes send lines, the driver writes a file."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

# The driver's side: it writes what it receives to stderr, until its stdin ends.
_SERVER = """
import sys
from pyspark.ml.torch.log_communication import LogStreamingServer
server = LogStreamingServer()
server.start("127.0.0.1")
print(server.port, flush=True)
sys.stdin.read()
server.shutdown()
"""

# A node's side. TorchDistributor reads these lines from a pipe first; that is omitted here.
_CLIENT = """
import sys, time
from pyspark.ml.torch.log_communication import LogStreamingClient
port, lines = map(int, sys.argv[1:])
client = LogStreamingClient("127.0.0.1", port)
print("ready", flush=True)
sys.stdin.readline()
for line in range(lines):
    client.send(f"{time.monotonic():.3f} line {line:07d} {'x' * 70}")
client.close()
"""
# If the server writes nothing for this long, the missing lines are lost.
_SILENCE_S = 5.0


def lines_per_s(nodes: int, lines: int) -> float:
    """Have processes send ``lines`` lines each; return how many per second reached the driver's file."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        log = Path(folder) / "driver.log"
        server = stack.enter_context(_python(_SERVER, stderr=log))
        port = _first_line(server)
        clients = [stack.enter_context(_python(_CLIENT, port, str(lines))) for _ in range(nodes)]
        for client in clients:
            assert _first_line(client) == "ready"
        started = time.perf_counter()
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("\n")
            client.stdin.flush()
        arrived, seconds = _watch(log, nodes * lines, started)
    return arrived / seconds


def _watch(log: Path, wanted: int, started: float) -> tuple[int, float]:
    """Return how many lines have come in the end, and how long they took."""
    arrived, last = 0, started
    with log.open("rb") as stream:
        while arrived < wanted and time.perf_counter() - last < _SILENCE_S:
            if more := stream.read(1 << 20).count(b"\n"):
                arrived, last = arrived + more, time.perf_counter()
            else:
                time.sleep(0.01)
    return arrived, last - started


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def _python(code: str, *arguments: str, stderr: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a Python until its stdin ends, which is when the block does."""
    command: Sequence[str] = [sys.executable, "-c", code, *arguments]
    pipe = subprocess.PIPE
    with ExitStack() as stack:
        errors = stack.enter_context(stderr.open("wb")) if stderr else None
        process = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True))
        yield process
