"""`tfos_lab.run_script`, on real nodes with a quick TensorFlow; what it refuses is in `tests/driver`."""

from __future__ import annotations

import json

import pytest

import tfos_lab
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import ClusterEnded, ConfigError, NodeFailed, NoSession, WaitTimeout

WAITS = "import threading\nprint('here', flush=True)\nthreading.Event().wait()\n"
TELLS = """
import json, os, sys
import helper

told = {
    "name": __name__,
    "words": sys.argv[1:],
    "lr": args["lr"],
    "same": args.lr == ctx.args.lr,
    "node": ctx.node,
    "task": json.loads(os.environ["TF_CONFIG"])["task"],
    "nodes": sorted(json.loads(os.environ["TF_CONFIG"])["cluster"]),
    "helped": helper.double(args.lr),
}
with open(f"{args.folder}/{ctx.node}.json", "w") as file:
    json.dump(told, file)
open("model.txt", "w").write(ctx.node)
"""


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))


@pytest.fixture
def write(tmp_path):
    """A function that writes a script, and returns its path."""

    def do(text, name="train.py"):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        path = tmp_path / "scripts" / name
        path.write_text(text)
        return path

    return do


@pytest.fixture
def run():
    """``tfos_lab.run_script`` on quick nodes of this machine; runs that go on are cancelled at the end."""
    runs = []

    def start(path, nodes=({},), *rest, **options):
        defaults = {"local": "processes", "env": QUICK_ENV, "show": False, "grace": 2.0}
        runs.append(tfos_lab.run_script(path, nodes, *rest, **{**defaults, **options}))
        return runs[-1]

    yield start
    for one in runs:
        one.stop(grace=0.0)


def test_each_node_runs_the_file_with_its_role_and_parameters(write, run, tmp_path):
    write("def double(x):\n    return 2 * x\n", "helper.py")
    path = write(TELLS)
    jobs = ["worker", "chief", "ps", "evaluator", "worker"]
    nodes = [{"job_name": job, "params": {"lr": place / 10, "folder": str(tmp_path)}} for place, job in enumerate(jobs)]
    handle = run(path, nodes)
    handle.wait(timeout=60)
    names = ["worker:0", "chief:0", "ps:0", "evaluator:0", "worker:1"]
    for place, name in enumerate(names):
        job, _, index = name.partition(":")
        told = json.loads((tmp_path / f"{name}.json").read_text())
        assert told == {
            "name": "__main__",
            "words": ["--lr", str(place / 10), "--folder", str(tmp_path)],
            "lr": place / 10,
            "same": True,
            "node": name,
            "task": {"type": job, "index": int(index)},
            "nodes": ["chief", "ps", "worker"],
            "helped": place / 5,
        }
    assert handle.state == "done"
    assert handle.ended
    assert (handle.output_dir / "work" / "model.txt").read_text() == "chief:0"
    assert not (tmp_path / "model.txt").exists(), "the chief works in a folder of its own"


def test_a_single_node_has_tf_config_too_and_a_function_returns_results(write, run):
    path = write(
        "import json, os\n"
        "def train(args, ctx):\n    return [args.lr, ctx.is_chief, json.loads(os.environ['TF_CONFIG'])['task']]\n"
        "if __name__ == '__main__':\n    raise SystemExit('imported, not run')\n",
        "my-script.py",
    )
    handle = run(path, [{"params": {"lr": 0.1}}], function="train")
    assert dict(handle.wait(timeout=60)) == {"worker:0": [0.1, True, {"type": "worker", "index": 0}]}
    assert handle.results["worker:0"][0] == 0.1


def test_the_output_is_kept_as_versions_by_those_that_succeed(write, run, tmp_path):
    path = write("open(args.out, 'w').write(args.text)\nif args.text == '2': raise ValueError('no')\n")
    texts = ["1", "2", "3", "4"]
    handles = [run(path, [{"params": {"out": "{output_dir}/m", "text": text}}], keep_versions=2) for text in texts]
    for handle in handles:
        if handle is handles[1]:
            with pytest.raises(NodeFailed, match="ValueError: no"):
                handle.wait(timeout=60)
        else:
            handle.wait(timeout=60)
    kept = tmp_path / "output" / "train"
    assert sorted(path.name for path in kept.iterdir() if path.name[0] != ".") == [
        *("latest", "version-0002", "version-0003")
    ]
    assert (kept / "latest" / "m").read_text() in {"1", "3", "4"}
    assert handles[1].version is None
    assert (handles[1].output_dir / "m").read_text() == "2", "what a run that failed has written is in its folder"
    assert "ValueError: no" in handles[1].cause


def test_a_failure_names_the_lines_that_the_user_knows_and_an_exit_code_is_one(write, run):
    with pytest.raises(NodeFailed, match="Exited"):
        run(write("raise SystemExit(3)", "exits.py")).wait(timeout=60)
    helper = write("def fail():\n    raise KeyError('boom')\n", "helper.py")
    path = write("import helper\n\nhelper.fail()\n")
    with pytest.raises(NodeFailed) as caught:
        run(path).wait(timeout=60)
    assert f'File "{path}", line 3' in caught.value.traceback
    assert f'File "{helper}", line 2, in fail\n    raise KeyError' in caught.value.traceback
    assert "tfos_lab" not in caught.value.traceback


def test_several_run_at_once_are_listed_and_end_at_once_when_cancelled(write, run):
    path = write(WAITS)
    handles = [run(path) for _ in range(3)]
    for handle in handles:
        handle.cluster.wait_until_running()
    assert [handle.name for handle in handles] == ["train", "train-2", "train-3"]
    table = tfos_lab.scripts()
    assert list(table[-3:]) == handles
    assert repr(table).count("● running  1/1 nodes running") >= 3
    assert "<td" in table._repr_html_()
    with pytest.raises(WaitTimeout):
        handles[0].wait(timeout=0.1)
    handles[0].stop()
    handles[0].stop()
    assert (handles[0].state, handles[0].cause) == ("stopped", "it was stopped")
    assert [handle.state for handle in handles[1:]] == ["running", "running"]
    with pytest.raises(ClusterEnded):
        handles[0].wait()
    with handles[1]:
        assert "running, 1/1 nodes" in repr(handles[1])
    assert handles[1].state == "stopped"
    assert run(path).name == "train", "the name of a run that has ended is free"


def test_lines_are_written_while_the_user_waits(write, run, capsys):
    handle = run(write("print('hello from', ctx.node)\n"), show=True, keep_versions=1)
    handle.wait(timeout=60)
    printed = capsys.readouterr().out
    assert "[worker:0] hello from worker:0" in printed
    assert "✓ train: done · 1/1 nodes done" in printed


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"local": "inline"}, "train.py becomes the main program of a process"),
        ({"data_format": "csv"}, "data_format='csv': use one of parquet, json, arrow"),
        ({"nodes": [{"params": {"x": "{data_dir}"}}]}, "a parameter names {data_dir}, but there is no data"),
        ({"keep_versions": 0}, "keep_versions=0"),
        ({"restarts": -1}, "restarts=-1"),
        ({"epochs": 0}, "epochs=0: at least one is needed"),
        ({"cluster_size": 4}, "cluster_size: the list of nodes says which there are; leave it out"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(write, run, tmp_path, options, problem):
    with pytest.raises(ConfigError) as caught:
        run(write(""), **options)
    assert problem in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("spark_mode", ["local", "standalone"])
def test_each_node_has_its_share_of_the_rows_as_files(spark, write):
    path = write(
        "import json, pyarrow.parquet\n"
        "ids = pyarrow.parquet.read_table(args.rows)['id'].to_pylist()\n"
        "lines = [json.loads(line)['id'] for name in ctx.rows_as_files(format='json') for line in open(name)]\n"
        "json.dump([ids, lines], open(args.out, 'w'))\n"
    )
    params = {"rows": "{data_dir}", "out": "{output_dir}/{task_index}.json"}
    options = {"spark": spark, "env": QUICK_ENV, "show": False, "collect": "all", "keep_versions": 1}
    handle = tfos_lab.run_script(path, [{"params": params}] * 2, spark.range(11), **options)
    handle.wait(timeout=120)
    told = [json.loads(file.read_text()) for file in sorted(handle.version.rglob("*.json"))]
    assert [ids == lines for ids, lines in told] == [True, True]
    assert sorted(len(ids) for ids, _ in told) == [5, 6]
    assert sorted(told[0][0] + told[1][0]) == list(range(11))


def test_a_script_ends_with_its_session(new_spark, write):
    session = new_spark("local[1]")
    path = write(WAITS)
    handle = tfos_lab.run_script(path, [{}, {}], env=QUICK_ENV, show=False)
    handle.cluster.wait_until_running()
    session.stop()
    with pytest.raises(
        NoSession, match=r"the SparkSession was stopped while train\.py ran, and its nodes were stopped"
    ):
        handle.wait(timeout=60)
    assert handle.cause.startswith("the SparkSession was stopped")
    assert handle.cluster.ended
