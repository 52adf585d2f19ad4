"""What nodes do in the tests on several hosts, without TensorFlow."""

import contextlib
import socket
import threading
import time
from pathlib import Path


def meet(args, ctx):
    """Have every node connect to every other at its address in the cluster spec, as TensorFlow's servers do."""
    own = ctx.cluster_spec[ctx.job_name][ctx.task_index]
    peers = [at for addresses in ctx.cluster_spec.values() for at in addresses if at != own]
    with ctx._take_port() as listener:
        listener.listen()
        met = threading.Thread(target=lambda: [listener.accept()[0].close() for _ in peers])
        met.start()
        for peer in peers:
            _connect(peer)
        met.join(30)
    return {"host": socket.gethostname(), "at": own, "met": 0 if met.is_alive() else len(peers)}


def _connect(address):
    """Connect as soon as somebody listens there."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((host.strip("[]"), int(port)), timeout=20).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def take_rows(args, ctx):
    """Return the rows of all feeds, and the host."""
    feed, rows = ctx.data_feed(), []
    while not feed.should_stop():
        rows += feed.next_batch(100)
    return {"host": socket.gethostname(), "rows": rows}


def answer_rows(args, ctx):
    """Answer each row with the host's name and its double."""
    feed, count = ctx.data_feed(train_mode=False), 0
    while not feed.should_stop():
        batch = feed.next_batch(50)
        count += len(batch)
        feed.batch_results([(row, 2 * row, socket.gethostname()) for row in batch])
    return count


def write_files(args, ctx):
    """Write a file of output, and one that TensorBoard would read."""
    Path(ctx.output_dir, f"from-{socket.gethostname()}.txt").write_text(ctx.node)
    if ctx.is_chief:
        folder = Path(ctx.event_dir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"events.out.tfevents.1.{socket.gethostname()}").write_bytes(b"event" * 100)
    return socket.gethostname()


def work_until_told(args, ctx):
    """Work until there is a file ``/tmp/done`` on this host, and report each turn."""
    turns = 0
    while not Path("/tmp/done").exists():
        turns += 1
        ctx.report(turns)
        time.sleep(0.1)
    return socket.gethostname()


@contextlib.contextmanager
def told_to_end(*hosts):
    """At the end of the block, have `work_until_told` return on these hosts."""
    for host in hosts:
        host.run("rm", "-f", "/tmp/done")
    try:
        yield
    finally:
        for host in hosts:
            host.run("touch", "/tmp/done")
