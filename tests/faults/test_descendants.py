"""What a node's function has started goes with it, whatever session, parent or environment it has."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from tests.faults.conftest import failure_of
from tests.faults.scene import wait_forever, waits_for
from tests.support.eventually import eventually
from tests.support.processes import gone

pytestmark = pytest.mark.leaves_nothing

_DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def start_descendants(folder, node, environ):
    """Start processes that nobody would find by group, parent or environment; leave their pids in files."""
    # A session of its own, deaf to SIGTERM.
    deaf = subprocess.Popen([sys.executable, "-c", _DEAF], stdout=subprocess.PIPE, start_new_session=True, env=environ)
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


def start_and_end(args, ctx):
    folder, ending = args
    # A fork server finds even what has lost the node's environment; where it is killed, there is only that mark.
    start_descendants(folder, ctx.node, None if ending == "fork server" else {})
    waits_for(folder / "seen")
    if ending == "raise" and ctx.is_chief:
        raise ValueError("enough")
    if ending != "return":
        wait_forever(args, ctx)


def play(scene, ending):
    """Start a cluster whose nodes start others; end it, and see that all have gone."""
    folder = scene.folder / "pids"
    folder.mkdir()
    cluster = scene.run(start_and_end, (folder, ending))
    pids = eventually(lambda: all_of([path.read_text().strip() for path in folder.iterdir()]))
    started = [psutil.Process(int(pid)) for pid in pids]
    (folder / "seen").touch()
    if ending == "stop":
        cluster.stop()
    elif ending == "return":
        cluster.wait(timeout=120)
    else:
        if ending == "fork server":
            scene.family.fork_server.kill()
        elif ending != "raise":
            {"child": scene.child, "agent": scene.agent}[ending]("chief:0").kill()
        failure_of(cluster)
    assert gone(started)


def all_of(pids):
    return pids if len(pids) == 6 and all(pids) else None


@pytest.mark.parametrize("ending", ["return", "raise", "stop", "child", "agent", "fork server"])
def test_nothing_that_a_node_has_started_survives_the_run(scene, ending):
    play(scene, ending)


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_nothing_that_a_node_on_an_executor_has_started_survives_it(spark, spark_mode, scene):
    play(scene, "agent")


def test_a_node_may_start_its_own_processes(run):
    def map_fun(args, ctx):
        import multiprocessing

        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(abs, [-1, -2, -3])

    assert set(map(tuple, run(map_fun).wait(timeout=120).values())) == {(1, 2, 3)}
