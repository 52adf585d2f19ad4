"""A ``%%tfos`` cell: its body as a function, the names that it takes along, and its way to the nodes and back."""

import itertools
import os
import re
import signal
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import tfos_lab
from tests.support.eventually import eventually
from tfos_lab.errors import ClusterInterrupted, ConfigError, NodeFailed, NoSession, NotEnoughRoom, PayloadError

WAITS = "import threading\nthreading.Event().wait()"
# It ignores SIGTERM.
STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\n{WAITS}"


@pytest.fixture
def here(run):
    """Run the body of a cell in this process; return its value."""
    return lambda body, line="": (run(f"%%tfos local=inline name=here {line}\n{body}") or {}).get("chief:0")


@pytest.fixture
def on_node(run):
    """Run the body of a cell on a node; return its value."""
    return lambda body, line="": (run(f"%%tfos local=processes name=there {line}\n{body}") or {}).get("chief:0")


# ---- what it returns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("x = 2\nx * 3\n", 6),
        ("x = 2\nx * 3;\n", None),
        ("x = 2\n", None),
        ("return 7\n", 7),
        ("if not args:\n    return 'early'\n'late'\n", "early"),
        ("'only a docstring'\n", "only a docstring"),
        ("x = 1; x\n", 1),
        ("x = 1  # no ; here\nx  # ;\n", 1),
        ("(args,\n ctx.node)\n", (None, "chief:0")),
        ("def f(n):\n    return n and n + f(n - 1)\nf(3)\n", 6),
        ("k = 2\n[k * i for i in range(3)]\n", [0, 2, 4]),
        ("k = 2\nclass A:\n    v = k\nA.v\n", 2),
        ("from __future__ import annotations\ndef f(a: Nowhere): ...\nf.__annotations__['a']\n", "Nowhere"),
        ("n = 0\ndef bump():\n    nonlocal n\n    n += 1\nbump()\nn\n", 1),
        ("global g\ng = 5\ndef f():\n    return g\nf()\n", 5),
        ("import asyncio\nasync def f():\n    return 3\ndef g():\n    yield 4\nasyncio.run(f()), list(g())", (3, [4])),
    ],
)
def test_a_cell_returns_its_last_value_or_that_of_its_return(here, body, value):
    assert here(body) == value


def test_a_last_value_that_cannot_be_sent_is_shown_as_text_and_a_returned_one_is_refused(on_node):
    assert "lock" in repr(on_node("import threading\nthreading.Lock()"))
    with pytest.raises(NodeFailed, match="lock"):
        on_node("import threading\nreturn threading.Lock()")


_SAVES = """import sys, types
class Model:
    def save(self, path):
        open(path, "w").close()
sys.modules["keras"] = types.SimpleNamespace(Model=Model)
"""


def test_a_cell_that_ends_by_saving_its_model_shows_no_folder_that_will_be_gone(on_node):
    assert on_node(f"{_SAVES}ctx.save_model(Model())") is None
    assert on_node(f"{_SAVES}return ctx.save_model(Model())").endswith("/model.keras")
    assert on_node(f"{_SAVES}type(ctx.save_model(Model())) is str")


# ---- the names that it takes along ----------------------------------------------------------------------------------


def test_names_are_captured_as_far_as_they_are_needed(run, on_node):
    run("import math, threading\nlock = threading.Lock()\nrate, unused = 3, threading.Lock()")
    run("def scale(v):\n    return v * rate\nclass Net:\n    def f(self):\n        return scale(2)")
    assert on_node("Net().f() + math.floor(rate)") == 9
    run("width = 3\nclass Base: ...")
    body = "class A(Base):\n    units = width\n    width = width\n    class B:\n        deep = width\n"
    assert on_node(body + "A.units, A.width, A.B.deep") == (3, 3, 3)
    assert on_node("lock = 3\nlock") == 3, "it is assigned first"
    assert on_node("for lock in range(2):\n    pass\nlock") == 1
    with pytest.raises(PayloadError) as error:
        on_node("lock = lock.copy()\nlock")
    assert error.value.name == "lock"
    for name in ("nowhere", "get_ipython"):
        with pytest.raises(NodeFailed, match=f"NameError.*{name}"):
            on_node(f"{name}()")


PAIRS = """class Pair:
    def __init__(self, of):
        self.of = of, of
def pair(of):
    return Pair(of)
def answer(args, ctx):
    feed = ctx.data_feed(train_mode=False)
    while not feed.should_stop():
        feed.batch_results([Pair(of) for of in feed.next_batch(2)])
"""


def test_pickle_finds_on_a_node_what_the_notebook_defines_and_others_get_it_whole(run, on_node, shell, spark):
    run(PAIRS)
    pool = "from multiprocessing import get_context\nwith get_context('fork').Pool(1) as pool:\n    "
    assert on_node(f"{pool}found = pool.map(pair, [3])\nfound[0].of") == (3, 3)
    with tfos_lab.run(shell.user_ns["answer"], local="processes", show=False) as cluster:
        answers = cluster.inference(spark.sparkContext.parallelize([4, 5], 1), objects=True)
        assert answers.map(lambda found: found.of).collect() == [(4, 4), (5, 5)]


def test_a_name_that_is_changed_starts_with_the_notebook_s_value_and_never_changes_it(run, on_node, here, shell):
    run("x = 1\nitems = [0]")
    assert on_node("x += 5\ndef f():\n    return x\nf()") == 6
    assert on_node("for i in range(3):\n    x = x + i\nx") == 4
    assert on_node("y = x\ndel x\ny") == 1
    assert on_node("if args:\n    x = 0\nx") == 1
    assert on_node("items.append(x)\nx = items\nx") == [0, 1]
    assert here("import contextlib\nwith contextlib.suppress(ValueError):\n    raise ValueError\nx += 5\nx") == 6
    assert here("global x\nx = 2\nx") == 2
    assert (shell.user_ns["x"], shell.user_ns["items"]) == (1, [0])
    assert here("items.append(7)\nitems") == [0, 7], "in the notebook's process it is the notebook's own object"
    assert shell.user_ns["items"] == [0, 7]


def _indented(lines):
    return [f"    {line}" for line in lines]


def _else(part):
    return ["else:", *_indented(part[2])] if part[2] and not part[0].startswith("with") else []


_BLOCKS = st.recursive(
    st.sampled_from(["x = 1", "use(x)", "x += 1", "may_raise()", "for x in items(): pass", "pass"]).map(
        lambda line: [line]
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda blocks: list(itertools.chain(*blocks))),
        st.tuples(
            st.sampled_from(["if c():", "while c():", "for i in items():", "with context() as y:"]),
            inner,
            st.one_of(st.none(), inner),
        ).map(lambda part: [part[0], *_indented(part[1]), *_else(part)]),
        st.tuples(inner, inner, st.one_of(st.none(), inner)).map(
            lambda part: (
                ["try:", *_indented(part[0]), "except Raised:", *_indented(part[1])]
                + (["finally:", *_indented(part[2])] if part[2] else [])
            )
        ),
        st.tuples(inner, st.sampled_from(["break", "continue"])).map(
            lambda part: ["while c():", *_indented(["if c():", f"    {part[1]}", *part[0]])]
        ),
    ),
    max_leaves=8,
)
_NAMES = """
import contextlib
class Raised(Exception): ...
def c(): return next(left, False)  # after all choices, loops end
def items(): return [1] * c()
def may_raise():
    if c(): raise Raised
use, context, x = id, contextlib.nullcontext, 0
"""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(_BLOCKS, st.lists(st.booleans(), max_size=12))
def test_whatever_way_control_takes_a_name_has_the_notebook_s_value_at_first(run, shell, lines, choices):
    run(_NAMES)
    shell.user_ns["left"] = iter(choices)
    try:
        run("%%tfos local=inline name=here\n" + "\n".join(lines))
    except Exception as error:  # noqa: BLE001 - the cell's own
        if type(error).__name__ != "Raised":
            pytest.fail("\n".join([repr(error), *lines]))


# ---- where its lines are --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("%%tfos local=inline\na = 1\n1 / 0", 3),
        ("\n\n%%tfos local=inline\na = 1\n1 / 0\n", 5),
        ("%%time\n%%tfos local=inline\na = 1\n1 / 0", 4),
    ],
)
def test_lines_above_the_body_are_counted(run, typed, line):
    with pytest.raises(ZeroDivisionError) as error:
        run(typed)
    assert error.traceback[-1].lineno + 1 == line


@pytest.mark.parametrize(("place", "name"), [("here", "here"), ("on_node", "there")])
def test_the_text_of_a_cell_is_python_for_who_reads_all_of_it_and_its_record_is_as_typed(request, place, name, shell):
    """AutoGraph does so to convert a lambda, wherever the function runs."""
    body = "import ast, linecache\nfound = ast.parse(''.join(linecache.getlines((lambda: 0).__code__.co_filename)))\n"
    assert request.getfixturevalue(place)(body + "found.body[0].lineno") == 2
    record = eventually(lambda: tfos_lab.runs()[shell.user_ns[name].run_dir].record)
    assert re.match(r"%%tfos .*\nimport ast", record.code.source)


def test_an_inline_error_comes_with_its_own_frames_only(run, shell):
    with pytest.raises(ZeroDivisionError) as error:
        run("%%tfos local=inline\ndef f():\n    return 1 / 0\nf()")
    assert [entry.name for entry in error.traceback][-2:] == ["<module>", "f"]
    assert not any("launchers" in str(entry.path) or "calling" in str(entry.path) for entry in error.traceback)
    assert shell.user_ns["cluster"].state == "failed"


def test_an_error_on_a_node_names_cell_and_line_and_functions_have_their_source_there(run, on_node, shell):
    number = shell.execution_count
    with pytest.raises(NodeFailed) as error:
        run("%%tfos local=processes\ndef f():\n    return 1 / 0\n\nf()")
    assert f"Cell In[{number}], line 5\n    f()" in error.value.traceback
    assert f"Cell In[{number}], line 3, in f\n    return 1 / 0" in error.value.traceback
    body = "import inspect\ndef step(x):\n    return x + 1\ninspect.getsource(step)"
    assert on_node(body) == "def step(x):\n    return x + 1\n"


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["\n", "   \n\n", "# only a comment\n", "from __future__ import annotations\n"])
def test_an_empty_cell_is_refused_with_a_sentence(problem, body):
    assert problem(f"%%tfos\n{body}") == "the cell is empty: write below %%tfos what each node is to do"


def test_a_line_below_the_first_cannot_begin_with_the_magic(problem):
    assert problem("# trains\n%%tfos cluster_size=2\na = 1\n").startswith("%%tfos has to be the first line of its")


@pytest.mark.parametrize(
    ("body", "line", "text"),
    [
        ("a = 1\n%matplotlib inline\n", 3, "%matplotlib inline"),
        ("!pip install x\n", 2, "!pip install x"),
        ("a = !ls\n", 2, "a = !ls"),
        ("%%time\na = 1\n", 2, "%%time"),
        ("import os\nos.path?\n", 3, "os.path?"),
        ("if args:\n    %time f()\n", 3, "%time f()"),
    ],
)
def test_magics_and_commands_are_refused_with_their_line(problem, body, line, text):
    said = problem(f"%%tfos\n{body}")
    assert said.startswith(f"line {line}: `{text}` is for the notebook, and nodes run plain Python. ")
    assert "subprocess.run" in said


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("a = 1\nb ==\n", 3, "invalid syntax"),
        ("a = 1\n  b = 2\n", 3, "unexpected indent"),
        ("a = 1\nbreak\n", 3, "'break' outside loop"),
        ("a = 1\nawait f()\n", 3, "'await' at the top of a %%tfos cell: nodes run a plain function; use asyncio.run"),
        ("yield 1\n", 2, "'yield' at the top of a %%tfos cell: a node returns one value; collect them in a list"),
        ("from math import *\n", 2, "'import *' in a %%tfos cell, whose body is a function"),
        ("nonlocal a\n", 2, "'nonlocal' at the top of a %%tfos cell: there is no function around it"),
        ("global args\n", 2, "'args' and 'ctx' are given to the cell, and cannot be global"),
        ("def f():\n    nonlocal nowhere\n", 3, "no binding for nonlocal 'nowhere' found"),
    ],
)
def test_invalid_python_is_refused_at_its_own_line(run, body, line, message):
    with pytest.raises(SyntaxError) as error:
        run(f"%%tfos\n{body}")
    assert message in str(error.value)
    assert error.value.lineno == line


# ---- its way to the nodes and back ----------------------------------------------------------------------------------


def test_nodes_get_the_roles_the_arguments_and_the_environment_of_the_line(run, shell):
    run("rate = 0.5")
    results = run(
        "%%tfos cluster_size=3 num_ps=1 name=mnist args={'lr': rate} env={'A': 'b'} local=processes\n"
        "import os\nargs['lr'], os.environ['A'], ctx.job_name"
    )
    assert dict(results) == {"chief:0": (0.5, "b", "chief"), "worker:0": (0.5, "b", "worker")} | (
        {"ps:0": results["ps:0"]} if "ps:0" in results else {}
    )
    assert results is shell.user_ns["mnist"].results or dict(results) == dict(shell.user_ns["mnist"].results)
    assert [node.name for node in shell.user_ns["mnist"].nodes] == ["ps:0", "chief:0", "worker:0"]


def test_data_is_fed_as_the_line_says_and_what_cannot_be_fed_leaves_nothing_running(run, shell, spark, tmp_path):
    shell.user_ns["rows"] = {"a": np.arange(10), "b": np.arange(10)}
    (tmp_path / "data").mkdir()
    parquet.write_table(pa.table({"a": range(10)}), tmp_path / "data/rows.parquet")
    shell.user_ns["folder"] = str(tmp_path / "data")
    read = "feed, seen = ctx.data_feed(), []\nwhile not feed.should_stop():\n    seen += feed.next_batch(4)\nlen(seen)"
    for data in ("rows", "folder"):
        results = run(f"%%tfos cluster_size=2 local=processes data={data} epochs=3 columns=a\n{read}")
        assert sum(results.values()) == 30
    for options in "name=a", "name=b background":
        with pytest.raises(ConfigError, match="column 'zz'"):
            run(f"%%tfos {options} local=processes data=rows columns=zz\n{WAITS}")
    assert not {"a", "b"} & set(shell.user_ns), "nothing was started"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("data='/none/*.parquet'", "there is no such file or folder"),
        ("data=folder columns=zz", "column 'zz'"),
        ("data=folder objects", "rows of files come as columns"),
        ("data={'a':[1]}", r"type dict, .* no SparkSession to read it with\. Make one.*spark=\.\.\.\)\.$"),
    ],
)
def test_what_cannot_be_fed_is_refused_before_anything_starts(run, shell, tmp_path, options, told):
    parquet.write_table(pa.table({"a": range(10)}), tmp_path / "rows.parquet")
    shell.user_ns["folder"] = str(tmp_path)
    with pytest.raises((ConfigError, NoSession), match=told):
        run(f"%%tfos name=a local=processes {options}\n{WAITS}")
    assert "a" not in shell.user_ns


def test_rows_that_cannot_be_fed_once_nodes_run_are_a_failure_and_no_stop(run, shell, spark):
    shell.user_ns["rows"] = spark.sparkContext.parallelize([object, object], 1)
    with pytest.raises(ConfigError, match="cannot make columns"):
        run(f"%%tfos name=a local=processes cluster_size=1 data=rows columns=['a']\n{WAITS}")
    assert (shell.user_ns["a"].state, "ConfigError" in shell.user_ns["a"].view().reason) == ("failed", True)
    run(f"%%tfos name=b local=processes cluster_size=1 background objects=False data=rows\n{WAITS}")
    with pytest.raises(NodeFailed, match="cannot make columns"):
        shell.user_ns["b"].wait(timeout=60)


def test_a_function_that_fails_before_rows_are_fed_is_what_the_cell_reports(run, shell, spark):
    shell.user_ns["rows"] = {"a": np.arange(10)}
    with pytest.raises(NodeFailed, match="ValueError: no"):
        run("%%tfos local=processes data=rows\nraise ValueError('no')")


def press_when(*facts):
    """Press ■ as soon as a fact is true, and again for the next one."""

    def press():
        for fact in facts:
            eventually(fact)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()


PHASES = ("launching", "reserving", "starting", "running")


@pytest.mark.leaves_nothing
@pytest.mark.parametrize("phase", PHASES)
def test_an_interrupt_in_any_phase_ends_the_cell_and_leaves_nothing(run, shell, phase):
    def reached():
        cluster = shell.user_ns.get("cluster")
        return cluster is not None and cluster.state not in PHASES[: PHASES.index(phase)]

    press_when(reached)
    with pytest.raises(ClusterInterrupted, match="interrupted: the nodes of 'cluster' are stopped"):
        run(f"%%tfos cluster_size=6 local=processes\n{WAITS}")
    assert shell.user_ns["cluster"].state == "stopped"


def test_an_interrupt_before_the_cluster_is_made_has_no_raw_traceback(run):
    run("import os, signal, threading")
    run(
        "class Slow:\n    def __reduce__(self):\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "        threading.Event().wait(60)\nslow = Slow()"
    )
    with pytest.raises(ClusterInterrupted):
        run("%%tfos local=processes args=slow\n1")


def test_a_second_interrupt_does_not_wait_for_nodes_that_ignore_the_first(run, shell):
    press_when(
        lambda: "cluster" in shell.user_ns and "deaf" in shell.user_ns["cluster"].logs(),
        lambda: shell.user_ns["cluster"].state == "stopping",
    )
    with pytest.raises(ClusterInterrupted):
        run(f"%%tfos local=processes\n{STUBBORN}")
    assert shell.user_ns["cluster"].state == "stopped"


def test_a_cluster_that_is_stopped_from_elsewhere_stops_run_all(run, shell):
    def stop():
        eventually(lambda: "cluster" in shell.user_ns and shell.user_ns["cluster"].state == "running")
        shell.user_ns["cluster"].stop()

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(ClusterInterrupted):
        run(f"%%tfos local=processes\n{WAITS}")


def test_a_running_cluster_of_the_same_name_is_not_replaced_silently(run, problem, shell):
    assert run(f"%%tfos background local=processes\n{WAITS}") is None
    old = shell.user_ns["cluster"]
    old.wait_until_running()
    assert problem("%%tfos local=processes\n1") == (
        "the cluster 'cluster' is still running: wait for it with cluster.wait(), stop it with %tfos stop cluster, "
        "or give this one another name=..."
    )
    assert dict(run("%%tfos name=other local=processes\n1")) == {"chief:0": 1}
    assert not old.ended


def test_a_cell_that_runs_again_replaces_its_own_run(run, shell):
    cell = f"%%tfos background local=processes\n{WAITS}"
    run(cell)
    old = shell.user_ns["cluster"]
    old.wait_until_running()
    run(cell)
    assert (old.state, shell.user_ns["cluster"].ended) == ("stopped", False)


def test_a_cell_that_cannot_start_is_refused_without_a_display(run, capsys):
    capsys.readouterr()
    with pytest.raises(NotEnoughRoom, match="Ask for cluster_size="):
        run("%%tfos cluster_size=4000 local=processes\n1")
    assert len(capsys.readouterr().out.splitlines()) == 1, "the sentence alone"


def test_nodes_as_processes_are_refused_where_there_is_no_linux_and_inline_works(run, said, monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ConfigError, match="nodes as processes need Linux: use local=inline"):
        run("%%tfos cluster_size=2\n1")
    assert "hello" in said("%%tfos local=inline\nprint('hello')")


def test_where_no_run_folder_can_be_made_a_sentence_names_the_variable(run, monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("TFOS_LAB_RUNS", str(file / "runs"))
    monkeypatch.setenv("HOME", str(file))
    with pytest.raises(ConfigError, match=r"no run folder can be made in .*: name a folder .* TFOS_LAB_RUNS$"):
        run("%%tfos local=inline\n1")


def test_output_can_be_silenced_and_braces_of_the_line_are_not_expanded(here, run):
    run("x = 1")
    assert here("args", "args={'a':'$HOME{x}'}") == {"a": "$HOME{x}"}
    assert run("%%tfos local=inline\n1;") is None
    assert os.environ["HOME"]
