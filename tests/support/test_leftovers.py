"""The check for leftovers finds what is ours, and only that."""

import subprocess
import sys
import threading

from tests.support.leftovers import Stock

# Its command line names a module of the node, as those of agents and children do.
WAITING = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "tfos_lab.node.agent"]


def test_a_thread_of_ours_that_stays_is_named():
    stock, end = Stock(), threading.Event()
    thread = threading.Thread(target=end.wait, name="tfos-lasting")
    thread.start()
    try:
        assert stock.leftovers(within_s=0) == ["thread tfos-lasting"]
    finally:
        end.set()
        thread.join()


def test_processes_of_another_test_run_do_not_count():
    stock = Stock()
    env = {"TFOS_LAB_TEST_RUN": "another"}
    with subprocess.Popen(WAITING, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        process.stdout.readline()  # its command line cannot be read before it has begun
        assert stock.leftovers(within_s=0) == []
        process.stdin.close()


def test_a_fork_server_may_stay_but_not_what_is_forked_from_it(tmp_path):
    stock = Stock()
    # A parent and its fork, as a fork server and its child: one command line for both. Each says its number in one
    # piece.
    code = r"import os, sys; os.fork(); os.write(1, b'%d\n' % os.getpid()); sys.stdin.read()"
    command = [sys.executable, "-c", code, "tfos_lab.node.forkserver.main"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as fork_server:
        pids = {int(fork_server.stdout.readline()) for _ in range(2)}
        (left,) = stock.leftovers(within_s=0)
    (child,) = pids - {fork_server.pid}
    assert left.startswith(f"process {child} (")
