"""``%tfos start``, ``%%tfos on=...`` and the debugger in a real kernel, with real nodes and somebody at the kernel."""

import re
import sys

import pytest

# ---- nodes that wait for cells --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def notebook(kernel):
    """The kernel, with three nodes that wait for cells."""
    started = kernel.run("scale = 5\n%tfos start cluster_size=3 local=processes args={'lr': 0.5, 'n': scale}")
    assert "chief:0, worker:0, worker:1 wait for cells: %%tfos on=cluster; %tfos stop cluster ends them" in started
    yield kernel
    kernel.run("%tfos stop cluster")


def test_names_stay_from_cell_to_cell(notebook):
    assert notebook.run("%%tfos on=cluster\nimport os\nnumber = ctx.worker_num\ndef double(x):\n    return 2 * x") == ""
    assert notebook.run("%%tfos on=cluster\ndouble(number)") == "chief:0: 0\nworker:0: 2\nworker:1: 4"
    task = notebook.run(
        "%%tfos on=cluster/worker:1\nimport json\nargs['n'], json.loads(os.environ['TF_CONFIG'])['task']['index']"
    )
    assert task == "worker:1: (5, 1)"


def test_nodes_go_by_the_variable_that_holds_them_too(notebook):
    notebook.run("crew, none = cluster, 5")
    assert notebook.run("%%tfos on=crew/worker:0\nctx.node") == "worker:0: 'worker:0'"
    assert "on=none: no nodes of that name wait" in notebook.run("%%tfos on=none\n1")


def test_nodes_that_wait_for_cells_do_nothing(notebook):
    known = "[node.name for node in cluster.nodes if node.activity is None or node.activity.is_known]"
    waits = f"import time\nend_s = time.monotonic() + 60\nwhile {known} and time.monotonic() < end_s: time.sleep(0.1)"
    assert notebook.run(f"{waits}\n{known}") == "[]"


def test_what_a_cell_writes_stands_below_it_grouped_where_nodes_agree(notebook):
    assert notebook.run("%%tfos on=cluster\nprint('hello')") == "[all 3 nodes]\nhello\n"
    text = notebook.run("%%tfos on=cluster\nprint('leads' if ctx.is_chief else '10 %\\r20 %')")
    assert text == "[chief:0]\nleads\n[worker:0, worker:1]\n20 %\n"
    assert notebook.run("%%tfos on=cluster/worker:0\nprint('<b>')") == "<b>\n"
    assert "&lt;b&gt;" in next(iter(notebook.shown.values()))["text/html"]
    assert notebook.run("%%tfos on=cluster\n1 + 1;") == ""
    assert notebook.run("%%tfos on=cluster\n'same'") == "all 3 nodes: 'same'"


def test_what_a_cell_shows_stands_below_it_and_no_longer_below_the_next(notebook):
    assert notebook.run("%%tfos on=cluster/worker:0\nctx.show([[9, 1], [2, 8]], 'confusion')") == "shown: confusion\n"
    assert "85.0 % of 20 are right" in next(iter(notebook.shown.values()))["text/html"]
    text = notebook.run("%%tfos on=cluster/chief:0\nprint('hello')\nctx.show([[3.5]], 'confusion', labels=['a'])")
    assert text == "hello\nshown: confusion\n"
    assert notebook.run("%%tfos on=cluster/chief:0\nprint('hello')") == "hello\n"


def test_what_another_node_shows_meanwhile_does_not_stand_below_a_cell(notebook, tmp_path):
    begun, shown = tmp_path / "begun", tmp_path / "shown"
    notebook.run(f"""%%tfos on=cluster/worker:0
import threading, time
from pathlib import Path

def show_late():
    while not Path({str(begun)!r}).exists():
        time.sleep(0.01)
    ctx.show([[3.5]], "late", labels=["a"])
    Path({str(shown)!r}).touch()

threading.Thread(target=show_late).start()""")
    text = notebook.run(f"""%%tfos on=cluster/chief:0
import time
from pathlib import Path

Path({str(begun)!r}).touch()
while not Path({str(shown)!r}).exists():
    time.sleep(0.01)
ctx.show([[3.5]], "own", labels=["a"])""")
    assert text == "shown: own\n"
    names = "{one.name for one in cluster.view().shown}"
    goes_on = f"'late' not in {names} and time.monotonic() < end_s"
    waits = f"import time\nend_s = time.monotonic() + 60\nwhile {goes_on}: time.sleep(0.1)"
    assert notebook.run(f"{waits}\n'late' in {names}") == "True"


def test_names_of_the_notebook_arrive_as_they_are_now_unless_the_nodes_have_their_own(notebook):
    notebook.run("rate = 1\ntotal = 100\ndef twice(x):\n    return x * rate * 2")
    assert notebook.run("%%tfos on=cluster/chief:0\ntotal = total + twice(1)\ntotal") == "chief:0: 102"
    notebook.run("rate = 2\ntotal = 'a lock' and __import__('threading').Lock()")
    assert notebook.run("%%tfos on=cluster/chief:0\ntotal += twice(1)\ntotal") == "chief:0: 106"
    assert "'total' (lock) cannot be sent to the nodes" in notebook.run("%%tfos on=cluster/worker:0\ntotal")


def test_an_exception_shows_the_cells_lines_and_leaves_the_nodes_alive(notebook):
    notebook.run("%%tfos on=cluster\nkept = 'kept'")
    text = notebook.run("%%tfos on=cluster\nprint('before')\ndef fail():\n    raise ValueError('too small')\nfail()")
    assert "[all 3 nodes]\nbefore" in text
    assert "CellFailed: chief:0, worker:0 and worker:1 failed" in text
    call = r"Cell In\[\d+\], line 5\n    fail\(\)\n(    [~^]+\n)?"  # newer Pythons underline it
    assert re.search(call + r" .*Cell In\[\d+\], line 4, in fail\n    raise", text)
    assert "ValueError: too small" in text
    other = notebook.run("%%tfos on=cluster\nif not ctx.is_chief:\n    {}[ctx.node]")
    assert "worker:1: KeyError: 'worker:1'" in other
    assert notebook.run("%%tfos on=cluster\nkept") == "all 3 nodes: 'kept'"


def test_an_interrupt_reaches_the_cell_on_the_nodes_and_not_the_cluster(notebook):
    text = notebook.run(
        "%%tfos on=cluster\nimport time\ntry:\n    print('sleeps')\n    time.sleep(1000)\nfinally:\n    left = True",
        interrupt_at="[all 3 nodes]\nsleeps",
    )
    assert "[all 3 nodes]\nsleeps" in text
    assert "KeyboardInterrupt: interrupted: the nodes of 'cluster' keep their names, and wait for the next cell" in text
    assert notebook.run("%%tfos on=cluster\nleft") == "all 3 nodes: True"


def test_a_module_beside_the_notebook_is_seen_as_it_is_on_disk(notebook):
    file = notebook.folder / "helpers_of_cells.py"
    for rate in (1, 22):
        file.write_text(f"RATE = {rate}\n")
        text = notebook.run("%%tfos on=cluster\nimport helpers_of_cells\nhelpers_of_cells.RATE")
        assert text == f"all 3 nodes: {rate}"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%%tfos on=clutser", "on=clutser: no nodes of that name wait; did you mean cluster?"),
        (
            "%%tfos on=cluster/worker:7",
            "the cluster 'cluster' has no node worker:7: it has chief:0, worker:0, worker:1",
        ),
        (
            "%%tfos on=cluster cluster_size=2",
            "cluster_size: belongs to %tfos start; with on=..., a cell takes no other option",
        ),
        ("%tfos start cluster_size=2", "the cluster 'cluster' is still running"),
        ("%tfos start name=other local=inline", "use local=processes for nodes"),
        ("%tfos start name=other restarts=1", "the names of an interactive cluster would be lost"),
        ("%tfos start name=other epochs=2", "epochs: feed rows with other.train(...) once the nodes wait"),
        ("%tfos start name=other background", "background: belongs to a cell"),
    ],
)
def test_a_line_that_does_not_fit_is_refused(notebook, line, sentence):
    assert sentence in notebook.run(f"{line}\n1")


def test_clusters_and_nodes_that_wait_are_offered(notebook):
    assert notebook.tab("%%tfos on=clu")[0] == "cluster"
    assert notebook.tab("%%tfos on=cluster/w") == ["cluster/worker:0", "cluster/worker:1"]
    assert "cluster_size=" in notebook.tab("%tfos start clu")


def test_stop_ends_the_nodes(notebook):
    notebook.run("%tfos config restarts=2")
    notebook.run("%tfos start cluster_size=1 local=processes name=short")
    notebook.run("%tfos config reset")
    assert notebook.run("%%tfos on=short\nctx.node") == "chief:0: 'chief:0'"
    notebook.run("%tfos stop short")
    assert notebook.run("short.state.value") == "'stopped'"
    assert "no nodes of that name wait" in notebook.run("%%tfos on=short\n1")


# ---- local=inline: the debugger -------------------------------------------------------------------------------------


# From Python 3.13 on, a breakpoint stops at its own line.
STEPS_TO_THE_NEXT_LINE = ("next",) if sys.version_info >= (3, 13) else ()


def test_a_breakpoint_stops_in_the_cell_with_its_own_lines_and_names(kernel):
    screen = kernel.run(
        "%%tfos local=inline name=here args=20\nanswer = args + 1\nbreakpoint()\nanswer *= 2\nanswer",
        *STEPS_TO_THE_NEXT_LINE,
        "p answer",
        "p ctx.node",
        "next",
        "p ('after', answer)",
        "continue",
    )
    assert screen.count("ipdb> ") == 5 + len(STEPS_TO_THE_NEXT_LINE)
    printed = kernel.printed.splitlines()
    said = ["----> 4 answer *= 2", "21", "'chief:0'", "----> 5 answer", "('after', 42)"]
    assert [line for line in printed if line in said] == said
    assert "done" in kernel.printed
    assert "42" in kernel.run("print(dict(here.results))")


def test_debug_goes_back_to_the_failing_line(kernel):
    failed = kernel.run("%%tfos local=inline name=here\nwanted = [1, 2]\nwanted[5]")
    assert "IndexError" in failed
    screen = kernel.run("%debug", "p wanted", "quit")
    assert "[1, 2]" in screen
    assert "wanted[5]" in screen
    assert "failed" in kernel.run("print(here.state)")
