"""``%tfos`` and its commands, on real clusters; loading the extension; errors and warnings as a cell shows them."""

import logging
import re
import subprocess
import sys
import threading

import pytest

import tfos_lab
from tests.notebook.kernel import REPOSITORY
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import ClusterInterrupted, ConfigError, NodeFailed, NotEnoughSlots

WAITS = "import threading\nprint('here', ctx.node, flush=True)\nthreading.Event().wait()"


@pytest.fixture
def start(run, shell):
    """Start clusters in the background, and return them when they run."""

    def start(*names, options="cluster_size=2"):
        for name in names:
            run(f"%%tfos name={name} background local=processes {options}\n{WAITS}")
            shell.user_ns[name].wait_until_running()
            eventually(lambda: shell.user_ns[name].logs().count("here") == len(shell.user_ns[name].nodes))  # noqa: B023
        return [shell.user_ns[name] for name in names]

    return start


# ---- loading --------------------------------------------------------------------------------------------------------


def test_a_version_that_cannot_work_is_one_sentence_when_loading_and_when_running(tmp_path):
    (tmp_path / "keras-3.8.0.dist-info").mkdir()
    (tmp_path / "keras-3.8.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: keras\nVersion: 3.8.0\n")
    code = (
        "import tfos_lab\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nshell.run_cell('%load_ext tfos_lab')\n"
        "try:\n    tfos_lab.run(lambda: 1, local='inline')\n"
        "except tfos_lab.errors.ConfigError as error:\n    print(error)"
    )
    path = f"{tmp_path}:{REPOSITORY}:{QUICK_ENV['PYTHONPATH']}"
    command = [sys.executable, "-c", code]
    env = {"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "IPYTHONDIR": str(tmp_path), "TFOS_LAB_FORK_SERVER": "kernel"}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    sentence = "keras 3.8.0 is too old for tfos_lab: pip install 'keras>=3.10,<3.16'"
    assert (done.stdout, done.stderr) == (f"{sentence}\n", f"{sentence}.\n")


# ---- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("stp", "%tfos has no command 'stp'; did you mean stop?"),
        ("cluster_size=4", "options belong to a cell: write %%tfos cluster_size=4 and the code below it"),
        ("tensorboard=true", "options belong to a cell: write %%tfos tensorboard=true and the code below it"),
        ("doctor now", "too many arguments: the command is %tfos doctor"),
        ("warm start", "'start': the command is %tfos warm or %tfos warm stop"),
        ("export", "name the file to write: %tfos export FILE.py"),
        ("export x.py", "there is nothing to export: run a %%tfos cell first"),
        ("export train.txt", "train.txt: the name of a script ends in .py, that of a page in .html"),
        ("logs 'a", "%tfos logs 'a: No closing quotation"),
        ("tensorboard nowhere", "nowhere: there is no such cluster, and no such folder on this machine"),
    ],
)
def test_what_is_no_command_is_refused_with_a_suggestion(problem, line, message):
    assert problem(f"%tfos {line}").startswith(message)


def test_tensorboard_of_a_run_that_has_reported_nothing_says_so(run, start, shell, problem):
    [going] = start("going", options="cluster_size=1")
    assert problem("%tfos tensorboard going").startswith(f"the run {going.id} has written no event files yet: ")
    run("%%tfos name=bare local=inline\n1")
    bare = shell.user_ns["bare"].id
    assert problem("%tfos tensorboard bare").startswith(f"the run {bare} has left no event files on this machine: ")


def test_warm_prints_where_and_doctor_ends_with_a_sentence(said):
    assert said("%tfos warm") == ["warming on this machine: the next cell there starts at once"]
    *_, last = said("%tfos doctor")
    assert last.endswith(".")


def test_status_lists_the_clusters(run, start, shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("%%tfos name=ended local=inline\n1")
    start("other")
    table = run("%tfos")
    lines = [line.split() for line in repr(table).splitlines()]
    assert lines[0] == ["name", "state", "nodes", "progress", "on", "time", "logs"]
    assert lines[-2][:3] == ["ended", "✓", "done"]
    assert lines[-1][:4] == ["other", "●", "running", "2/2"]
    html = table._repr_html_()
    assert f'<td style="text-align: left">runs/{shell.user_ns["other"].id}</td>' in html
    assert str(tmp_path) not in html
    assert f"runs/{shell.user_ns['other'].id}</td>" in tfos_lab.clusters()._repr_html_(), "the same from Python"


def test_stop_stops_the_named_cluster_or_all_or_the_only_one(run, start, problem):
    clusters = start("a", "b", "c", options="")
    assert problem("%tfos stop") == "several clusters run (a, b, c): name one, or write all"
    assert problem("%tfos stop bb") == "no cluster 'bb' is running; did you mean b?"
    assert problem("%tfos stop xyz") == "no cluster 'xyz' is running; there are a, b, c"
    run("%tfos stop b")
    assert [cluster.ended for cluster in clusters] == [False, True, False]
    run("%tfos stop all")
    assert all(cluster.ended for cluster in clusters)
    assert problem("%tfos stop a") == "no cluster is running"
    start("only", options="")
    assert "■ stopped" in repr(run("%tfos stop"))
    assert repr(run("%tfos stop")) == "no cluster is running"


def test_logs_prints_what_nodes_wrote(run, start, said, problem, shell):
    start("a", "b")
    for line, first in [
        ("", "[chief:0] here chief:0"),
        ("a", "[chief:0] here chief:0"),
        ("worker:0", "here worker:0"),
        ("a chief:0", "here chief:0"),
    ]:
        printed = said(f"%tfos logs {line}")
        assert first in printed
        assert printed[-1].startswith("(the last 200 lines at most; all of them are in ")
    assert problem("%tfos logs bb") == "there is no cluster, run or node called 'bb'; did you mean b?"
    run("%%tfos name=silent local=processes\n1")
    for named in ("silent", shell.user_ns["silent"].run_dir):
        assert said(f"%tfos logs {named}") == ["the nodes have printed nothing"]
    wrong = "there is no cluster or run called 'slient'; did you mean silent?"
    assert problem("%tfos logs slient chief:0") == wrong
    assert problem("%tfos logs a ps:0").startswith("there is no node in the cluster 'a' called 'ps:0'; ")
    for name in (f"run{number}" for number in (0, *range(30))):
        run(f"%%tfos name={name} local=inline\n1")
    *_, names = problem("%tfos logs qqq").partition("; there are ")
    *listed, more = names.split(", ")
    assert len(listed) == len({*listed}) == 20
    assert re.fullmatch(r"and \d+ more", more)


def test_stacks_and_profile_mean_the_newest_cluster_that_runs_unless_another_is_named(run, start, said, problem):
    assert problem("%tfos stacks").startswith("no cluster is running: %tfos stacks")
    run("%%tfos name=ended local=inline\n1")
    start("a", "b")
    printed = said("%tfos stacks")
    assert [line for line in printed if line and not line.startswith(" ")] == ["chief:0", "worker:0"]
    assert any("threading.Event().wait()" in line for line in printed)
    assert said("%tfos stacks a worker:0")[0] == "worker:0"
    for line, message in [
        ("worker:7", "there is no node in the cluster 'b' called 'worker:7'; did you mean worker:0?"),
        ("a ps:0", "there is no node in the cluster 'a' called 'ps:0'; "),
        ("ended chief:0", "there is no cluster called 'ended'; there are a, b"),
        ("bb", "there is no cluster or node called 'bb'; did you mean b?"),
        ("a b c", "too many arguments: the command is %tfos stacks"),
    ]:
        assert problem(f"%tfos stacks {line}").startswith(message)
    profile = run("%tfos profile a worker:0 0.2s")
    assert (profile.node, profile.seconds) == ("worker:0", 0.2)
    assert "/a-" in str(profile.flame_graph)
    assert "(Cell In[" in profile.flame_graph.read_text(), "not the made-up name of the cell's file"
    assert run("%tfos profile 0.1").node == "chief:0"
    for seconds in ("0", "-1", "601", "nan"):
        assert "give more than 0 and at most 600" in problem(f"%tfos profile {seconds}")


# ---- errors and warnings --------------------------------------------------------------------------------------------


@pytest.fixture
def shown(run, shell, capsys):
    """Run a cell that fails, and return what it shows, without colours."""

    def shown(text):
        capsys.readouterr()
        assert not shell.run_cell(text, store_history=True).success
        return re.sub(r"\x1b\[[\d;]+m", "", capsys.readouterr().out)

    return shown


def test_a_failed_node_is_shown_with_its_traceback_and_the_nodes_that_failed_too(shown):
    text = shown(
        "def fail():\n    from tfos_lab.errors import NodeFailed\n    raise NodeFailed(\n"
        "        node='worker:0', kind='ValueError', message='no', also=['worker:1', 'worker:2'],\n"
        "        traceback='Traceback (most recent call last):\\n  Cell In[5], line 3\\n    f()\\nValueError: no\\n',\n"
        "        consequences={'chief:0': 'UnavailableError: gone', 'ps:0': 'stopped'})\nfail()"
    )
    assert (
        "NodeFailed: worker:0, worker:1 and worker:2 failed\n\n"
        "Traceback (most recent call last):\n  Cell In[5], line 3\n    f()\nValueError: no\n\n"
        "chief:0 and ps:0 ended because worker:0 was gone."
    ) in text


def test_a_node_that_ended_without_an_error_is_shown_with_its_last_lines(shown):
    text = shown("%%tfos local=processes\nimport os\nprint('one', flush=True)\nos.kill(os.getpid(), 9)")
    assert "NodeFailed: chief:0 failed: Exited: " in text
    assert "last lines of chief:0:\n  one" in text


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ConfigError(["one"]), "ConfigError: one\n"),
        (ConfigError(["one", "two"]), "ConfigError: 2 problems\n  • one\n  • two\n"),
        (NotEnoughSlots(wanted=4, free=2, total=2), "NotEnoughSlots: cluster_size=4, but Spark has 2"),
        (ClusterInterrupted("mnist"), "KeyboardInterrupt: interrupted: the nodes of 'mnist' are stopped\n"),
        (
            NodeFailed(node="worker:0", kind="Hung", message="no step for 60 s", traceback="main thread\n  f()"),
            "NodeFailed: worker:0 failed: Hung: no step for 60 s\n\nmain thread\n  f()\n",
        ),
        (
            NodeFailed(
                node="chief:0",
                kind="UnimplementedError",
                message="Cast string to float is not supported",
                traceback="UnimplementedError: Graph execution error:\n\nDetected at node Cast\nCast string to float …",
            ),
            "NodeFailed: chief:0 failed: UnimplementedError: Cast string to float is not supported\n\nUnimplementedE",
        ),
    ],
)
def test_an_error_that_the_user_can_fix_is_one_sentence(shown, shell, error, sentence):
    shell.user_ns["error"] = error
    assert shown("%%tfos cluster_sze=3\n1") == (
        "ConfigError: unknown option 'cluster_sze'; did you mean cluster_size?\n"
    )
    assert shown("raise error").startswith(sentence)


def test_an_error_in_an_ordinary_cell_shows_its_line_and_those_of_others_look_as_usual(shown):
    text = shown("from tfos_lab import ClusterConfig\ndef make():\n    ClusterConfig(cluster_size=0)\nmake()")
    assert "cluster_size=0: at least one node is needed" in text
    assert re.search(r"  Cell In\[\d+\], line 4\n    make\(\)\n  Cell In\[\d+\], line 3, in make\n", text)
    assert "config.py" not in text
    text = shown("%%tfos\na = 1\nb ==\n")
    assert re.search(r"Cell In\[\d+\], line 3\n    b ==\n +\^\nSyntaxError: invalid syntax", text)
    assert "magics.py" not in text
    assert "ZeroDivisionError" in shown("1 / 0")


def test_an_existing_handler_still_works(run, shell, shown):
    before = shell.custom_exceptions, shell.CustomTB
    try:
        shell.set_custom_exc((ZeroDivisionError,), lambda *_args, **_options: ["theirs"])
        run("%reload_ext tfos_lab")
        assert "ZeroDivisionError" not in shown("1 / 0")
    finally:
        shell.custom_exceptions, shell.CustomTB = before


def test_our_warnings_are_shown_once_in_the_cell_that_they_come_from(run, capsys, caplog, monkeypatch):
    logger = logging.getLogger("tfos_lab.anything")
    logger.warning("a program that configures logging gets it")
    assert caplog.messages == ["a program that configures logging gets it"]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a notebook
    run("%reload_ext tfos_lab")
    logger.warning("slow: %d s", 7)
    logger.info("nobody asked")
    thread = threading.Thread(target=logger.error, args=("of a thread",))
    thread.start()
    thread.join()
    assert capsys.readouterr().err == "slow: 7 s\n"
