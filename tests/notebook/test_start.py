"""`tfos_lab.run` and `tfos_lab.start` in a notebook: shown as a cell's cluster is."""

import re

import pytest

from tests.notebook.kernel import Kernel
from tests.support.quick import QUICK_ENV

WIDGET = "application/vnd.jupyter.widget-view+json"
WATCHED = "import os, tfos_lab\nos.environ.pop('TFOS_LAB_NONINTERACTIVE', None)"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    with Kernel(tmp_path_factory.mktemp("notebook")) as kernel:
        yield kernel


@pytest.mark.leaves_nothing
def test_a_cluster_is_shown_unless_that_is_not_wanted(notebook):
    run = "with tfos_lab.run(lambda: 7, local='processes', name='{name}', show={show}) as cluster:\n    cluster.wait()"
    start = "with tfos_lab.start(local='processes', name='waiting') as crew:\n    crew.run_cell('1 + 1')"
    notebook.run("import tfos_lab")
    # Where nobody watches, as lines.
    assert (
        notebook.run(run.format(name="unwatched", show=None))
        == "[unwatched] runs in the background; %tfos shows its state\n"
    )
    notebook.run(WATCHED)
    assert notebook.run(run.format(name="hidden", show=False)) == ""
    for name, cell in (("seen", run.format(name="seen", show=None)), ("waiting", start)):
        notebook.run(cell)
        (began,) = (data for shown, data in notebook.began.items() if shown.startswith(f"tfos-{name}-"))
        assert WIDGET in began, "the live view of its nodes; a run that has ended meanwhile has its card there"
    # As VS Code and Colab begin; they would fetch the code of widgets from the internet.
    colab = "import sys; sys.modules['google.colab'] = sys"
    for begin, end in (
        ("__vsc_ipynb_file__ = 'a.ipynb'", "del __vsc_ipynb_file__"),
        (colab, "del sys.modules['google.colab']"),
    ):
        notebook.run(begin)
        notebook.run(run.format(name="plain", show=None))
        assert notebook.shown
        assert all(shown.keys() == {"text/html", "text/plain"} for shown in notebook.shown.values())
        notebook.run(end)
    refused = notebook.run("tfos_lab.run(print, name='refused', cluster_size=0)")
    assert "ConfigError: cluster_size=0: at least one node is needed" in refused
    assert not any(shown.startswith("tfos-refused-") for shown in notebook.shown)


@pytest.mark.full
def test_a_cluster_of_a_program_of_tensorflowonspark_is_shown(notebook):
    notebook.run(WATCHED)
    notebook.run(f"os.environ.update({QUICK_ENV})")  # nodes inherit it
    notebook.run("from pyspark.sql import SparkSession\nspark = SparkSession.builder.master('local[2]').getOrCreate()")
    told = notebook.run(
        "from tfos_lab.compat import TFCluster\n"
        "cluster = TFCluster.run(spark.sparkContext, lambda args, ctx: None, None, 2, 0)\ncluster.shutdown()"
    )
    began = [data for shown, data in notebook.began.items() if shown.startswith("tfos-cluster-")]
    assert [WIDGET in data for data in began] == [True], told


BARS = r"""
import sys, time

def write():
    bars = "\r[Stage 0:====>      (3 + 2) / 8][Stage 1:>    (0 + 1) / 2]"
    for text in (bars, "\r" + " " * 80 + "\r", "a warning\n"):
        print(text, end="", file=sys.stderr, flush=True)  # as IPython does with what the JVM writes
        time.sleep(0.3)
"""


def test_a_card_leaves_no_empty_strip_where_spark_s_progress_bar_was(notebook):
    notebook.run(WATCHED)
    notebook.run(BARS)
    notebook.run("with tfos_lab.start(local='processes'):\n    write()")
    assert "a warning\n" in notebook.printed
    assert not re.search(r"\[Stage|\r", notebook.printed)
    notebook.run("write()")
    assert "[Stage 0:" in notebook.printed, "other cells keep it"
