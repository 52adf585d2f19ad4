"""The command line: what each command prints, what it starts, and how it ends."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

from tests.support.daemon import Daemon
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.kernels import Kernels
from tests.support.lazy import Lazy
from tests.support.processes import gone
from tests.support.quick import QUICK_ENV
from tfos_lab import demo
from tfos_lab.cli import COMMANDS, main

nbformat = Lazy("nbformat")

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
    there = "doctor, lab, run-script, history, pack, warm"
    assert capsys.readouterr().err == f"tfos-lab has no command 'train'; there are {there}\n"


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


# ---- demo -----------------------------------------------------------------------------------------------------------


def test_demo_shows_the_failed_cell_and_its_error(capsys, tmp_path):
    path = write_notebook(tmp_path / "wrong.ipynb", "md:## Divide", "a = 1", "b = a - 1\na / b")
    assert demo.main(path) == 1
    output = capsys.readouterr()
    assert "✗ Divide" in output.out
    assert "b = a - 1\na / b\n" in output.err
    assert "ZeroDivisionError: division by zero" in output.err
    assert "\x1b" not in output.err


def test_demo_reports_that_the_kernel_died(capsys, tmp_path):
    path = write_notebook(tmp_path / "dies.ipynb", "import os; os._exit(3)")
    assert demo.main(path) == 1
    assert "Kernel died" in capsys.readouterr().err


def test_an_interrupt_ends_demo_and_its_kernel(tmp_path):
    pid = tmp_path / "pid"
    path = write_notebook(
        tmp_path / "slow.ipynb",
        "import os, pathlib, time\n"
        f"pathlib.Path({str(pid)!r} + '.part').write_text(str(os.getpid()))\n"
        f"os.rename({str(pid)!r} + '.part', {str(pid)!r})\n"
        "time.sleep(600)",
    )
    demo = subprocess.Popen(
        [sys.executable, "-m", "tfos_lab.demo", path],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(pid.is_file)
    demo.send_signal(signal.SIGINT)
    _, output = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 130
    assert output.endswith("interrupted\n")
    assert "Traceback" not in output
    assert gone([int(pid.read_text())])


def test_demo_reports_missing_java_before_anything_starts(capsys, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    assert demo.main() == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "Java: JAVA_HOME=/no/such/java is no Java that runs; Spark needs Java 17 or newer" in output.err


def test_demo_without_its_notebook_says_where_it_is(capsys, monkeypatch):
    monkeypatch.setattr(demo, "find_checkout", lambda: None)
    assert demo.main() == 1
    assert "run this in a checkout" in capsys.readouterr().err


# ---- doctor ---------------------------------------------------------------------------------------------------------


def test_doctor_returns_an_exit_code_that_scripts_can_read(capsys, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    assert main(["doctor"]) == 1
    assert "✗ Java" in capsys.readouterr().out


# ---- pack -----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_packed_is_one_sentence(capsys, tmp_path):
    assert main(["pack", str(tmp_path)]) == 1
    assert f"{tmp_path} is a folder; name a file" in capsys.readouterr().err
    assert main(["pack", f"{tmp_path}/a.tar.bz2", "--exclude", "nothing"]) == 1
    refused = f"{tmp_path}/a.tar.bz2: Spark unpacks what ends in .tar.gz; name it such as {tmp_path}/a.tar.gz"
    assert refused in capsys.readouterr().err
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
