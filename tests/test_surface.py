"""The names that programs outside this repository use, with their signatures, and what they are promised to do."""

import importlib
import inspect
import re
import threading
from pathlib import Path

import pytest

import tfos_lab
from tests.support.clusters import running_clusters
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tfos_lab import ml  # before `compat`, whose import has the logging of TensorFlowOnSpark's programs appear

ROOT = Path(tfos_lab.__file__).parents[1]

# Name → how it is called. Parameters before ``...`` come first, in this order; those after ``*`` are keywords. Whatever
# else a call takes is a keyword with a default.
CALLS = {
    "run": "map_fun, args=None, *, spark=None, data=None, validation=None, show=None, epochs=1, columns=None, "
    "remainder='exact', feed_timeout=600.0, objects=None, {cluster}",
    "start": "args=None, *, spark=None, {cluster}",
    "clusters": "",
    "runs": "folder=None",
    "predict": "df, model, ...",
    "parallel": "map_fun, args_list, *, show=None",
    "search": "map_fun, space, *, show=None",
    "search.search": "map_fun, space, *, show=None",
    "run_script": "path, nodes=..., ..., *, show=None",
    "local_context": "",
    "Cluster.train": "self, data, epochs=1, *, validation=None, columns=None, remainder='exact', timeout=600.0",
    "Cluster.inference": "self, data, columns=None",
    "Cluster.wait": "self, timeout=None",
    "Cluster.stop": "self",
    "Cluster.shutdown": "self",
    "Cluster.logs": "self, node=None, tail=None",
    "Cluster.stacks": "self, node=None",
    "Cluster.profile": "self, node=None, seconds=5.0",
    "Cluster.diagnose": "self",
    "Cluster.story": "self",
    "Cluster.plot": "self",
    "Cluster.model": "self",
    "NodeContext.strategy": "self",
    "NodeContext.dataset": "self, batch_size, *, split='train', features=None, label=None, weight=None, shuffle=False, "
    "seed=None, remainder=None, prefetch=2, decode_raw=None",
    "NodeContext.validation": "self, batch_size, *, features=None, label=None, weight=None, shuffle=False, seed=None, "
    "remainder=None, prefetch=2, decode_raw=None",
    "NodeContext.stop_feed": "self",
    "NodeContext.put_results": "self, batch",
    "NodeContext.report": "self, step=None",
    "NodeContext.callbacks": "self",
    "NodeContext.save_model": "self, model",
    "NodeContext.model_dir": "self, path",
    "NodeContext.shard": "self, dataset_or_files",
    "NodeContext.files": "self, pattern",
    "NodeContext.even": "self, dataset, ...",
    "NodeContext.data_feed": "self, train_mode=True, input_mapping=None",
    "NodeContext.rows_as_files": "self, ...",
    "NodeContext.start_server": "self",
    "data.write_tfrecords": "df, path",
    "data.read_tfrecords": "spark, path, ...",
    "data.mnist": "",
    "data.titanic": "",
    "compat.install": "",
}
CLUSTER = (
    "cluster_size=1, num_ps=0, evaluator=False, tensorboard=False, log_dir=None, name=None, local='auto', restarts=0, "
    "hang_timeout=60.0, on_hang='warn', gpus=None, env=None, start_timeout=600.0, grace=10.0, collect='chief'"
)
ATTRIBUTES = {
    "Cluster": "nodes state results metrics timings events tensorboard_url run_dir output_dir model_path",
    "NodeContext": "epochs gpus output_dir",
}
OF_A_CONTEXT = "job_name task_index cluster_spec is_chief rank world_size args gpus log_dir backup_dir output_dir"
CELL_OPTIONS = """cluster_size num_ps evaluator data validation epochs columns remainder feed_timeout args tensorboard
    log_dir name background local restarts hang_timeout on_hang gpus env start_timeout grace collect"""
LINE_MAGICS = "stop logs tensorboard stacks profile history start doctor export warm config"
COMMANDS = "doctor lab run-script history pack warm"
TARGETS = "setup demo lab test test-all check bench docs gallery"
# Second spellings of what has one.
GONE = {
    "": "run_record",
    "Cluster": "cancel status table",
    "NodeContext": "num_workers num_trainers executor_id data_files size",
}


def found(path):
    """Return what a dotted name of `tfos_lab` stands for."""
    value = tfos_lab
    for name in path.split("."):
        if inspect.ismodule(value) and not hasattr(value, name):
            value = importlib.import_module(f"{value.__name__}.{name}")
        else:
            value = getattr(value, name)
    return value


@pytest.mark.parametrize("path", CALLS)
def test_each_call_takes_what_is_promised_in_this_order_and_else_keywords_with_defaults(path):
    wanted = CALLS[path].replace("{cluster}", CLUSTER)
    signature = inspect.signature(found(path))
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    if path == "search.search":
        own = [one for one in own if one.name != "self"]
    in_order, _, keywords = wanted.partition("*")
    for place, text in enumerate(part for part in in_order.split(", ") if part.strip(", ") not in ("", "...")):
        name, _, default = text.strip(", ").partition("=")
        assert (own[place].name, own[place].kind) == (name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        assert default in ("...", "" if own[place].default is inspect.Parameter.empty else repr(own[place].default))
    for text in filter(None, keywords.strip(", ").split(", ")):
        name, _, default = text.partition("=")
        one = signature.parameters[name]
        assert (repr(one.default), one.kind) == (default, inspect.Parameter.KEYWORD_ONLY), name
    needed = [one.name for one in own if one.default is inspect.Parameter.empty]
    assert needed == [text.strip(", ") for text in in_order.split(", ") if text.strip(", .") and "=" not in text]


def test_handles_and_contexts_have_their_attributes_and_no_second_spelling():
    for path, names in ATTRIBUTES.items():
        assert [name for name in names.split() if not isinstance(getattr(found(path), name, None), property)] == []
    ctx = tfos_lab.local_context()
    assert [name for name in OF_A_CONTEXT.split() if not hasattr(ctx, name)] == []
    assert (ctx.world_size, ctx.rank, ctx.is_chief) == (1, 0, True)
    for path, names in GONE.items():
        owner = found(path) if path else tfos_lab
        assert [name for name in names.split() if hasattr(owner, name) or hasattr(ctx, name)] == []


def test_stages_and_compat_are_there_by_name():
    from tfos_lab import compat

    for name in ("TFEstimator", "TFModel", "TFTextFileEstimator"):
        assert isinstance(getattr(ml, name), type)
    assert isinstance(compat.MirroredStrategyRunner, type)
    for module in ("TFCluster", "TFNode", "TFParallel", "TFSparkNode", "dfutil", "pipeline", "compat", "util"):
        importlib.import_module(f"tfos_lab.compat.{module}")


def test_cells_lines_and_the_command_line_know_their_words():
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    from tfos_lab import cli

    shell = InteractiveShell.instance()
    tfos_lab.load_ipython_extension(shell)

    def tab(text):
        with provisionalcompleter():
            return {found.text.removesuffix("=") for found in shell.Completer.completions(text, len(text))}

    assert set(CELL_OPTIONS.split()) <= tab("%%tfos ")
    assert set(LINE_MAGICS.split()) == tab("%tfos ")
    assert set(COMMANDS.split()) == set(cli.COMMANDS)


def test_make_has_its_targets():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert set(TARGETS.split()) <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


# ---- what is promised of them ----------------------------------------------------------------------------------------


@pytest.fixture
def runs_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    return tmp_path


def test_results_go_by_the_names_of_nodes_and_a_script_s_run_is_shown_if_asked_for(runs_folder, capfd):
    with running_clusters({"local": "processes", "cluster_size": 3, "env": QUICK_ENV}) as run:
        apart = run(lambda args, ctx: (ctx.node, ctx.world_size))
        assert [node.name for node in apart.nodes] == ["chief:0", "worker:0", "worker:1"]
        assert apart.wait(timeout=60)["worker:1"] == ("worker:1", 3)
        assert len(repr(apart.results).splitlines()) == 3
        assert set(apart.timings) >= {"reserved", "running", "done"}
        silent = run(lambda: None)
        silent.wait(timeout=60)
        assert capfd.readouterr().out == ""
        alike = run(lambda: 0.5, name="shown", show=True)
        alike.wait(timeout=60)
        alike.stop()
    assert repr(alike.results) == "all 3 nodes: 0.5"
    assert alike.results["worker:1"] == 0.5
    with pytest.raises(KeyError, match=r"no result of 'worker:7'; did you mean worker:1\?"):
        _ = alike.results["worker:7"]
    assert (repr(silent.results), silent.results["chief:0"]) == ("no results", None)
    eventually(lambda: "tfos-lines" not in [thread.name for thread in threading.enumerate()])  # which writes them
    assert "[shown] " in capfd.readouterr().out
    assert tfos_lab.runs()["shown"].run_dir == alike.run_dir


def _table():
    import pandas as pd

    return pd.DataFrame({"a": range(50), "b": 0.5})


def test_handles_and_tables_are_tables_in_a_notebook_and_nothing_in_them_is_markup(runs_folder):
    with running_clusters({"local": "processes", "cluster_size": 1, "env": QUICK_ENV}) as run:
        cluster = run(lambda: "<b>bold</b>", name="<i>named</i>")
        cluster.wait(timeout=60)
        parallel = tfos_lab.parallel(lambda: "<b>bold</b>", [1], env=QUICK_ENV)
        for shown in (cluster, cluster.results, cluster.diagnose(), parallel, tfos_lab.runs()[cluster.id]):
            html = shown._repr_html_()
            assert "<b>" not in html
            assert "<i>" not in html
        assert "<td" in cluster._repr_html_()
        assert "&lt;b&gt;bold&lt;/b&gt;" in cluster.results._repr_html_()
        tables = run(_table, name="tables")
        tables.wait(timeout=60)
        assert re.search(r"white-space: pre[^>]*> +a +b\n0 +0 +0\.5\n1 +1 +0\.5\n", tables.results._repr_html_())
        assert repr(tables.results).startswith("chief:0:\n")
        assert len(repr(tables.results).splitlines()) < 30
    assert "<table" in tfos_lab.runs()._repr_html_()
