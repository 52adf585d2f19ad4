"""Scripts: which nodes they run on, what of their folder travels, and the versions of their output."""

from __future__ import annotations

import pytest

import tfos_lab
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import ConfigError

# ---- what is refused before anything starts -------------------------------------------------------------------------


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """Return the sentence in which a script is refused."""
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    (tmp_path / "train.py").write_text("def main(args, ctx): ...\n")

    def refused(nodes=({},), *, script="train.py", text=None, **options):
        if text is not None:
            (tmp_path / script).write_text(text)
        with pytest.raises(ConfigError) as caught:
            tfos_lab.run_script(tmp_path / script, [*nodes], local="processes", show=False, **options)
        return str(caught.value)

    return refused


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ([], "nodes=[]: a list with a dict for each node is needed, such as [{'job_name': 'worker'}]"),
        (["worker"], "nodes[0] is a str: a dict is needed, such as {'job_name': 'worker', 'params': {…}}"),
        ([{"job_name": "wroker"}], "nodes[0]: job_name='wroker': there is no such role; did you mean 'worker'?"),
        ([{"parms": {}}], "nodes[0]: there is no key 'parms'; did you mean 'params'?"),
        ([{"task_index": -1}], "nodes[0]: task_index=-1: a whole number from 0 on is needed"),
        ([{"params": {"x": {1, 2}}}], "nodes[0]: params['x']: Object of type set is not JSON serializable; numbers"),
        ([{"job_name": "chief"}, {"job_name": "master"}], "nodes[0] and nodes[1]: a cluster has one chief at most"),
        ([{}, {"job_name": "evaluator"}, {"job_name": "evaluator"}], "a cluster has one evaluator at most"),
        ([{"job_name": "ps"}], "nodes: none of ps trains: add a worker or a chief"),
        (
            [{"task_index": 1}, {"task_index": 1}],
            "nodes: the task_index of job_name='worker' is 1, 1: each of 0, 1 is needed once",
        ),
    ],
)
def test_nodes_that_make_no_cluster_are_refused_in_a_sentence(refused, nodes, problem):
    assert problem in refused(nodes)


@pytest.mark.parametrize(
    ("text", "function", "problem"),
    [
        ("x = 1\ndef f(:\n", None, "train.py, line 2: def f(:: invalid syntax"),
        ("def main(args, ctx): ...\n", "mian", "has no function 'mian'; did you mean 'main'?"),
        ("x = 1\n", "train", "it has none; leave function out to run the whole file"),
        ("\0", None, "null bytes"),
    ],
)
def test_a_script_that_cannot_work_is_refused(refused, text, function, problem):
    assert problem in refused(text=text, function=function)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"keep_versions": 0}, "keep_versions=0: a whole number from 1 on is needed, or None to keep all"),
        (
            {"output_dir": "hdfs://host/models"},
            "output_dir='hdfs://host/models': versions are kept in a folder",
        ),
        ({"output_dir": "/proc/self/models"}, "it cannot be made"),
    ],
)
def test_what_cannot_keep_versions_is_refused(refused, options, problem):
    assert problem in refused(**{"output_dir": "models", **options})


# ---- what travels, and rows that are read for a script --------------------------------------------------------------


@pytest.fixture
def result_of(tmp_path, monkeypatch):
    """Run a script on a quick node; return what its function has returned."""
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    home = tmp_path / "home"
    home.mkdir()

    def result_of(text, *, others=None, **options):
        for name, content in {"train.py": text, **(others or {})}.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(content)
        options = {"function": "main", "local": "processes", "env": QUICK_ENV, "show": False, **options}
        run = tfos_lab.run_script(home / "train.py", **options)
        run.wait()
        [result] = run.results.values()
        return result

    return result_of


LIST = """
from pathlib import Path
def main(args, ctx):
    home = Path(__file__).parent
    files = [path for path in home.rglob("*") if path.is_file() and "pycache" not in str(path)]
    return sorted(str(path.relative_to(home)) for path in files)
"""


def test_modules_that_a_script_imports_from_its_folder_travel_with_those_that_they_import(result_of):
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
    }
    text = f"import os, helper\nfrom pkg.deep import x\ndef late():\n    import rarely\n{LIST}"
    assert result_of(text, others=others) == sorted({"train.py", *others} - {"unused.py"})


def test_other_files_travel_if_they_are_named(result_of):
    others = {"config/a.json": "{}", "words.txt": "", "not.me": ""}
    found = result_of(LIST, others=others, files=["config", "*.txt"])
    assert found == ["config/a.json", "train.py", "words.txt"]
    for pattern, why in (("*.yaml", "matches"), ("../x", "travels with the script"), ("/etc/hosts", "travels")):
        with pytest.raises(ConfigError, match=why):
            result_of(LIST, files=[pattern])


COUNT = """
def main(args, ctx):
    feed, ids = ctx.data_feed(), []
    while not feed.should_stop():
        ids += [int(row[0]) for row in feed.next_batch(3)]
    return sorted(ids)
"""


LOCAL = """
import json
from pathlib import Path
def main(args, ctx):
    return sum(len(Path(name).read_text().splitlines()) for name in ctx.rows_as_files("json"))
"""


def test_files_of_each_format_and_tables_are_read(spark, result_of, tmp_path):
    rows = spark.range(4)
    rows.write.parquet(str(tmp_path / "p"))
    rows.write.json(str(tmp_path / "j.json"))
    rows.write.option("header", True).csv(str(tmp_path / "c.csv"))
    rows.createOrReplaceTempView("some_rows")
    for data in (tmp_path / "p", tmp_path / "p/part-*.parquet", tmp_path / "j.json", tmp_path / "c.csv", "some_rows"):
        assert result_of(COUNT, data=str(data), spark=spark) == [0, 1, 2, 3]
    assert result_of(LOCAL, data=str(tmp_path / "p"), spark=spark) == 4
    with pytest.raises(ConfigError, match=r"data='.*nothing': there is no such file"):
        result_of(COUNT, data=str(tmp_path / "nothing"), spark=spark)
    with pytest.raises(ConfigError, match="data='no_such_table' cannot be read"):
        result_of(COUNT, data="no_such_table", spark=spark)
