"""`tfos_lab.run_script`: what is refused, what each node gets, what travels, and the versions of the output."""

import json

import pytest

import tfos_lab
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import ClusterEnded, ConfigError, NodeFailed, NoSession, WaitTimeout

OPTIONS = {"env": QUICK_ENV, "show": False, "grace": 2.0}
WAITS = "import threading\nprint('here', flush=True)\nthreading.Event().wait()\n"


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path):
    """A function that writes a script, and files beside it; returns its path."""
    home = tmp_path / "scripts"

    def write(text, name="train.py", **others):
        for file, content in {name: text, **others}.items():
            (home / file).parent.mkdir(parents=True, exist_ok=True)
            (home / file).write_text(content)
        return home / name

    return write


@pytest.fixture
def run():
    """``tfos_lab.run_script`` on quick nodes of this machine; runs that go on are cancelled at the end."""
    runs = []

    def start(path, nodes=({},), *rest, **options):
        runs.append(tfos_lab.run_script(path, [*nodes], *rest, **{**OPTIONS, "local": "processes", **options}))
        return runs[-1]

    yield start
    for one in runs:
        one.stop(grace=0.0)


# ---- what is refused before anything starts -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        # Nodes that make no cluster.
        ({"nodes": []}, "nodes=[]: a list with a dict for each node is needed, such as [{'job_name': 'worker'}]"),
        ({"nodes": ["worker"]}, "nodes[0] is a str: a dict is needed, such as {'job_name': 'worker', 'params': {…}}"),
        ({"nodes": [{"job_name": "wroker"}]}, "nodes[0]: job_name='wroker': there is no such role; did you mean 'wor"),
        ({"nodes": [{"parms": {}}]}, "nodes[0]: there is no key 'parms'; did you mean 'params'?"),
        ({"nodes": [{"task_index": -1}]}, "nodes[0]: task_index=-1: a whole number from 0 on is needed"),
        ({"nodes": [{"params": {"x": {1, 2}}}]}, "nodes[0]: params['x']: Object of type set is not JSON serializable"),
        (
            {"nodes": [{"job_name": "chief"}, {"job_name": "master"}]},
            "nodes[0] and nodes[1]: a cluster has one chief at most",
        ),
        ({"nodes": [{}, *[{"job_name": "evaluator"}] * 2]}, "a cluster has one evaluator at most"),
        ({"nodes": [{"job_name": "ps"}]}, "nodes: none of ps trains: add a worker or a chief"),
        (
            {"nodes": [{"task_index": 1}] * 2},
            "nodes: the task_index of job_name='worker' is 1, 1: each of 0, 1 is needed once",
        ),
        ({"cluster_size": 4}, "cluster_size: the list of nodes says which there are; leave it out"),
        # Scripts that cannot work.
        ({"text": "x = 1\ndef f(:\n"}, "train.py, line 2: def f(:: invalid syntax"),
        ({"function": print}, "function=<built-in function print>: the name of a function in "),
        ({"function": "mian"}, "has no function 'mian'; did you mean 'main'?"),
        ({"text": "x = 1\n", "function": "train"}, "it has none; leave function out to run the whole file"),
        ({"text": "\0"}, "null bytes"),
        ({"local": "inline"}, "train.py becomes the main program of a process"),
        # Rows and versions.
        ({"data_format": "csv"}, "data_format='csv': use one of parquet, json, arrow"),
        ({"nodes": [{"params": {"x": "{data_dir}"}}]}, "a parameter names {data_dir}, but there is no data"),
        ({"epochs": 0}, "epochs=0: at least one is needed"),
        ({"keep_versions": 0}, "keep_versions=0: a whole number from 1 on is needed, or None to keep all"),
        ({"output_dir": "hdfs://host/models"}, "output_dir='hdfs://host/models': versions are kept in a folder"),
        ({"output_dir": "/proc/self/models"}, "it cannot be made"),
        # Files that do not travel.
        ({"files": ["*.yaml"]}, "matches"),
        ({"files": ["../x"]}, "travels with the script"),
        ({"files": ["/etc/hosts"]}, "travels"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(write, run, tmp_path, call, problem):
    path = write(call.pop("text", "def main(args, ctx): ...\n"))
    with pytest.raises(ConfigError) as caught:
        run(path, **call)
    assert problem in str(caught.value)
    assert not (tmp_path / "runs").exists()


# ---- what each node gets --------------------------------------------------------------------------------------------


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
with open(sys.argv[-1], "w") as file:
    json.dump(told, file)
open("model.txt", "w").write(ctx.node)
"""
PARAMS = {
    "name": "a b",
    "verbose": True,
    "quiet": False,
    "seed": None,
    "units": [64, 32],
    "opts": {"a": [1]},
    "low": -1,
    "text": "-x",
}
WORDS = [*("--name", "a b", "--verbose", "--units", "64", "32"), *("--opts", '{"a": [1]}', "--low", "-1", "--text=-x")]


def test_each_node_runs_the_file_with_its_role_and_its_parameters_as_words(write, run, tmp_path):
    path = write(TELLS, **{"helper.py": "def double(x):\n    return 2 * x\n"})
    out = f"{tmp_path}/{{job_name}}:{{task_index}}.json"
    jobs = ["worker", "chief", "ps", "evaluator", "worker"]
    nodes = [{"job_name": job, "params": {"lr": place / 10, **PARAMS, "out": out}} for place, job in enumerate(jobs)]
    handle = run(path, nodes)
    handle.wait(timeout=60)
    names = ["worker:0", "chief:0", "ps:0", "evaluator:0", "worker:1"]
    for place, name in enumerate(names):
        job, _, index = name.partition(":")
        told = json.loads((tmp_path / f"{name}.json").read_text())
        assert told == {
            "name": "__main__",
            "words": ["--lr", str(place / 10), *WORDS, "--out", f"{tmp_path}/{name}.json"],
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


LIST = """
from pathlib import Path
def main(args, ctx):
    home = Path(__file__).parent
    files = [path for path in home.rglob("*") if path.is_file() and "pycache" not in str(path)]
    return sorted(str(path.relative_to(home)) for path in files)
"""


def test_modules_that_a_script_imports_travel_with_those_that_they_import_and_other_files_if_named(write, run):
    others = {
        "helper.py": "import json\nfrom other import y\n",
        "other.py": "y = 1",
        "rarely.py": "",
        "unused.py": "",
        "pkg/__init__.py": "",
        "pkg/deep.py": "from . import near\nimport below\nx = 1",
        "pkg/near.py": "",
        "pkg/words.txt": "hello",
        "below.py": "",
        "config/a.json": "{}",
        "words.txt": "",
        "not.me": "",
    }
    path = write(f"import os, helper\nfrom pkg.deep import x\ndef late():\n    import rarely\n{LIST}", **others)
    travel = {"train.py", *others} - {"unused.py", "not.me"}
    for files, more in (([], {"config/a.json", "words.txt"}), (["config", "*.txt"], set())):
        [found] = run(path, function="main", files=files).wait(timeout=60).values()
        assert found == sorted(travel - more)


# ---- how it ends ----------------------------------------------------------------------------------------------------


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
        assert "1/1 nodes running" in handles[1]._repr_html_()
    assert handles[1].state == "stopped"
    assert run(path).name == "train", "the name of a run that has ended is free"


def test_a_script_ends_with_its_session(new_spark, write):
    session = new_spark("local[1]")
    handle = tfos_lab.run_script(write(WAITS), [{}, {}], **OPTIONS)
    handle.cluster.wait_until_running()
    session.stop()
    with pytest.raises(
        NoSession, match=r"the SparkSession was stopped while train\.py ran, and its nodes were stopped"
    ):
        handle.wait(timeout=60)
    assert handle.cause.startswith("the SparkSession was stopped")
    assert handle.cluster.ended


# ---- rows that are read for a script --------------------------------------------------------------------------------


COUNT = """
def main(args, ctx):
    feed, ids = ctx.data_feed(), []
    while not feed.should_stop():
        ids += [int(row[0]) for row in feed.next_batch(3)]
    return sorted(ids)
"""


def test_files_and_tables_of_any_kind_are_read_by_name(spark, write, run, tmp_path):
    """Which files can be fed is tested in `tests/driver/test_feed.py`."""

    def count(data):
        [ids] = run(write(COUNT), data=str(data), spark=spark, function="main").wait(timeout=60).values()
        return ids

    spark.range(4).write.parquet(str(tmp_path / "p"))
    spark.range(4, 9).createOrReplaceTempView("some_rows")
    assert count(tmp_path / "p/part-*.parquet") == [0, 1, 2, 3]
    assert count("some_rows") == [4, 5, 6, 7, 8]
    with pytest.raises(ConfigError, match=r"data='.*nothing': there is no such file"):
        count(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="data='no_such_table' cannot be read"):
        count("no_such_table")


@pytest.mark.parametrize("spark_mode", ["local", "standalone"])
def test_each_node_has_its_share_of_the_rows_as_files(spark, write):
    path = write(
        "import json, pyarrow.parquet\n"
        "ids = pyarrow.parquet.read_table(args.rows)['id'].to_pylist()\n"
        "lines = [json.loads(line)['id'] for name in ctx.rows_as_files(format='json') for line in open(name)]\n"
        "json.dump([ids, lines], open(args.out, 'w'))\n"
    )
    params = {"rows": "{data_dir}", "out": "{output_dir}/{task_index}.json"}
    options = {**OPTIONS, "spark": spark, "collect": "all", "keep_versions": 1}
    handle = tfos_lab.run_script(path, [{"params": params}] * 2, spark.range(11), **options)
    handle.wait(timeout=120)
    told = [json.loads(file.read_text()) for file in sorted(handle.version.rglob("*.json"))]
    assert [ids == lines for ids, lines in told] == [True, True]
    assert sorted(len(ids) for ids, _ in told) == [5, 6]
    assert sorted(told[0][0] + told[1][0]) == list(range(11))
