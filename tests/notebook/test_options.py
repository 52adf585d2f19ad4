"""The line of a ``%%tfos`` cell: what it may contain, how anything else is refused, and who may set defaults."""

from __future__ import annotations

import contextlib
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_lab import ClusterConfig
from tfos_lab.errors import ConfigError
from tfos_lab.notebook.options import OPTIONS, CellOptions, parse_options

DOCUMENT = Path(__file__).parents[2] / "docs" / "options.md"
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
    "size": np.int64(2),
    "where": "inline",
    "LR": 0.1,
    "n": 3,
    "LOGS": Path("/tmp/logs"),
    "COLS": ["image", "label"],
    "mnist": object(),
}


def parse(line: str) -> CellOptions:
    return parse_options(line, NAMES)


def problems(line: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(line)
    return error.value.problems


# ---- what it may contain --------------------------------------------------------------------------------------------


def test_an_empty_line_means_the_defaults():
    assert parse("") == CellOptions() == parse("   # only a comment")


@pytest.mark.parametrize(
    "line",
    [
        "cluster_size=4 evaluator",
        "cluster_size=4 evaluator=True   # four of them",
        "cluster_size = 4 evaluator = yes",
        "cluster_size=(2 + 2) evaluator=1",
        "cluster_size=n+1 evaluator=on",
    ],
)
def test_options_can_be_written_in_several_ways(line):
    assert parse(line) == CellOptions(cluster=ClusterConfig(cluster_size=4, evaluator=True))


@pytest.mark.parametrize(
    ("option", "texts", "value"),
    [
        ("evaluator", ["false", "False", "no", "off", "0"], False),
        ("local", ["inline", "'inline'", "INLINE", "where"], "inline"),
        ("local", ["off", "'off'", "OFF"], "off"),
        ("cluster_size", ["2", "size", "1+1"], 2),
        ("gpus", ["all"], "all"),
        ("gpus", ["{'worker':1,'ps':1}"], {"worker": 1, "ps": 1}),
        ("gpus", ["None"], None),
        ("name", ["mnist", "'mnist'", "f'mnist'"], "mnist"),
        ("log_dir", ["/tmp/logs/a", "'/tmp/logs/a'", "LOGS/'a'", "str(LOGS)+'/a'"], "/tmp/logs/a"),
        ("log_dir", ["hdfs://name:9000/x"], "hdfs://name:9000/x"),
        ("log_dir", ["'with space'"], "with space"),
        ("columns", ["image,label", "['image', 'label']", "('image','label')", "COLS"], ["image", "label"]),
        ("data", ["train_df", "train_df.limit(10)"], train_df),
        ("data", ["rows"], NAMES["rows"]),
        ("data", ["None"], None),
        ("data", ["'/data/*.parquet'"], "/data/*.parquet"),
        ("data", ["['/a.tfrecord', '/b.tfrecord']"], ["/a.tfrecord", "/b.tfrecord"]),
        ("spark", ["session"], NAMES["session"]),
        ("args", ["{'lr': LR, 'note': 'a = b'}"], {"lr": 0.1, "note": "a = b"}),
        ("env", ["{'A': 'b'}"], {"A": "b"}),
        ("grace", ["2.5"], 2.5),
        ("remainder", ["drop"], "drop"),
    ],
)
def test_values_need_no_quotes_and_may_be_expressions_of_the_notebook(option, texts, value):
    for text in texts:
        given = parse(f"{'data=train_df ' * (option == 'columns')}{option}={text}").given
        assert given[option] == value, text


def test_data_may_be_in_this_process():
    for text in ("pdf", "array", "(array, array)", "{'x': array}"):
        assert parse(f"data={text}").data is not None


def test_brackets_and_quotes_hold_spaces_together():
    options = parse("args={'x': [1, (2, 3)], 'y': \"it's\"} name='x' log_dir='''t ' w''' epochs=len( [1, 2] )")
    assert options.args == {"x": [1, (2, 3)], "y": "it's"}
    assert options.given["log_dir"] == "t ' w"
    assert options.feed.epochs == 2


@given(st.dictionaries(st.text(), st.one_of(st.none(), st.booleans(), st.integers(), st.text()), max_size=4))
def test_literals_arrive_as_they_were_written(value):
    assert parse_options(f"args={value!r} cluster_size=2", {}).args == value


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cluster_sze=3", "unknown option 'cluster_sze'; did you mean cluster_size?"),
        ("num_workers=3", "unknown option 'num_workers'; did you mean cluster_size?"),
        ("shuffle=true", "unknown option 'shuffle'; the cell gives it where it reads rows: ctx.dataset(shuffle=...)"),
        ("zzz=1", "unknown option 'zzz'; %%tfos? lists all options"),
        ("4", "'4': options are written key=value, and a value with spaces needs brackets or quotes around it"),
        ("cluster_size=2 cluster_size=3", "cluster_size is given twice"),
        ("cluster_size", "cluster_size needs a value: cluster_size=<whole number>"),
        ("data=", "data needs a value: data=<DataFrame or RDD>"),
        ("spark=n", "spark: a SparkSession is needed, not the int 3"),
        ("local=inlin", "local='inlin': use one of auto, processes, inline, off; did you mean inline?"),
        ("data=train_dff", "data=train_dff: the notebook has no name 'train_dff'; did you mean train_df?"),
        (
            "data=pdf['a']",
            (
                "data: a Spark DataFrame or RDD, a pandas DataFrame, NumPy arrays, or names of files are "
                "needed, not a pandas Series; use its .to_frame()"
            ),
        ),
        (
            "data=/data/*.parquet",
            "data=/data/*.parquet: this is no Python expression; for files, write quotes: '/data/*.parquet'",
        ),
        ("args=1/0", "args=1/0: ZeroDivisionError: division by zero"),
        ("args={'a': 1", "args={'a': 1: the bracket for '}' is not closed"),
        ("args='a", "args='a: the quote ' is not closed"),
        (
            "name=my-run",
            "name=my-run: a name that a variable can have is needed, such as my_run: it will hold the cluster",
        ),
        ("name=class", "name=class: a name that a variable can have is needed: it will hold the cluster"),
        ("feed_timeout=0", "feed_timeout=0: a number of seconds, more than 0, is needed"),
        ("cluster_size=0", "cluster_size=0: at least one node is needed"),
    ],
)
def test_wrong_options_are_refused_with_what_is_allowed(line, message):
    assert problems(line) == [message]


def test_all_problems_are_reported_together():
    found = problems("cluster_sze=3 local=inlin num_ps=4 epochs=x")
    assert len(found) == 4
    assert any("num_ps=4: leaves no node to train" in text for text in found)


_ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2)
)


@given(st.sampled_from(OPTIONS), _ANYTHING)
def test_whatever_is_given_to_an_option_it_is_taken_or_refused_by_its_name(option, value):
    found = []
    try:
        parse_options(f"{option.name}={value!r}", {})
    except ConfigError as error:
        found = error.problems
    assert [problem for problem in found if option.name not in problem] == []


@given(st.text(max_size=40))
def test_any_line_is_either_understood_or_refused(line):
    with contextlib.suppress(ConfigError):
        parse_options(line, {})


# ---- defaults -------------------------------------------------------------------------------------------------------


@pytest.fixture
def configure(shell, run):
    """Load the extension with the administrator's values."""

    def configure(**values):
        for name, value in values.items():
            setattr(shell.config.TfosLab, name, value)
        run("%reload_ext tfos_lab")

    yield configure
    del shell.config["TfosLab"]
    run("%reload_ext tfos_lab")


def test_a_line_says_more_than_the_notebook_and_that_more_than_the_administrator(configure, run, said):
    configure(cluster_size=2, epochs=3, grace=1.5)
    assert parse("").cluster.cluster_size == 2
    run("%tfos config cluster_size=4")
    options = parse("epochs=5")
    assert (options.cluster.cluster_size, options.feed.epochs, options.cluster.grace) == (4, 5, 1.5)
    assert options.given == {"epochs": 5}
    assert not [line for line in said("%tfos config on_nan=stop") if "`" in line or "'stop'" in line], (
        "it is no Markdown"
    )
    run("%tfos config reset cluster_size")
    assert parse("").cluster.cluster_size == 2
    configure(epochs=2)


def test_a_wrong_default_of_an_administrator_is_named_and_does_not_count(configure, said, caplog):
    with caplog.at_level(logging.WARNING):
        configure(cluster_size=0, clustersize=3, tensorboard=True)
    assert "c.TfosLab.cluster_size=0: at least one node is needed; it does not count" in caplog.text
    assert "c.TfosLab.clustersize: has no default to set; did you mean cluster_size?" in caplog.text
    assert said("%tfos config")[0].split() == ["tensorboard", "True", "configuration"]
    assert parse("").cluster.cluster_size == 1


def test_what_is_set_is_listed_first_and_forgotten_by_name_or_as_a_whole(run, said):
    run("nodes = 4")
    shown = said("%tfos config cluster_size=nodes tensorboard background env={'A': 'b c'}")
    assert {line.split()[0] for line in shown if line.endswith("%tfos config")} == {
        *("cluster_size", "env", "tensorboard", "background")
    }
    options = parse("background=false")
    assert (options.cluster.cluster_size, options.cluster.tensorboard, options.cluster.env) == (4, True, {"A": "b c"})
    assert not options.background
    run("%tfos config reset env background")
    assert (parse("").cluster.env, parse("").background, parse("").cluster.cluster_size) == ({}, False, 4) or (
        not parse("").cluster.env
    )
    assert not any("config" in line for line in said("%tfos config reset"))
    assert parse("") == CellOptions()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("cluster_size=0", "cluster_size=0: at least one node is needed"),
        ("cluster_size=2 clustersize=3", "clustersize: has no default to set; did you mean cluster_size?"),
        ("data=df", "data: has no default to set"),
        ("cluster_size", "cluster_size needs a value"),
        ("reset epoch", "epoch: has no default to set; did you mean epochs?"),
    ],
)
def test_a_wrong_default_changes_nothing(run, problem, line, sentence):
    assert sentence in problem(f"%tfos config {line}")
    assert parse("") == CellOptions()


def test_a_default_that_does_not_fit_a_cell_is_named_in_its_error(run):
    run("%tfos config num_ps=2")
    assert problems("cluster_size=2")[-1] == "defaults that hold here: num_ps=2 (%tfos config)"


# ---- documents ------------------------------------------------------------------------------------------------------


def test_the_help_names_every_option_with_its_default(run, shell):
    text = shell.find_cell_magic("tfos").__doc__
    assert text.startswith("Run this cell on a cluster: ``%%tfos cluster_size=4``.")
    words = " ".join(text.split())
    assert [option.name for option in OPTIONS if f"{option.name} {option.meaning} [" not in words] == []
    assert "cluster_size   nodes in all: workers, chief, ps and evaluator [whole number; 1]" in text


def test_the_document_holds_every_option_once_and_is_in_step():
    section = DOCUMENT.read_text("utf-8").split("## Cell options\n", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [option.name for option in OPTIONS]
    command = [sys.executable, DOCUMENT.parents[1] / ".ci/write_options.py", "--check"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
