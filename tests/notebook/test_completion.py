"""Tab on the lines of ``%%tfos`` and ``%tfos``; Tab and Shift-Tab in a cell's body, as a real kernel answers."""

import re

import pytest
from IPython.core.completer import provisionalcompleter


@pytest.fixture
def tab(run, shell):
    """What Lab's popup offers at the end of a text (or at ``|``)."""

    def offer(text):
        before, _, after = text.partition("|")
        with provisionalcompleter():
            return [found.text for found in shell.Completer.completions(before + after, len(before))]

    return offer


def test_options_are_offered_with_their_equals_sign_or_choices_and_those_that_are_given_not_again(tab):
    assert tab("%%tfos clu") == ["cluster_size="]
    assert tab("%%tfos cluster_size=4 tens|\nbody") == ["tensorboard"]
    assert set(tab("%%tfos re")) == {"remainder=", "restarts="}
    assert "cluster_size=" not in tab("%%tfos cluster_size=4 ")
    assert "num_ps=" in tab("%%tfos cluster_size=4 ")
    assert tab("%%tfos local=") == ["auto", "processes", "inline", "off"]
    assert tab("%%tfos local=in") == ["inline"]
    assert tab("%%tfos tensorboard=t") == ["true"]


def test_names_that_hold_a_fitting_value_are_offered(tab, run):
    run("class DataFrame: ...\nDataFrame.__module__ = 'pyspark.sql.dataframe'\ntrain_df = DataFrame()\ntrain_n = 3")
    assert tab("%%tfos data=tra") == ["train_df"]
    assert tab("%%tfos cluster_size=tra") == ["train_n"]
    assert tab("%%tfos cluster_size=2 args=tra") == ["train_df", "train_n"]
    assert "train_n" in tab("%%tfos args={'a': train_"), "within brackets, Python completes"


def test_commands_and_their_arguments_are_offered(tab, run, shell):
    assert tab("%tfos st") == ["start", "stop", "stacks"]
    helped = re.findall(r"^%tfos (\w+)", shell.find_cell_magic("tfos").__doc__, re.MULTILINE)
    assert {*helped} == {*tab("%tfos ")}, "each is in the help, and none else"
    run("%%tfos name=complete_me cluster_size=2 local=processes background\nimport threading\nthreading.Event().wait()")
    for command in ("logs", "stop", "stacks", "profile"):
        assert tab(f"%tfos {command} complete_") == ["complete_me"]
    for command in ("logs", "stacks"):
        assert tab(f"%tfos {command} complete_me w") == ["worker:0"]
    assert tab("%tfos stop al") == ["all"]
    assert {"reset", "cluster_size="} <= set(tab("%tfos config "))
    assert "data=" not in tab("%tfos config ")


# ---- in the body ----------------------------------------------------------------------------------------------------


@pytest.fixture
def front_end(kernel):
    kernel.run("rate, table = 0.1, {'depth': 3}")
    return kernel


def test_tab_offers_what_context_handle_and_arguments_have(front_end):
    assert front_end.tab("%%tfos cluster_size=2\nx = 1\nmodel.fit(ctx.data|)\n") == ["data_feed", "dataset"]
    assert {"job_name", "task_index", "gpus", "report"} <= set(front_end.tab("%%tfos\nif ctx."))
    assert not [name for name in front_end.tab("%%tfos\nctx.") if name.startswith("_")]
    assert front_end.tab("%%tfos\ncluster.wai") == ["wait", "wait_until_running"]
    assert front_end.tab("%%tfos args={'lr': rate, 'layers': 2}\nargs['l|") == ["lr", "layers"]
    assert "depth" in front_end.tab('%%tfos args=table\nargs["')
    assert "items" in front_end.tab("%%tfos args=table\nargs.it")


def test_names_of_other_cells_and_those_that_the_cell_makes_are_their_own(front_end):
    assert "dataset" not in front_end.tab("%%tfos\nctx = 'text'\nctx.data")
    assert "dataset" not in front_end.tab("ctx.data")
    assert "NodeContext" not in front_end.shift_tab("ctx|.dataset")


def test_shift_tab_shows_signature_docstring_and_values(front_end):
    shown = front_end.shift_tab("%%tfos\nrows = ctx.dataset(|64)\n")
    assert "ctx.dataset(\n    batch_size: 'int'" in shown
    assert "self" not in shown.partition("Docstring")[0]
    assert "Rows per batch on this node" in shown
    assert "Wait until all training nodes have returned" in front_end.shift_tab("%%tfos\ncluster.wait|()")
    task_index = front_end.shift_tab("%%tfos\nctx.task_index|")
    assert task_index == "task_index : int\n\nNumber of this node within its job, from 0."
    context = front_end.shift_tab("%%tfos\nctx|")
    assert "NodeContext" in context
    assert "One node's view of the cluster" in context
    assert "{'depth': 3}" in front_end.shift_tab("%%tfos args=table\nargs|")
