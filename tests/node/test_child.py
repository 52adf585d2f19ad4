"""The child: the user's function in its own process, what it finds there, what it prints, and how it ends."""
# ruff: noqa: T201 - what nodes print is what is tested

import atexit
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.quick import QUICK_ENV
from tfos_lab.core import messages as m

# ---- how it ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (None, m.Outcome(kind="returned", value=b"\xc0")),
        (0, m.Outcome(kind="returned", value=b"\xc0")),
        (3, m.Outcome(kind="exited", exit_code=3)),
        ("no data", m.Outcome(kind="exited", exit_code=1, message="no data")),
    ],
)
def test_sys_exit_ends_a_function_as_it_ends_a_script(run, code, expected):
    assert run(lambda: sys.exit(code)).outcome() == expected


def test_a_child_that_has_returned_stays_for_its_peers_until_the_driver_lets_it_exit(run):
    node = run(os.getpid)
    pid = node.result()
    assert node.beats()
    os.kill(pid, 0)
    node.finish()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_exit_functions_and_threads_of_the_function_may_finish_and_their_output_arrives(run):
    def map_fun():
        atexit.register(lambda: print("shutdown"))
        go = threading.Event()
        threading.Thread(target=lambda: (go.wait(), print("thread done"))).start()
        threading.Timer(0.2, go.set).start()

    node = run(map_fun)
    node.outcome()
    node.finish()
    assert node.output() == b"thread done\nshutdown\n"


def test_a_broken_pipe_is_an_exception_and_not_the_end(run):
    def map_fun():
        reading, writing = os.pipe()
        os.close(reading)
        try:
            os.write(writing, b"anybody there?")
        except BrokenPipeError:
            return "nobody"

    assert run(map_fun).result() == "nobody"


def test_a_function_may_handle_sigterm_like_any_program(run):
    def map_fun():
        def leave(number, frame):
            print("asked to leave", flush=True)
            sys.exit(number)

        signal.signal(signal.SIGTERM, leave)
        print("ready", flush=True)
        threading.Event().wait(60)

    node = run(map_fun)
    node.wait_for_output(b"ready")
    os.kill(node.pid, signal.SIGTERM)
    assert node.outcome() == m.Outcome(kind="exited", exit_code=15)
    node.finish()
    assert node.output() == b"ready\nasked to leave\n"


# Where the result belongs is another host.
ELSEWHERE = {"output_probe": "/nowhere/probe", "result_path": "/nowhere/worker-0"}


# ---- its results ---------------------------------------------------------------------------------------------------


def test_a_result_that_the_driver_cannot_take_fails_the_node_with_the_driver_s_sentence(run):
    node = run(lambda: np.arange(1 << 17), start=ELSEWHERE)
    listed = node.wait_for(m.FilesListed)
    told = "it cannot be kept in /runs (No space left on device)"
    node.send(m.FilesTaken("result", listed.number, problem=told))
    outcome = node.outcome()
    assert (outcome.kind, outcome.error, outcome.message) == ("raised", "ResultNotStored", told)


def test_a_stop_ends_a_node_whose_result_is_on_its_way(run):
    node = run(lambda: np.arange(1 << 17), start=ELSEWHERE)
    node.wait_for(m.FilesListed)
    node.send(m.Stop(grace_s=5.0))
    assert node.outcome().kind == "stopped"


# ---- its surroundings ----------------------------------------------------------------------------------------------


def test_the_environment_is_the_given_one_with_the_user_s_on_top_and_a_single_node_has_no_tf_config(run, monkeypatch):
    monkeypatch.setenv("TFOS_TEST_LATE", "set after the fork server was there, and not given")
    given = {"PATH": os.environ["PATH"], "TF_CONFIG": "left over", "TFOS_TEST_A": "executor", "TFOS_TEST_B": "executor"}
    users = {**QUICK_ENV, "TFOS_TEST_B": "user"}
    alone = {"cluster_spec": {"worker": ["b:2"]}}
    found = run(lambda: dict(os.environ), start=alone, environ=given, extra_env=users).result()
    assert (found["TFOS_TEST_A"], found["TFOS_TEST_B"]) == ("executor", "user")
    assert not {"TFOS_TEST_LATE", "TF_CONFIG"} & set(found)
    assert found["PYTHONUNBUFFERED"] == "1"


def test_children_of_one_fork_server_share_its_memory_and_nothing_else(run):
    def map_fun(args, ctx):
        before = getattr(sys, "leaked", None)
        sys.leaked = args
        return os.getppid(), before, len(list(Path("/proc/self/fd").iterdir()))

    first, *others = [run(map_fun, number).result() for number in range(3)]
    assert others == [first] * 2
    assert first[1] is None


def test_limits_umask_and_time_zone_of_the_agent_are_the_child_s(run, monkeypatch):
    def map_fun():
        mask = os.umask(0)
        os.umask(mask)
        return mask, time.strftime("%z"), Path.cwd().exists()

    before = os.umask(0o027)
    try:
        node = run(map_fun, environ={**os.environ, "TZ": "Etc/GMT-3"}, cwd="/no/such/folder")
        assert node.result() == (0o027, "+0300", True)
    finally:
        os.umask(before)


# ---- its working folder ----------------------------------------------------------------------------------------------


@pytest.fixture
def notebook(tmp_path):
    """The folder where the program was launched."""
    folder = tmp_path / "notebook"
    for name in ("data/x.csv", "data/deep/y.csv", ".hidden/z", "train.py", "emptied", "appended", "changed", "read"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("old")
    (folder / "beside_the_notebook.py").write_text("answer = 42\n")
    return folder


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_is_written_created_or_removed_is_the_node_s_alone(run, notebook):
    def map_fun():
        Path("emptied").write_text("new")
        with Path("appended").open("a") as file:
            file.write(" and new")
        with Path("changed").open("r+b") as file:
            file.write(b"n")
        os.close(os.open(os.fsencode("data/deep/y.csv"), os.O_WRONLY | os.O_TRUNC))
        Path("data/new.csv").write_text("4")
        Path("data/x.csv").unlink()
        names = ("emptied", "appended", "changed", "read", "data/deep/y.csv", "data/new.csv")
        return {name: Path(name).read_text() for name in names}

    before = files_in(notebook)
    assert run(map_fun, cwd=str(notebook)).result() == {
        "emptied": "new",
        "appended": "old and new",
        "changed": "nld",
        "read": "old",
        "data/deep/y.csv": "",
        "data/new.csv": "4",
    }
    assert files_in(notebook) == before


def test_a_node_is_not_shown_what_others_write_before_it_starts(launch, notebook):
    from tests.node.conftest import start_for

    node = launch(cwd=str(notebook))
    (notebook / "model").mkdir()  # a chief that stays in this folder was quicker
    node.send(start_for(lambda args, ctx: Path("model").mkdir()))
    assert node.outcome().kind == "returned"


# ---- what it does ----------------------------------------------------------------------------------------------------


def wait_for_rows(args, ctx):
    ctx.data_feed().next_batch(1)


def test_waiting_for_rows_and_memory_are_seen(run):
    node = run(wait_for_rows)
    seen = node.wait_for(m.Activity, lambda told: told.seen.waits_rows > 0.8 and told.seen.memory_bytes > 0).seen
    assert 0.0 < seen.host_memory < 1.0
    assert re.fullmatch(r"test_child\.py, line \d+, in wait_for_rows", seen.where)
