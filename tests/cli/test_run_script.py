"""``tfos-lab run-script``: how nodes are named, and what the exit code says."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.quick import QUICK_ENV
from tfos_lab.cli import main


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PYTHONPATH", QUICK_ENV["PYTHONPATH"])


@pytest.mark.parametrize(
    ("node", "params"),
    [
        ("worker", {}),
        ("chief:lr=0.1,name=a b,on=true", {"lr": 0.1, "name": "a b", "on": True}),
        ('worker:{"units": [1, 2]}', {"units": [1, 2]}),
        ("worker:path=s3://x/y", {"path": "s3://x/y"}),
    ],
)
def test_a_node_is_a_role_with_parameters(tmp_path, node, params):
    Path("train.py").write_text(
        f"import json\nopen('{tmp_path}/seen', 'w').write(json.dumps([ctx.job_name, dict(args)]))"
    )
    assert main(["run-script", "train.py", "--node", node, "--quiet"]) == 0
    assert json.loads(Path("seen").read_text()) == [node.partition(":")[0], params]


def test_the_exit_code_is_the_outcome(tmp_path, capsys):
    Path("train.py").write_text(
        "print(ctx.node, args.lr)\nopen('m', 'w').write('1')\nif args.lr > 1: raise OSError('x')"
    )
    nodes = [{"job_name": "chief", "params": {"lr": 0.1}}, {"job_name": "worker", "params": {"lr": 0.2}}]
    Path("nodes.json").write_text(json.dumps(nodes))
    assert (
        main(["run-script", "train.py", "--nodes", "nodes.json", "--keep-versions", "2", "--output-dir", "kept"]) == 0
    )
    printed = capsys.readouterr().out
    assert "[chief:0] chief:0 0.1" in printed
    assert "[worker:0] worker:0 0.2" in printed
    assert "✓ train: done · 2/2 nodes done" in printed
    assert f"output: {tmp_path}/kept/version-0001" in printed
    assert main(["run-script", "train.py", "--node", "worker:lr=2", "--quiet"]) == 1
    caught = capsys.readouterr()
    assert (caught.out, caught.err.splitlines()[0]) == ("", "tfos-lab run-script: worker:0: OSError: x")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["none.py"], "there is no script"),
        (["a.py", "--epochs", "two"], "--epochs two: the option takes: whole number"),
        (["a.py", "--on-hang", "fial"], "on_hang='fial': use one of warn, fail; did you mean fail?"),
        (["a.py", "--node", "boss"], "job_name='boss': there is no such role; use ps, chief"),
        (["a.py", "--node", "worker:lr"], "--node worker"),
        (["a.py", "--node", 'worker:{"lr"}'], "--node worker"),
        (["a.py", "--nodes", "none.json"], "--nodes none.json: No such file or directory"),
        (["a.py", "--nodes", "a.py"], "--nodes a.py is no JSON"),
        (["a.py", "--nodes", "one.json"], "--nodes one.json: a list is needed"),
        (["a.py", "--nodes", "one.json", "--node", "ps"], "--node and --nodes were both given"),
    ],
)
def test_what_cannot_be_started_exits_with_2(capsys, arguments, problem):
    Path("a.py").write_text("x = 1")
    Path("one.json").write_text("{}")
    assert main(["run-script", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_an_interrupt_stops_the_nodes(tmp_path):
    Path("wait.py").write_text("import threading\nprint('here', flush=True)\nthreading.Event().wait()\n")
    start = "import sys; from tfos_lab.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "run-script", "wait.py"]
    environ = {**os.environ, "PYTHONPATH": f"{QUICK_ENV['PYTHONPATH']}:{Path(__file__).parents[2]}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        for line in process.stdout:
            if "here" in line:
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted, and its nodes were stopped" in errors
