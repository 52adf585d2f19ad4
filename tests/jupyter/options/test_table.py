"""The line of a %%tfos cell: what it may contain, and how anything else is refused."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_lab.core.config import ClusterConfig, FeedConfig
from tfos_lab.core.options import options_of
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.options.line import split_line
from tfos_lab.jupyter.options.table import OPTIONS, CellOptions, parse_options

DataFrame = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe", "limit": lambda self, n: self})
RDD = type("RDD", (), {"__module__": "pyspark.core.rdd"})
SparkSession = type("SparkSession", (), {"__module__": "pyspark.sql.session"})

train_df = DataFrame()
NAMES: dict[str, Any] = {
    "train_df": train_df,
    "rows": RDD(),
    "session": SparkSession(),
    "pdf": pd.DataFrame({"a": [1]}),
    "array": np.zeros(3),
    "LR": 0.1,
    "n": 3,
    "LOGS": Path("/tmp/logs"),
    "COLS": ["image", "label"],
    "cluster": object(),
    "mnist": object(),
}


def parse(line: str) -> CellOptions:
    return parse_options(line, NAMES)


def problems(line: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(line)
    return error.value.problems


def problem(line: str) -> str:
    found = problems(line)
    assert len(found) == 1, found
    return found[0]


def test_an_empty_line_means_the_defaults() -> None:
    assert parse("") == CellOptions()
    assert parse("   # only a comment") == CellOptions()


def test_the_cell_has_the_options_of_the_engine_and_its_own() -> None:
    engine = {one.name for owner in (ClusterConfig, FeedConfig) for one in options_of(owner)}
    own = {"data", "args", "spark", "background", "replace", "on", "nodes"}
    assert {one.name for one in OPTIONS} == engine | own
    assert len(OPTIONS) == len(engine) + len(own)


@pytest.mark.parametrize(
    "line",
    [
        "cluster_size=4 eval_node",
        "cluster_size=4 eval_node=true",
        "--cluster_size 4 --eval_node",
        "--cluster_size=4 --eval_node=True",
        "--cluster-size 4 --eval_node   # four of them",
        "cluster_size = 4 eval_node = yes",
        "cluster_size=(2 + 2) eval_node=1",
        "cluster_size=n+1 eval_node=on",
    ],
)
def test_options_can_be_written_in_several_ways(line: str) -> None:
    assert parse(line) == CellOptions(cluster=ClusterConfig(cluster_size=4, eval_node=True))


@pytest.mark.parametrize("word", ["false", "False", "no", "off", "0"])
def test_flags_can_be_set_to_false(word: str) -> None:
    assert parse(f"eval_node={word}").cluster.eval_node is False


def test_values_are_expressions_of_the_notebook() -> None:
    options = parse("data=train_df.limit(10) args={'lr': LR, 'units': [16, 32], 'note': 'a = b'} epochs=n")
    assert options.data is train_df
    assert options.args == {"lr": 0.1, "units": [16, 32], "note": "a = b"}
    assert options.feed.epochs == 3


def test_data_may_be_in_this_process() -> None:
    for text in ("pdf", "array", "(array, array)", "{'x': array}"):
        assert parse(f"data={text}").data is not None


def test_an_rdd_and_a_session_can_be_named() -> None:
    assert parse("data=rows").data is NAMES["rows"]
    assert parse("spark=session").spark is NAMES["session"]
    assert parse("data=None").data is None


def test_whole_numbers_of_numpy_are_accepted() -> None:
    assert parse_options("cluster_size=size", {"size": np.int64(2)}).cluster.cluster_size == 2


@pytest.mark.parametrize("text", ["inline", "'inline'", "INLINE", "where"])
def test_choices_need_no_quotes(text: str) -> None:
    assert parse_options(f"local={text}", {"where": "inline"}).cluster.local == "inline"


def test_false_is_a_choice_of_local_in_any_spelling() -> None:
    assert parse("local=False").cluster.local == parse("local=false").cluster.local == "false"


def test_no_master_node_is_a_choice() -> None:
    assert parse("cluster_size=2 master_node=None").cluster.master_node is None


def test_a_name_is_text_even_if_a_variable_has_it() -> None:
    assert parse("name=mnist").cluster.name == "mnist"
    assert parse("name='run_2'").cluster.name == "run_2"
    assert parse("name=f'run_{n}'").cluster.name == "run_3"


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("/tmp/x", "/tmp/x"),
        ("hdfs://name:9000/x", "hdfs://name:9000/x"),
        ("out/events", "out/events"),
        ("out", "out"),
        ("'with space'", "with space"),
        ("LOGS", "/tmp/logs"),
        ("LOGS/'a'", "/tmp/logs/a"),
        ("str(LOGS)", "/tmp/logs"),
    ],
)
def test_folders_need_no_quotes(text: str, folder: str) -> None:
    assert parse(f"log_dir={text}").given["log_dir"] == folder


@pytest.mark.parametrize("text", ["image,label", "['image', 'label']", "('image', 'label')", "COLS", "'image,label'"])
def test_columns_can_be_listed_in_several_ways(text: str) -> None:
    assert parse(f"data=train_df columns={text}").feed.columns == ["image", "label"]


def test_the_engine_gets_the_given_options() -> None:
    config = parse("cluster_size=3 num_ps=1 env={'A': 'b'} grace=2.5 reservation_timeout=60 name=x").cluster
    assert config == ClusterConfig(
        cluster_size=3, num_ps=1, env={"A": "b"}, grace_s=2.5, reservation_timeout_s=60.0, name="x"
    )


@pytest.mark.parametrize(
    ("text", "gpus"), [("2", 2), ("all", "all"), ("{'worker':1,'ps':1}", {"worker": 1, "ps": 1}), ("None", None)]
)
def test_gpus_are_a_number_a_dict_or_all(text: str, gpus: object) -> None:
    assert parse(f"gpus={text}").cluster.gpus == gpus


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cluster_sze=3", "unknown option 'cluster_sze'; did you mean cluster_size?"),
        ("num_workers=3", "unknown option 'num_workers'; did you mean cluster_size?"),
        ("--tensorbord", "unknown option 'tensorbord'; did you mean tensorboard?"),
        ("zzz=1", "unknown option 'zzz'; %%tfos? lists all options"),
        ("4", "'4': options are written key=value, and a value with spaces needs brackets or quotes around it"),
        ("cluster_size=2 cluster_size=3", "cluster_size is given twice"),
        ("cluster_size", "cluster_size needs a value: cluster_size=<whole number>"),
        ("local", "local needs a value: local=auto"),
        ("data=", "data needs a value: data=<DataFrame or RDD>"),
        ("cluster_size='4'", "cluster_size='4': a whole number is needed, not the str '4'"),
        ("cluster_size=2.5", "cluster_size=2.5: a whole number is needed, not the float 2.5"),
        ("cluster_size=True", "cluster_size=True: a whole number is needed, not the bool True"),
        ("tensorboard=2", "tensorboard=2: true or false is needed, not the int 2"),
        ("grace='x'", "grace='x': a number of seconds is needed, not the str 'x'"),
        ("grace=-1", "grace=-1: a number of seconds cannot be negative"),
        ("gpus=1.5", "gpus=1.5: a whole number is needed, not the float 1.5"),
        ("gpus={'boss':1}", "gpus['boss']: not a job name; there are ps, chief, master, evaluator, worker"),
        ("env=3", "env=3: a dict of names and texts is needed, not the int 3"),
        ("env={'A': 1}", "env['A']: names and values must be strings"),
        ("columns=3", "columns=3: a list of column names is needed, not the int 3"),
        ("log_dir=LR", "log_dir=LR: a folder is needed, not the float 0.1"),
        ("spark=n", "spark=n: a SparkSession is needed, not the int 3"),
        ("local=inlin", "local=inlin: use one of auto, processes, inline, false; did you mean inline?"),
        ("master_node=boss", "master_node=boss: use one of chief, master, None"),
        ("remainder=LR", "remainder=LR: use one of exact, pad, drop"),
        ("data=train_dff", "data=train_dff: the notebook has no name 'train_dff'; did you mean train_df?"),
        (
            "data=n",
            (
                "data=n: a Spark DataFrame or RDD, a pandas DataFrame, NumPy arrays, or names of files are needed, not "
                "the int 3"
            ),
        ),
        (
            "data=pdf['a']",
            (
                "data=pdf['a']: a Spark DataFrame or RDD, a pandas DataFrame, NumPy arrays, or names of files are "
                "needed, not a pandas Series; make a DataFrame with pdf['a'].to_frame()"
            ),
        ),
        (
            "data=/data/*.parquet",
            "data=/data/*.parquet: this is no Python expression; for files, write quotes: data='/data/*.parquet'",
        ),
        ("args=1/0", "args=1/0: ZeroDivisionError: division by zero"),
        ("args=a..b", "args=a..b: this is no Python expression"),
        ("args={'a': 1", "args={'a': 1: the bracket for '}' is not closed"),
        ("args='a", "args='a: the quote ' is not closed"),
        (
            "name=my-run",
            "name=my-run: a name that a variable can have is needed, such as my_run: it will hold the cluster",
        ),
        ("name=class", "name=class: a name that a variable can have is needed: it will hold the cluster"),
        ("name=(3)", "name=(3): a name is needed, not the int 3"),
        ("epochs=0", "epochs=0: at least one is needed"),
        ("feed_timeout=0", "feed_timeout=0.0: a number of seconds, more than 0, is needed"),
        ("cluster_size=0", "cluster_size=0: at least one node is needed"),
    ],
)
def test_wrong_options_are_refused_with_what_is_allowed(line: str, message: str) -> None:
    assert problem(line) == message


@pytest.mark.parametrize("text", ["'/data/*.parquet'", "'sales.orders'", "['/a.tfrecord', '/b.tfrecord']"])
def test_names_of_files_are_data(text: str) -> None:
    assert parse_options(f"data={text}", {}).data == ast.literal_eval(text)


def test_all_problems_are_reported_together() -> None:
    found = problems("cluster_sze=3 local=inlin num_ps=4 epochs=x")
    assert len(found) == 4
    assert any("num_ps=4: leaves no node to train" in text for text in found)


# ---- splitting ------------------------------------------------------------------------------------------------------


def test_brackets_and_quotes_hold_spaces_together() -> None:
    line = "a={'x': [1, (2, 3)]} b='it is' c=f(1, \"x ' y\") d='''t ' w''' e='\\' x'"
    items, found = split_line(line)
    assert not found
    assert [(item.key, item.value) for item in items] == [
        ("a", "{'x': [1, (2, 3)]}"),
        ("b", "'it is'"),
        ("c", 'f(1, "x \' y")'),
        ("d", "'''t ' w'''"),
        ("e", "'\\' x'"),
    ]


def test_a_comparison_is_not_an_option() -> None:
    assert split_line("a==1").problems


@given(st.text(max_size=40))
def test_any_line_is_either_understood_or_refused(line: str) -> None:
    split_line(line)
    with contextlib.suppress(ConfigError):
        parse_options(line, {})


@given(st.dictionaries(st.text(), st.one_of(st.none(), st.booleans(), st.integers(), st.text()), max_size=4))
def test_literals_arrive_as_they_were_written(value: dict[str, Any]) -> None:
    assert parse_options(f"args={value!r} cluster_size=2", {}).args == value
