"""Independent runs: which wait, go on and have ended, and what they returned."""

import argparse
import pickle
import re

import pandas as pd
import pytest

import tfos_lab
from tfos_lab.errors import ConfigError

# ---- what independent runs returned ---------------------------------------------------------------------------------


def act(args, ctx):
    if args == "raise":
        raise ValueError("no\nmore")
    return args


@pytest.fixture
def parallel():
    return lambda args, **options: tfos_lab.parallel(
        act, args, **{"local": "inline", "raise_failures": False, "show": False, **options}
    )


def test_results_stand_in_the_order_of_their_arguments_and_survive_pickling(parallel):
    results = parallel([0.5, "raise", 2])
    for found in (results, pickle.loads(pickle.dumps(results))):
        assert (len(found), found[0], found[-1], found[-3:1], found.done) == (3, 0.5, 2, [0.5], 2)
        assert (found[1].error, list(found.failures), found.states) == ("ValueError", [1], ["done", "failed", "done"])
    assert repr(results) == "0: 0.5\n1: failed ValueError: no\n2: 2"


def test_the_table_has_a_row_for_each_run_with_its_arguments_in_short(parallel):
    args = [{"lr": 0.1, "units": [64, 32]}, argparse.Namespace(lr=0.1), "raise", "x" * 200]
    table = parallel(args).table
    assert list(table.columns) == ["run", "args", "state", "tries", "seconds", "error"]
    assert list(table["args"])[:2] == ["lr=0.1, units=[64, 32]", "lr=0.1"]
    assert max(map(len, table["args"])) <= 60
    assert list(table["error"]) == ["", "", "ValueError: no", ""]
    assert list(table["tries"]) == [1] * 4


def test_the_table_in_a_notebook_has_seconds_as_a_card_has_them_and_errors_where_there_are_some(parallel):
    html = parallel([1, 2])._repr_html_()
    assert len(re.findall(r"<td>\d\.\d\d s</td>", html)) == 2
    assert "error" not in html
    assert "<td>ValueError: no</td>" in parallel(["raise"])._repr_html_()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"slots": 5000}, r"slots=5000: this machine has room for \d+ runs at once: it has \d+"),
        ({"spark": 3}, "spark is a int: a SparkSession is needed, as SparkSession.builder.getOrCreate"),
        ({"gpus": 99}, "gpus=99: this machine has "),
        ({"slots": 0, "retries": -1, "timeout": 0}, "(?s)slots=0.*retries=-1.*timeout=0"),
        ({"slots": 1.5, "retries": True, "timeout": "1"}, "(?s)slots=1.5.*retries=True.*timeout='1'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_begins(parallel, options, problem):
    with pytest.raises(ConfigError, match=problem):
        parallel([1], local="processes", **options)


def test_a_list_of_arguments_is_needed_and_may_be_empty(parallel, capsys):
    with pytest.raises(ConfigError, match=r"args_list is a DataFrame: .*df.to_dict\('records'\)"):
        parallel(pd.DataFrame({"lr": [0.1, 0.2]}))
    for wrong in ("abc", {"lr": 1}):
        with pytest.raises(ConfigError, match=f"args_list is a {type(wrong).__name__}"):
            parallel(wrong)
    assert list(parallel([], show=True)) == []
    assert capsys.readouterr().out == "", "there is nothing to show"
