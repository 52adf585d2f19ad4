"""What a start, an empty run and a feed cost, in counts."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tests.support.quick import QUICK_ENV
from tfos_lab.core.listener import AgentData, Listener

pytestmark = pytest.mark.leaves_nothing

NODES = 4
RUNS = "tfos_runs"
# Record, figures for the notebook, locks of fork servers, and what the system says of processes; not one for each run.
FEW_FILES = 25
# These come as time passes, whatever a node does.
PERIODIC = {"Heartbeat", "DriverHeartbeat", "Activity"}


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a run takes: messages by type, processes, files that the driver opens, and links in each node's folder."""

    messages: dict[str, int]
    fork_servers: int
    processes: int
    opened: int
    links: tuple[int, ...]


def look_around(args, ctx):
    """Return the processes of this node, and how many links its folder has."""
    links = sum(Path(folder, name).is_symlink() for folder, folders, files in os.walk(".") for name in folders + files)
    return os.getppid(), os.getpid(), links


@pytest.fixture
def messages(monkeypatch):
    """The messages between the driver and its nodes from now on: how many of each type."""
    counts = Counter()
    receive, send_to_all = Listener.post, Listener.send_to_all

    def add(data, times=1):
        message = msgspec.msgpack.decode(data)
        # A node says that it imports if it starts before its child is forked.
        if message.get("type") not in PERIODIC and message.get("state") != "importing":
            counts[message.get("type")] += times

    def post(self, item):
        if isinstance(item, AgentData) and item.data is not None:
            add(item.data)
        receive(self, item)

    def send(self, connections, data):
        connections = list(connections)
        add(data, len(connections))
        send_to_all(self, connections, data)

    monkeypatch.setattr(Listener, "post", post)
    monkeypatch.setattr(Listener, "send_to_all", send)
    return counts


@pytest.fixture(scope="module")
def opened():
    """The paths of the files that this process opens from now on."""
    paths = set()

    def hook(event, arguments):
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            paths.add(os.fsdecode(arguments[0]))

    sys.addaudithook(hook)  # for good: there is no way to take one away
    return paths


def of_nothing(folder):
    """An empty folder."""


def of_files(folder):
    """A folder of 300 files."""
    for number in range(300):
        (folder / f"data-{number}.csv").write_text("1,2")


def of_runs(folder):
    """A folder where 100 clusters have run."""
    for number in range(100):
        run = folder / RUNS / f"20260101-0000{number:02}-mnist-{number:06x}"
        run.mkdir(parents=True)
        for name in "run.json", "events.jsonl", "chief-0.log":
            (run / name).write_text("{}")


@pytest.fixture
def cost(run, messages, opened, tmp_path, monkeypatch):
    """Run four nodes in a folder that a function has filled, and return what that takes."""

    def measure(fill):
        folder = tmp_path / fill.__name__
        folder.mkdir()
        fill(folder)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("TFOS_LAB_RUNS", RUNS)
        run(look_around, cluster_size=NODES, env=QUICK_ENV).wait(timeout=100)  # whatever is needed is imported then
        messages.clear()
        opened.clear()
        cluster = run(look_around, cluster_size=NODES, env=QUICK_ENV)
        forked_by, pids, links = zip(*cluster.wait(timeout=100).values(), strict=True)
        cluster.stop()
        return Cost(dict(messages), len(set(forked_by)), len(set(pids)), len(opened), links)

    return measure


@pytest.fixture
def costs(once, cost):
    """What that takes in a folder of nothing, of files, and of earlier runs."""
    return once("costs", lambda: {fill.__name__: cost(fill) for fill in (of_nothing, of_files, of_runs)})


@pytest.mark.back_ends("local")
def test_a_run_costs_the_same_in_an_empty_folder_and_in_one_of_files_or_of_earlier_runs(costs):
    first, *others = costs.of_nothing, costs.of_files, costs.of_runs
    for other in others:
        assert dataclasses.replace(other, opened=first.opened, links=first.links) == first
    assert max(one.opened for one in (first, *others)) < FEW_FILES


@pytest.mark.back_ends("local")
def test_an_empty_run_of_four_nodes_is_one_fork_and_nine_messages_for_each_but_for_those_about_peers(costs):
    empty = costs.of_nothing
    once = ("Reserve", "Start", "FeedsEnded", "Ended", "Finish", "Drained", "Shutdown")
    about_peers = NODES * (NODES - 1) // 2  # each that returns, to those that have not
    expected = {**dict.fromkeys(once, NODES), "Progressed": 2 * NODES, "PeerReturned": about_peers}
    assert empty.messages == expected
    assert (empty.fork_servers, empty.processes) == (1, NODES)


@pytest.mark.back_ends("local")
def test_a_folder_is_one_link_for_each_of_its_entries_and_one_for_all_runs(costs):
    chief, *others = costs.of_runs.links
    assert (chief, others) == (0, [1] * (NODES - 1)), "the chief works in the folder itself"
    chief, *others = costs.of_files.links
    assert (chief, others) == (0, [301] * (NODES - 1))


@pytest.fixture
def asked(monkeypatch):
    """What this thread asks Spark's JVM, is answered, and may be interrupted in: lists; ``at`` is where it is."""
    from py4j.clientserver import ClientServerConnection

    asked, send = SimpleNamespace(begun=[], answered=[], open=[], at=0), ClientServerConnection.send_command
    usual = signal.getsignal(signal.SIGINT)

    def ask(self, command):
        if threading.current_thread() is not threading.main_thread():
            return send(self, command)
        asked.begun.append(command)
        if signal.getsignal(signal.SIGINT) is usual:
            asked.open.append(command)
        if len(asked.begun) == asked.at:
            signal.raise_signal(signal.SIGINT)
        answer = send(self, command)
        asked.answered.append(command)
        return answer

    monkeypatch.setattr(ClientServerConnection, "send_command", ask)
    return asked


@pytest.mark.back_ends("local-session")
def test_a_start_asks_the_session_s_jvm_a_few_things(run, asked):
    run(look_around, cluster_size=1, env=QUICK_ENV).wait(timeout=100)
    asked.begun.clear()
    run(look_around, cluster_size=1, env=QUICK_ENV).wait(timeout=100)
    assert len(asked.begun) < 50, "not for each of all settings, for which py4j has iterators"


@pytest.mark.back_ends("local-session")
def test_an_interrupt_waits_for_what_the_jvm_is_asked(run, asked, frame):
    """Py4j closes connections of other threads where it is interrupted, and their jobs begin anew."""
    rows = frame(10, 10)

    def feed():
        run(read_all, cluster_size=1, env=QUICK_ENV).train(rows)

    feed()
    asked.begun.clear()
    asked.open.clear()
    feed()
    assert asked.begun
    assert asked.open == []
    asked.at = len(asked.begun) // 2
    asked.begun.clear()
    asked.answered.clear()
    with pytest.raises(KeyboardInterrupt):
        feed()
    assert asked.begun == asked.answered


def read_all(args, ctx):
    """Read all rows; return how many."""
    feed, count = ctx.data_feed(), 0
    while not feed.should_stop():
        count += len(feed.next_batch(100))
    return count


@pytest.mark.back_ends("local-session")
def test_the_driver_has_little_to_do_with_a_feed_of_40000_rows(run, messages, frame):
    cluster = run(read_all, cluster_size=2, env=QUICK_ENV)
    messages.clear()
    cluster.train(frame(*[10_000] * 4))
    assert sum(cluster.wait(timeout=100).values()) == 40_000
    assert sum(messages.values()) < 60, "some for each node and partition, none for a batch or a row"


def copied_bytes(args, ctx):
    """Read all rows as batches of tensors; return how many there were, and how much memory Arrow took for them."""
    import pyarrow as pa

    pool = pa.default_memory_pool()
    before = pool.total_bytes_allocated()
    rows = sum(len(batch["x"]) for batch in ctx.dataset(64))
    return rows, pool.total_bytes_allocated() - before


@pytest.mark.tensorflow
@pytest.mark.back_ends("local-session")
def test_a_node_copies_no_rows_until_they_are_tensors(run, frame):
    cluster = run(copied_bytes, cluster_size=1)
    cluster.train(frame(*[10_000] * 4).selectExpr("transform(sequence(1, 64), i -> cast(i * x as float)) as x"))
    assert cluster.wait(timeout=200)["chief:0"] == (40_000, 0)
