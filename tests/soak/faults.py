"""What goes wrong in a soak, at a random moment: processes are killed or stopped, functions raise, users stop.

Nobody lets a stopped process go on: what is stopped is ended by those who miss it.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import psutil

from tests.soak.rounds import PATIENCE_S, Round
from tests.soak.traces import python_workers
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.engine.cluster import Cluster


def agents_of(game: Round) -> list[psutil.Process]:
    """Return the agents of a cluster."""
    return list(agents_by_rank(game.cluster).values())


def agents_by_rank(cluster: Cluster) -> dict[int, psutil.Process]:
    """Return the agents of a cluster, by its nodes' folders."""
    names = [path.name.rsplit("-", 2) for path in scratch_root().glob(f"{cluster.id}-*-*")]
    return {int(rank): psutil.Process(int(pid)) for _, rank, pid in names}


def children_of(game: Round) -> list[psutil.Process]:
    """Return the processes that run the functions."""
    return [psutil.Process(view.pid) for view in game.cluster.nodes if view.pid]


def kill_child(game: Round) -> None:
    game.rng.choice(children_of(game)).kill()


def stop_child(game: Round) -> None:
    """Stop a child as Ctrl-Z does: it hangs, and its heartbeats go on."""
    game.rng.choice(children_of(game)).send_signal(signal.SIGSTOP)


def kill_agent(game: Round) -> None:
    game.rng.choice(agents_of(game)).kill()


def stop_agent(game: Round) -> None:
    """Stop an agent: its node falls silent, and its child ends it."""
    game.rng.choice(agents_of(game)).send_signal(signal.SIGSTOP)


def _fork_server_of(forked: psutil.Process) -> Iterator[psutil.Process]:
    """Yield the fork server that a process came from; none if it has ended."""
    parent = forked.parent()
    if parent is not None and "forkserver" in " ".join(parent.cmdline()):
        yield parent


def kill_fork_server(game: Round) -> None:
    """Kill the process that a child was forked from."""
    for server in _fork_server_of(game.rng.choice(children_of(game))):
        server.kill()


def stop_fork_server(game: Round) -> None:
    """Stop the process that a child was forked from: the next cluster replaces it."""
    for server in _fork_server_of(game.rng.choice(children_of(game))):
        server.send_signal(signal.SIGSTOP)


def kill_plain_fork_server(game: Round) -> None:
    """Kill the process that an agent was forked from."""
    for server in _fork_server_of(game.rng.choice(agents_of(game))):
        server.kill()


def stop_plain_fork_server(game: Round) -> None:
    """Stop the process that an agent was forked from."""
    for server in _fork_server_of(game.rng.choice(agents_of(game))):
        server.send_signal(signal.SIGSTOP)


def kill_python_worker(game: Round) -> None:
    """Kill one of Spark's Python workers, busy or idle."""
    workers = python_workers()
    if workers:
        game.rng.choice(workers).kill()


def stop_cluster(game: Round) -> None:
    game.cluster.stop()


def interrupt(_game: Round) -> None:
    """Do what ■ does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def raise_in_function(_game: Round) -> None:
    """Do nothing: the function itself raises."""


FAULTS: tuple[Callable[[Round], None], ...] = (
    kill_child,
    stop_child,
    kill_agent,
    stop_agent,
    kill_fork_server,
    stop_fork_server,
    kill_plain_fork_server,
    stop_plain_fork_server,
    kill_python_worker,
    stop_cluster,
    interrupt,
    raise_in_function,
)


@contextlib.contextmanager
def done_to(game: Round, fault: Callable[[Round], None], rng: random.Random) -> Iterator[None]:
    """Do a fault to a cluster at a random moment of the block; the block may end before."""
    over, moment_s = threading.Event(), rng.uniform(0.0, 0.8)

    def work() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not over.is_set() and time.monotonic() < deadline:
            if all(view.pid for view in game.cluster.nodes):
                over.wait(moment_s)
                if not over.is_set():
                    with contextlib.suppress(psutil.NoSuchProcess, IndexError, ProcessLookupError):
                        fault(game)
                return
            time.sleep(0.005)

    thread = threading.Thread(target=work, name=f"fault-{fault.__name__}")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
