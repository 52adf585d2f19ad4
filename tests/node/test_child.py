"""The child: the user's function in its own process, its messages, its output, its end."""
# ruff: noqa: T201 - what nodes print is what is tested

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.quick import QUICK_ENV
from tfos_lab import messages as m
from tfos_lab.values import decode_value


def result_of(child):
    outcome = child.outcome()
    assert outcome.kind == "returned", outcome
    return decode_value(outcome.value)


# ---- the call -----------------------------------------------------------------------------------------------------


def test_a_function_gets_its_arguments_and_context_and_its_result_comes_back(start_child):
    child = start_child(lambda args, ctx: {"args": args, "node": ctx.node, "same": ctx.args == args}, {"lr": 0.1})
    assert result_of(child) == {"args": {"lr": 0.1}, "node": "worker:0", "same": True}


@pytest.mark.parametrize(
    ("map_fun", "expected"),
    [(lambda: "nothing", "nothing"), (lambda args: args, 7), (lambda *both: len(both), 2)],
    ids=["none", "args only", "any number"],
)
def test_a_function_is_called_with_as_many_arguments_as_it_takes(start_child, map_fun, expected):
    assert result_of(start_child(map_fun, 7)) == expected


def test_a_child_reports_that_it_runs_before_the_first_line(start_child):
    child = start_child(os.getpid)
    running = child.wait_for(m.Progressed)
    assert (running.state, running.pid) == ("running", result_of(child))


def test_the_pid_of_a_child_is_known_before_its_first_message(start_child):
    child = start_child(os.getpid)
    running = child.wait_for(m.Progressed)
    assert child.link.receive_outcome() is None
    assert child.link.pid == running.pid


def test_a_function_that_cannot_be_loaded_is_reported_with_the_reason(start_child):
    child = start_child(print, start={"payload": b"garbage"})
    outcome = child.outcome()
    assert (outcome.kind, outcome.error) == ("raised", "PayloadError")
    assert "not packed by this version of tfos_lab" in outcome.message


# ---- how it ends --------------------------------------------------------------------------------------------------


def test_an_exception_comes_with_its_type_its_message_and_the_user_s_line(start_child):
    def map_fun():
        numbers = []
        return 1 / len(numbers)

    outcome = start_child(map_fun).outcome()
    assert (outcome.kind, outcome.error, outcome.message) == ("raised", "ZeroDivisionError", "division by zero")
    assert f'File "{__file__}", line' in outcome.traceback
    assert "return 1 / len(numbers)" in outcome.traceback
    assert "invoke.py" not in outcome.traceback


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (None, m.Outcome(kind="returned", value=b"\xc0")),
        (0, m.Outcome(kind="returned", value=b"\xc0")),
        (3, m.Outcome(kind="exited", exit_code=3)),
        ("no data", m.Outcome(kind="exited", exit_code=1, message="no data")),
    ],
)
def test_sys_exit_ends_a_function_as_it_ends_a_script(start_child, code, expected):
    assert start_child(lambda: sys.exit(code)).outcome() == expected


def test_a_child_that_has_returned_stays_for_its_peers_until_the_driver_lets_it_exit(start_child):
    child = start_child(os.getpid)
    pid = result_of(child)
    os.kill(pid, 0)
    assert child.finish() == m.Outcome(kind="exited", exit_code=0)


def test_exit_functions_run_and_their_output_arrives(start_child):
    def map_fun():
        import atexit

        atexit.register(lambda: print("shutdown"))

    child = start_child(map_fun)
    child.outcome()
    child.finish()
    assert child.output["stdout"] == b"shutdown\n"


def test_a_broken_pipe_is_an_exception_and_not_the_end(start_child):
    def map_fun():
        reading, writing = os.pipe()
        os.close(reading)
        try:
            os.write(writing, b"anybody there?")
        except BrokenPipeError:
            return "nobody"

    assert result_of(start_child(map_fun)) == "nobody"


def test_the_threads_of_the_function_may_finish(start_child):
    def map_fun():
        import threading

        go = threading.Event()
        threading.Thread(target=lambda: (go.wait(), print("thread done"))).start()
        threading.Timer(0.2, go.set).start()

    child = start_child(map_fun)
    child.outcome()
    child.finish()
    assert child.output["stdout"] == b"thread done\n"


def test_a_child_whose_agent_has_ended_exits(start_child):
    def map_fun():
        import threading

        print("up", flush=True)
        threading.Event().wait()

    child = start_child(map_fun)
    child.wait_for(m.Progressed)
    child.link.control.close()
    assert child.wait_for_exit().exit_code == 113


def test_a_signal_that_ended_the_child_is_reported(start_child):
    child = start_child(lambda: os.kill(os.getpid(), signal.SIGSEGV))
    child.wait_for(m.Progressed)
    assert child.wait_for_exit() == m.Outcome(kind="exited", exit_code=-signal.SIGSEGV)
    assert b"Segmentation fault" in child.output["stderr"]  # and the stack of each thread
    assert b"test_child.py" in child.output["stderr"]


def test_a_child_can_be_interrupted_and_terminated_like_any_program(start_child):
    def map_fun():
        import signal
        import threading

        def leave(number, frame):
            print("asked to leave", flush=True)
            sys.exit(number)

        signal.signal(signal.SIGTERM, leave)
        print("ready", flush=True)
        threading.Event().wait(60)

    child = start_child(map_fun)
    child.wait_for(m.Progressed)
    child.wait_for_output(b"ready")
    child.signal(signal.SIGTERM)
    assert child.outcome() == m.Outcome(kind="exited", exit_code=15)


# ---- its surroundings ----------------------------------------------------------------------------------------------


def test_output_is_separated_by_stream_whether_python_or_c_has_printed_it(start_child):
    def map_fun():
        print("from python")
        os.write(1, b"from c\n")
        print("to stderr", file=sys.stderr)
        os.write(2, b"from c to stderr\n")
        print("no newline at the end", end="")

    child = start_child(map_fun)
    child.outcome()
    child.finish()
    assert child.output["stdout"] == b"from python\nfrom c\nno newline at the end"
    assert child.output["stderr"] == b"to stderr\nfrom c to stderr\n"


def test_text_that_cannot_be_encoded_is_printed_with_escapes(start_child):
    child = start_child(lambda: print("lone \udc80 surrogate ✓"))
    child.outcome()
    child.finish()
    assert child.output["stdout"] == "lone \\udc80 surrogate ✓\n".encode()


def test_nothing_can_be_read_from_stdin(start_child):
    assert result_of(start_child(lambda: sys.stdin.read() + os.read(0, 1).decode())) == ""


def test_the_environment_is_the_given_one_with_the_user_s_on_top(start_child, monkeypatch):
    monkeypatch.setenv("TFOS_TEST_LATE", "set after the fork server was there, and not given")
    given = {"PATH": os.environ["PATH"], "TFOS_TEST_A": "executor", "TFOS_TEST_B": "executor"}
    found = result_of(
        start_child(lambda: dict(os.environ), environ=given, extra_env={**QUICK_ENV, "TFOS_TEST_B": "user"})
    )
    assert (found["TFOS_TEST_A"], found["TFOS_TEST_B"]) == ("executor", "user")
    assert "TFOS_TEST_LATE" not in found
    assert found["PYTHONUNBUFFERED"] == "1"


def test_tf_config_names_the_task_and_leaves_the_evaluator_out(start_child):
    spec = {"chief": ["a:1"], "evaluator": ["e:3"], "worker": ["b:2"]}
    child = start_child(lambda: os.environ["TF_CONFIG"], start={"cluster_spec": spec})
    assert json.loads(result_of(child)) == {
        "cluster": {"chief": ["a:1"], "worker": ["b:2"]},
        "task": {"type": "worker", "index": 0},
    }


def test_a_single_node_has_no_tf_config(start_child):
    child = start_child(
        lambda: os.environ.get("TF_CONFIG"),
        start={"cluster_spec": {"worker": ["b:2"]}},
        environ={**os.environ, "TF_CONFIG": "left over"},
    )
    assert result_of(child) is None


@pytest.mark.parametrize(("gpus", "visible"), [(["1", "2"], "1,2"), ([], "-1"), (None, "as it was")])
def test_a_node_sees_only_its_own_gpus(start_child, gpus, visible):
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "as it was"}
    assert result_of(start_child(lambda: os.environ["CUDA_VISIBLE_DEVICES"], gpus=gpus, environ=environ)) == visible


def test_modules_of_the_notebook_s_folder_can_be_imported(start_child, tmp_path):
    (tmp_path / "beside_the_notebook.py").write_text("answer = 42\n")

    def map_fun():
        import beside_the_notebook

        return beside_the_notebook.answer, str(Path.cwd())

    child = start_child(map_fun, cwd=str(tmp_path), sys_path=[str(tmp_path)])
    assert result_of(child) == (42, str(tmp_path))


def test_a_working_folder_that_this_host_lacks_is_ignored(start_child):
    assert result_of(start_child(lambda: 1, cwd="/no/such/folder")) == 1


def test_children_of_one_fork_server_share_its_memory_and_nothing_else(start_child):
    def map_fun(args, ctx):
        sys.leaked = args
        return os.getppid(), getattr(sys, "leaked", None)

    first, second = (
        result_of(start_child(map_fun, 1)),
        result_of(start_child(lambda: (os.getppid(), getattr(sys, "leaked", None)))),
    )
    assert first == (first[0], 1)
    assert second == (first[0], None)
