"""Tab on the %%tfos line."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter

from tests.jupyter.scripted import ScriptedCluster


@pytest.fixture
def complete(magics: Any) -> Any:
    """What Lab's popup offers at the end of a text (or at ``|``)."""

    def offer(text: str) -> list[str]:
        before, _, after = text.partition("|")
        with provisionalcompleter():
            return [found.text for found in magics.Completer.completions(before + after, len(before))]

    return offer


def test_options_are_offered_with_their_equals_sign(complete: Any) -> None:
    assert complete("%%tfos clu") == ["cluster_size="]
    assert complete("%%tfos cluster_size=4 tens|\nbody") == ["tensorboard"]
    assert complete("%%tfos --clu") == ["--cluster_size"]
    assert set(complete("%%tfos re")) == {"remainder=", "replace", "restarts=", "reservation_timeout="}


def test_given_options_are_not_offered_again(complete: Any) -> None:
    assert "cluster_size=" not in complete("%%tfos cluster_size=4 ")
    assert "num_ps=" in complete("%%tfos cluster_size=4 ")


def test_choices_are_offered(complete: Any) -> None:
    assert complete("%%tfos local=") == ["auto", "processes", "inline", "false"]
    assert complete("%%tfos local=in") == ["inline"]
    assert complete("%%tfos --local in") == ["inline"]
    assert complete("%%tfos tensorboard=t") == ["true"]


def test_names_that_hold_a_fitting_value_are_offered(complete: Any, run_cell: Any) -> None:
    run_cell(
        "class DataFrame: ...\nDataFrame.__module__ = 'pyspark.sql.dataframe'\ntrain_df = DataFrame()\ntrain_n = 3"
    )
    assert complete("%%tfos data=tra") == ["train_df"]
    assert complete("%%tfos cluster_size=tra") == ["train_n"]
    assert complete("%%tfos cluster_size=2 args=tra") == ["train_df", "train_n"]


def test_within_brackets_python_completes(complete: Any, run_cell: Any) -> None:
    run_cell("rate_of_learning = 3")
    assert "rate_of_learning" in complete("%%tfos args={'a': rate_of_l")


def test_other_lines_are_not_completed(complete: Any) -> None:
    assert "cluster_size=" not in complete("%%tfos\nclu")
    assert "cluster_size=" not in complete("clu")


def test_commands_and_their_arguments_are_offered(complete: Any, scripted: Any, run_cell: Any) -> None:
    scripted(ScriptedCluster("mnist"))
    assert complete("%tfos st") == ["status", "start", "stop", "stacks"]
    run_cell("%%tfos name=mnist\n1")
    assert complete("%tfos logs mn") == ["mnist"]
    assert complete("%tfos logs mnist w") == ["worker:0"]
    assert complete("%tfos stop a") == ["all"]
