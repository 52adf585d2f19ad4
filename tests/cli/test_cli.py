"""The command line: what each command prints, what it starts, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

import nbformat
import pytest

from tests.support.daemon import Daemon
from tests.support.eventually import eventually
from tests.support.kernels import Kernels
from tests.support.quick import QUICK_ENV
from tfos_lab.cli import COMMANDS, demo, main

ROOT = Path(__file__).parents[2]


def write_notebook(path, *cells):
    made = [
        nbformat.v4.new_markdown_cell(text[3:]) if text.startswith("md:") else nbformat.v4.new_code_cell(text)
        for text in cells
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return path


# ---- choosing a command ---------------------------------------------------------------------------------------------


def test_without_a_command_all_commands_are_listed(capsys):
    assert main([]) == 2
    output = capsys.readouterr().out
    assert all(name in output for name in COMMANDS)


def test_an_unknown_command_is_refused_with_a_list_of_commands(capsys):
    assert main(["train"]) == 2
    there = "doctor, pack, demo, lab, bench, compat, mnist, run-script, history, warm"
    assert capsys.readouterr().err == f"tfos-lab has no command 'train'; there are {there}\n"


def test_an_interrupt_ends_a_command_without_a_traceback(capsys, monkeypatch):
    def interrupt(_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupt)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_help_imports_nothing_heavy():
    code = "import sys; from tfos_lab.cli import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"tensorflow", "pyspark", "IPython", "nbclient"} & set(done.stdout.split())


# ---- lab ------------------------------------------------------------------------------------------------------------


def test_lab_serves_the_notebooks_on_this_machine_only(tmp_path):
    write_notebook(tmp_path / "mine.ipynb", "1")
    command = [sys.executable, "-c", "from tfos_lab.cli import main; main()", "lab", str(tmp_path)]
    options = ["--no-browser", "--ip=127.0.0.1", "--port=0", "--IdentityProvider.token=secret"]
    with Daemon("tfos-lab lab", [*command, *options], log=tmp_path / "lab.log") as server:
        address = server.wait_for_url(r"(http://127\.0\.0\.1:\d+)/", timeout_s=120)
        url = f"{address}/api/contents?token=secret"
        with urlopen(url, timeout=30) as answer:
            assert "mine.ipynb" in answer.read().decode()


def test_lab_reports_a_missing_folder(capsys):
    assert main(["lab", "no-such-folder"]) == 2
    assert "there is no folder no-such-folder" in capsys.readouterr().err


# ---- bench ----------------------------------------------------------------------------------------------------------


def bench_in(checkout, code):
    """Start the command for a checkout whose benchmarks are ``code``."""
    (checkout / "benchmarks").mkdir()
    (checkout / "benchmarks" / "__init__.py").touch()
    (checkout / "benchmarks" / "__main__.py").write_text(code)
    command = (
        "import sys; from pathlib import Path; from tfos_lab.cli import bench, main; "
        "bench.find_checkout = lambda: Path(sys.argv[1]); sys.exit(main(['bench', *sys.argv[2:]]))"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", command, checkout, "7"], env=environ, cwd="/")


def test_bench_runs_the_benchmarks_of_the_checkout_and_has_their_exit_code(tmp_path):
    assert bench_in(tmp_path, "import sys; sys.exit(int(sys.argv[1]))").wait(60) == 7


def test_bench_that_is_terminated_leaves_nothing_running(tmp_path):
    pid = tmp_path / "pid"
    bench = bench_in(
        tmp_path,
        "import os, pathlib, time\n"
        f"pathlib.Path({str(pid)!r} + '.part').write_text(str(os.getpid()))\n"
        f"os.rename({str(pid)!r} + '.part', {str(pid)!r})\n"
        "time.sleep(600)",
    )
    eventually(pid.is_file)
    bench.terminate()
    bench.wait(60)
    eventually(lambda: not Path("/proc", pid.read_text()).exists())


# ---- demo -----------------------------------------------------------------------------------------------------------

STATE = {
    "clusters": [
        {
            "launcher": "local",
            "nodes": ["chief:0", "worker:0"],
            "rows_fed": {"chief:0": 4000, "worker:0": 4000},
            "rows_read": {"chief:0": 20000, "worker:0": 20000},
            "timings": {"launched": 0.5, "reserved": 0.75, "released": 0.76, "running": 4.75, "fed": 6.0, "done": 26.0},
            "model": "runs/mnist/output/model.keras",
        },
        {
            "launcher": "local",
            "nodes": ["chief:0"],
            "rows_fed": {},
            "rows_read": {},
            "timings": {"running": 0.17},
            "model": "",
        },
    ],
    "data": "8,000 training and 2,000 test images of 28 × 28: MNIST",
    "tested": 2000,
    "accuracy": 0.9765,
}


def test_the_report_has_nodes_rows_accuracy_and_seconds_per_phase():
    assert re.sub(r"\x1b\[[\d;]*m", "", demo.render_report(STATE)).splitlines() == [
        "Trained on 2 nodes of this machine.",
        "  nodes         chief:0, worker:0",
        "  data          8,000 training and 2,000 test images of 28 × 28: MNIST",
        "  rows fed      8,000, read 5 times (chief:0 4,000, worker:0 4,000)",
        "  accuracy      97.7% of 2,000 digits that it had not seen",
        "  model         runs/mnist/output/model.keras",
        "  seconds       launch 0.50 · reserve 0.25 · import and start 4.0 · feed 1.2 · train 20.0",
        "  next cluster  its first line ran 0.17 s after the call",
    ]


def test_demo_executes_a_notebook_and_reads_its_final_state(capsys, tmp_path):
    path = write_notebook(tmp_path / "tiny.ipynb", "md:## Add", "accuracy = 0.5 + 0.25", "print(accuracy)")
    assert main(["demo", str(path)]) == 0
    output = capsys.readouterr().out
    assert "✓ Add" in output
    assert "The notebook started no cluster." in output


def test_demo_shows_the_failed_cell_and_its_error(capsys, tmp_path):
    path = write_notebook(tmp_path / "wrong.ipynb", "md:## Divide", "a = 1", "b = a - 1\na / b")
    assert main(["demo", str(path)]) == 1
    output = capsys.readouterr()
    assert "✗ Divide" in output.out
    assert "Divide: cell 2 failed\n\n    b = a - 1\n    a / b\n" in output.err
    assert "ZeroDivisionError: division by zero" in output.err
    assert "\x1b" not in output.err


def test_demo_reports_that_the_kernel_died(capsys, tmp_path):
    path = write_notebook(tmp_path / "dies.ipynb", "import os; os._exit(3)")
    assert main(["demo", str(path)]) == 1
    assert "the notebook's kernel has gone" in capsys.readouterr().err


def test_an_interrupt_ends_demo_and_its_kernel(tmp_path):
    pid = tmp_path / "pid"
    path = write_notebook(
        tmp_path / "slow.ipynb",
        "import os, pathlib, time\n"
        f"pathlib.Path({str(pid)!r} + '.part').write_text(str(os.getpid()))\n"
        f"os.rename({str(pid)!r} + '.part', {str(pid)!r})\n"
        "time.sleep(60)",
    )
    demo = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from tfos_lab.cli import main; sys.exit(main(['demo', sys.argv[1]]))",
            path,
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(pid.is_file)
    demo.send_signal(signal.SIGINT)
    _, output = demo.communicate(timeout=30)
    assert demo.returncode == 130
    assert output.endswith("interrupted\n")
    assert "Traceback" not in output
    assert not Path("/proc", pid.read_text()).exists()


def test_demo_reports_missing_java_before_anything_starts(capsys, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    assert main(["demo"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "Java: JAVA_HOME=/no/such/java is no Java that runs; Spark needs Java 17 or newer" in output.err


@pytest.mark.parametrize("arguments", [["no-such.ipynb"], []])
def test_demo_reports_a_missing_notebook(arguments, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "find_checkout", lambda: None)
    assert main(["demo", *arguments]) == 1
    assert "notebook" in capsys.readouterr().err


# ---- doctor ---------------------------------------------------------------------------------------------------------


def test_doctor_returns_an_exit_code_that_scripts_can_read(capsys, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    assert main(["doctor"]) == 1
    assert "✗ Java" in capsys.readouterr().out


# ---- pack -----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_packed_is_one_sentence(capsys, tmp_path):
    assert main(["pack", str(tmp_path)]) == 1
    assert f"{tmp_path} is a folder; name a file" in capsys.readouterr().err
    assert main(["pack", f"{tmp_path}/a.tar.gz", "--exclude", "nothing"]) == 1
    assert "exclude: nothing is not installed" in capsys.readouterr().err


# ---- warm -----------------------------------------------------------------------------------------------------------


def test_warm_keeps_fork_servers_until_it_is_interrupted():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        kernels = Kernels(Path(folder))
        environ = kernels.environ | QUICK_ENV
        code = "import sys; from tfos_lab.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "warm"]
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as warm:
            said = [warm.stdout.readline() for _ in range(3)]
            assert len(kernels.fork_servers()) == 2
            warm.send_signal(signal.SIGINT)
            let_go = warm.stdout.read()
        stopped = subprocess.run([*command, "stop"], env=environ, capture_output=True, text=True, check=True).stdout
        kernels.close()
    assert said[0].startswith("warm after ")
    assert [line.split()[0] for line in said[1:]] == ["plain", "tensorflow"]
    assert warm.returncode == 0
    assert "let go: the fork servers end after ten minutes without use" in let_go
    assert stopped.startswith("ended: plain (process ")


def test_warm_says_why_nothing_can_be_kept(capsys):
    assert main(["warm"]) == 1
    assert capsys.readouterr().err.startswith("TFOS_LAB_FORK_SERVER=kernel: fork servers end with their kernel")
