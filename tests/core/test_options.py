"""What a user may ask a cluster for, and how anything else is refused: before anything starts, and all at once."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tfos_lab
from tfos_lab.errors import ConfigError

# Of `tfos_lab.run`, with their defaults; session and rows are no options, and neither is whether it is shown.
OTHERS = ("spark", "data", "validation", "show")
KEYWORDS = [one for one in inspect.signature(tfos_lab.run).parameters.values() if one.kind is one.KEYWORD_ONLY]
OPTIONS = {one.name: one.default for one in KEYWORDS if one.name not in OTHERS}


def problems_of(**options: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        tfos_lab.run(print, **options)
    return error.value.problems


def test_the_help_of_run_and_of_the_configuration_describes_each_option():
    for documented in (tfos_lab.run, tfos_lab.ClusterConfig):
        names = OPTIONS if documented is tfos_lab.run else inspect.signature(documented).parameters
        assert [name for name in names if f"\n{name} : " not in inspect.getdoc(documented)] == []
    # `driver_ps` is for programs of TensorFlowOnSpark.
    assert set(inspect.signature(tfos_lab.ClusterConfig).parameters) - {"driver_ps"} < set(OPTIONS)
    assert "grace : float, default 10.0\n    Seconds between asking a node to end" in inspect.getdoc(tfos_lab.run)


# Declares one more option, in the declaration only, and prints where it is found.
PROGRAM = """
import inspect, runpy, sys, types
from pathlib import Path

name = "tfos_lab.core.config"
path = Path(sys.argv[1])
head, docstring, rest = path.read_text("utf-8").partition("which calls do.\\"\\"\\"\\n")
entry = 'Annotated[Literal["oak", "elm"], Option("kind of tree", "oak", group=OptionGroup.CELL, details="Any will.")]'
module = sys.modules[name] = types.ModuleType(name)
module.__file__ = str(path)
exec(compile(f"{head}{docstring}    tree: {entry}\\n{rest}", str(path), "exec"), vars(module))

import tfos_lab
from tfos_lab.notebook.completion import complete_options
from tfos_lab.notebook.options import describe_options, parse_options
from tfos_lab.ml import TFEstimator

calls = {one.__name__: one for one in (tfos_lab.run, tfos_lab.start, tfos_lab.parallel, tfos_lab.run_script)}
calls["search"] = type(tfos_lab.search).__call__
for call, function in calls.items():
    parameter = inspect.signature(function).parameters["tree"]
    print(call, parameter.annotation, parameter.default)
    entry = inspect.getdoc(function).partition("tree : ")[2].splitlines()
    assert entry[:2] == ['{"oak", "elm"}, default \\'oak\\'', "    Kind of tree. Any will."], entry
print("attribute", tfos_lab.ClusterConfig(tree="elm").tree)
try:
    tfos_lab.run(print, tree="fir")
except ValueError as error:
    print("check", error)
try:
    parse_options("tree=el", {})
except ValueError as error:
    print("line", error)
print("line", parse_options("tree=elm", {}).cluster.tree)
print("completion", [one.text for one in complete_options("tr", {})[1] if one.text.startswith("tr")])
print("completion", [one.text for one in complete_options("tree=", {})[1]])
print("help", *(line for line in describe_options().splitlines() if line.startswith("tree ")))
documents = runpy.run_path(sys.argv[2])["options_markdown"]()
print("document", *(line for line in documents.splitlines() if "`tree`" in line))
print("param", TFEstimator(model=print).setTree("elm").getTree(), TFEstimator.tree.doc)
"""


def test_an_option_is_declared_once_and_is_in_all_calls_cells_params_and_documents():
    declaration = Path(tfos_lab.__file__).parent / "core" / "config.py"
    documents = Path(tfos_lab.__file__).parents[1] / ".ci" / "write_options.py"
    command = [sys.executable, "-c", PROGRAM, declaration, documents]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.stdout.splitlines() == [
        *(f'{call} {{"oak", "elm"}} oak' for call in ("run", "start", "parallel", "run_script", "search")),
        "attribute elm",
        "check tree='fir': use one of oak, elm",
        "line tree='el': use one of oak, elm; did you mean elm?",
        "line elm",
        "completion ['tree=']",
        "completion ['oak', 'elm']",
        "help " + f"{'tree':<13}  kind of tree [oak | elm; oak]",
        "document | `tree` | kind of tree. Any will. | `oak` |",
        "param elm Kind of tree",
    ], found.stderr


def test_a_call_takes_the_options_that_mean_something_to_it_and_names_the_one_that_is_meant():
    for call, option in ((tfos_lab.parallel, "restarts"), (tfos_lab.run, "spool_bytes")):
        with pytest.raises(TypeError, match=rf"{call.__name__}\(\) got an unexpected keyword argument '{option}'"):
            call(print, [], **{option: 1})
    for call, misspelt, meant in (
        (tfos_lab.run, "cluster_sizes", "cluster_size"), (tfos_lab.run, "validaton", "validation"),
        (tfos_lab.search, "metrc", "metric"), (tfos_lab.parallel, "time_out", "timeout"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=rf"\(\) got .* '{misspelt}'\. Did you mean '{meant}'\?"):
            call(print, [{"x": 1}], **{misspelt: 1})
    with pytest.raises(TypeError, match=r"start\(\) got an unexpected keyword argument 'data'$"):
        tfos_lab.start(data=1)


def test_a_configuration_has_the_defaults_and_cannot_be_changed():
    config = tfos_lab.ClusterConfig(grace=0, collect="all", log_dir=None)
    assert (config.cluster_size, config.master_node, config.grace, config.name) == (1, "chief", 0, "cluster")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.cluster_size = 2


@pytest.mark.parametrize("nonsense", [object(), -1.5, "?", ["a"]], ids=["object", "negative", "text", "list"])
def test_each_option_refuses_nonsense_by_its_name_and_value_and_all_of_them_together(nonsense):
    taking = {"name", "log_dir"} if isinstance(nonsense, str) else set()
    taking |= {"columns"} if isinstance(nonsense, list) else set()
    refusing = [name for name in OPTIONS if name not in taking]
    for name in refusing:
        [problem] = problems_of(**{name: nonsense})
        assert problem.startswith(f"{name}="), problem
        assert repr(nonsense) in problem
    together = problems_of(**dict.fromkeys(refusing, nonsense))
    assert {problem.partition("=")[0] for problem in together} == set(refusing)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cluster_size": 0}, "cluster_size=0: at least one node is needed"),
        ({"cluster_size": True}, "cluster_size=True: a whole number is needed"),
        ({"num_ps": -1}, "num_ps=-1: cannot be negative"),
        ({"restarts": 2, "local": "inline"}, "restarts=2: inline runs in this very process, which cannot start again"),
        (
            {"cluster_size": 2, "num_ps": 1, "evaluator": True},
            "num_ps=1 and evaluator: leaves no node to train in a cluster of 2; ask for cluster_size=3 or more",
        ),
        ({"local": "cloud"}, "local='cloud': use one of auto, processes, inline, off"),
        (
            {"master_node": "chef"},
            "master_node='chef': not a job name that can lead; use 'chief' or 'master', or None to let worker:0 lead",
        ),
        ({"gpus": "some"}, "gpus='some': a whole number of GPUs per node is needed, or 'all' for all nodes to see all"),
        ({"gpus": 0.5}, "gpus=0.5: a whole number of GPUs per node is needed"),
        ({"gpus": {"boss": 1}}, "gpus['boss']: not a job name; there are ps, chief, master, evaluator, worker"),
        ({"gpus": {"worker": 0.5}}, "gpus['worker']=0.5: a whole number of GPUs per node is needed"),
        ({"env": {"A": 1}}, "env['A']: names and values must be strings"),
        ({"env": {"TF_CONFIG": "{}"}}, "env['TF_CONFIG']: is set by tfos_lab on every node"),
        ({"validation": 0.1}, "validation: there are no rows to train on beside these; give data=..., too"),
    ],
)
def test_a_problem_names_the_option_its_value_and_what_would_do(options, text):
    assert problems_of(**options) == [text]


def test_a_log_dir_is_the_same_for_all_nodes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["/logs", "gs://bucket/logs", Path("/logs/new"), "logs", "~/logs"]
    meant = ["/logs", "gs://bucket/logs", "/logs/new", str(tmp_path / "logs"), str(Path.home() / "logs")]
    assert [tfos_lab.ClusterConfig(log_dir=folder).log_dir for folder in given] == meant
    assert problems_of(log_dir="") == ["log_dir='': a folder is needed"]


@pytest.mark.parametrize(
    ("ports", "network", "problems"),
    [
        ("many", "", ["TFOS_NODE_PORTS=many: is neither a port such as 8888 nor a range such as 20000-20099"]),
        ("9-1", "", ["TFOS_NODE_PORTS=9-1: ports go from 1 to 65535, the smaller one first"]),
        (
            "20000",
            "10.2.0.1/16",
            [
                "TFOS_NODE_PORTS=20000: each node of a host takes 2 ports; give a range",
                "TFOS_NODE_NETWORK=10.2.0.1/16: is no network such as 10.2.0.0/16",
            ],
        ),
    ],
)
def test_false_addresses_of_nodes_are_refused_before_anything_starts(spark, monkeypatch, ports, network, problems):
    monkeypatch.setenv("TFOS_NODE_PORTS", ports)
    monkeypatch.setenv("TFOS_NODE_NETWORK", network)
    assert problems_of(spark=spark, local="off") == problems
