"""What nodes show with `ctx.show`, on every back end: it comes home as it was, and is kept in the run."""

import sys

import numpy as np
import pytest

import tfos_lab
from tests.support.outline import Outline

pytestmark = [pytest.mark.leaves_nothing]

PNG = b"\x89PNG\r\n\x1a\n"
NASTY = "<img src=x onerror=alert(1)>"


@pytest.mark.one_spark
def test_what_nodes_show_comes_home_and_is_in_the_run(run):
    def show_all(_args, ctx):
        is_known = "matplotlib" in sys.modules
        for step in (10, 20):
            ctx.show(np.full((2, 8, 8, 1), step / 20), "samples", step=step)
        ctx.show(np.zeros((2, 2)), "picture")
        ctx.show(np.ones((3, 3, 3), np.uint8), "picture")
        ctx.show(np.array([[9, 1], [2, 8]]), "confusion", labels=["cat", NASTY])
        ctx.show(np.random.default_rng(0).integers(0, 255, (900, 900, 3)).astype(np.uint8), "large")
        return is_known or "matplotlib" not in sys.modules

    cluster = run(show_all, None)
    results = cluster.wait()
    cluster.stop()
    assert all(results.values()), "ctx.show imports nothing"
    nodes = [node.name for node in cluster.nodes]
    found = tfos_lab.runs()[cluster.run_dir]
    for shown in (cluster.view().shown, found.view().shown):
        assert [(one.name, one.node, one.step) for one in shown] == [
            *(("samples", node, step) for node in nodes for step in (10, 20)),
            *((name, node, None) for name in ("picture", "confusion", "large") for node in nodes),
        ]
    files = {one.file for one in cluster.view().shown}
    assert {path.relative_to(cluster.run_dir).as_posix() for path in (cluster.run_dir / "shown").iterdir()} == files
    assert all((cluster.run_dir / file).read_bytes().startswith(PNG) for file in files if file.endswith(".png"))
    page = found._repr_html_()
    told = " ".join(Outline(page).texts)
    for words in (
        "samples step 20",
        "1 earlier step",
        NASTY,
        "85.0 % of 20 are right",
        "A picture of 2.4 MB: ctx.show",
    ):
        assert words in told
    assert Outline(page).tags.count("img") == 3 * len(nodes)
    assert "script" not in Outline(page).tags


def plot(_args, ctx):
    import matplotlib.pyplot as plt
    import pandas as pd

    plt.plot([1, 2, 3])
    plt.title("a curve")
    plt.figure("squares")
    plt.plot([1, 4, 9])
    plt.show()
    for _ in range(2):
        plt.plot([1, 2])
        plt.show(block=False)
    left = plt.get_fignums()
    display(pd.DataFrame({"a": [1]}), "words", plt.figure("displayed"))  # noqa: F821 - known as in a notebook
    return left


@pytest.mark.back_ends("local")
def test_what_pyplot_and_display_show_on_a_node_comes_home_too(run, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # as in a notebook's kernel
    cluster = run(plot, None, cluster_size=1)
    assert cluster.wait()["chief:0"] == []
    cluster.stop()
    shown = [(one.name, one.step) for one in cluster.view().shown]
    steps = [("figure", 1), ("figure", 2), ("display", 1)]
    assert shown == [("a curve", None), ("squares", None), *steps, ("displayed", None)]
    assert cluster.logs("chief:0") == "'words'\n"
    files = {one.name: cluster.run_dir / one.file for one in cluster.view().shown}
    assert b'"a"' in files.pop("display").read_bytes()
    assert all(file.read_bytes().startswith(PNG) for file in files.values())
