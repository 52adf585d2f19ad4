"""What a node's function has started goes with it, whatever session, parent or environment it has."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from tests.misfortune.conftest import PATIENCE_S, Family, failure_of, gone

IGNORES_SIGTERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); "


def start_descendants(folder, node, environ):
    """Start processes that nobody would find by group or parent; leave their pids in files."""
    # A session of its own, deaf to SIGTERM.
    command = [sys.executable, "-c", IGNORES_SIGTERM + "time.sleep(600)"]
    deaf = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, env=environ)
    deaf.stdout.readline()
    (folder / f"deaf-{node}").write_text(str(deaf.pid))
    # A daemon as in a book: two forks, a session of its own, no descriptors.
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            (folder / f"daemon-{node}").write_text(str(os.getpid()))
            os.closerange(0, 256)
            time.sleep(600)
        os._exit(0)
    os.wait()
    # A program whose parent has gone.
    shell = f"{sys.executable} -c 'import time; time.sleep(600)' > /dev/null 2>&1 & echo $!"
    script = subprocess.run(["/bin/sh", "-c", shell], start_new_session=True, stdout=subprocess.PIPE, check=True)
    (folder / f"program-{node}").write_text(script.stdout.decode())


def start_and(ending):
    # The fork server finds even what has lost the node's environment; where it is killed, there is only the mark.
    environ = None if ending.startswith("fork server") else {}

    def map_fun(folder, ctx):
        start_descendants(folder, ctx.node, environ)
        while not (folder / "seen").exists():
            time.sleep(0.02)
        if ending == "return":
            return
        if ending == "raise" and ctx.is_chief:
            raise ValueError("enough")
        while True:
            time.sleep(0.1)

    return map_fun


def started(folder):
    """Wait until both nodes have started theirs; return them."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        texts = [path.read_text().strip() for path in folder.iterdir()]
        if len(texts) == 6 and all(texts):
            processes = [psutil.Process(int(text)) for text in texts]
            (folder / "seen").touch()
            return processes
        assert time.monotonic() < deadline, "they did not start"
        time.sleep(0.02)


def kill_at_once(family, *, plain_too):
    """Kill the agents and the fork servers, none of which has the time to do anything."""
    processes = [family.fork_server, *([family.plain_fork_server] if plain_too else []), *family.agents]
    for process in reversed(processes):
        process.suspend()
    for process in processes:
        process.kill()


def kill_and_keep_the_last_until_the_cluster_has_failed(cluster, family):
    """Kill agents and fork servers, that of the agents last: it is stopped, and sees nothing of it."""
    family.plain_fork_server.suspend()
    kill_at_once(family, plain_too=False)
    failure_of(cluster)
    family.plain_fork_server.kill()


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "pids"
    folder.mkdir()
    return folder


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    "ending",
    ["return", "raise", "stop", "child", "agent", "fork server", "fork server and agents", "fork servers and agents"],
)
def test_nothing_that_a_node_has_started_survives_the_run(run, folder, ending):
    cluster = run(start_and(ending), folder)
    family, processes = Family.of(cluster), started(folder)
    if ending == "stop":
        cluster.stop()
    elif ending.endswith("and agents"):
        kill_at_once(family, plain_too=ending.startswith("fork servers"))
    elif ending in ("child", "agent", "fork server"):
        {"child": family.children[0], "agent": family.agents[0], "fork server": family.fork_server}[ending].kill()
    if ending == "return":
        cluster.wait(timeout_s=60)
    elif ending != "stop":
        failure_of(cluster)
    assert gone(processes)


@pytest.mark.leaves_nothing
def test_nor_does_it_where_the_agents_fork_server_is_gone_only_when_the_cluster_has_failed(run, folder):
    cluster = run(start_and("fork servers"), folder)
    family, processes = Family.of(cluster), started(folder)
    kill_and_keep_the_last_until_the_cluster_has_failed(cluster, family)
    assert gone(processes)


@pytest.fixture
def spark_mode():
    return "standalone"


@pytest.mark.leaves_nothing
@pytest.mark.parametrize("is_at_once", [True, False])
def test_nothing_on_an_executor_survives_when_all_that_could_end_it_is_killed(spark, run, folder, is_at_once):
    cluster = run(start_and("fork servers"), folder, cluster_size=2)
    family, processes = Family.of(cluster), started(folder)
    if is_at_once:
        kill_at_once(family, plain_too=True)
        failure_of(cluster)
    else:
        kill_and_keep_the_last_until_the_cluster_has_failed(cluster, family)
    assert gone(processes)
