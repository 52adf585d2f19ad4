"""A %%tfos cell from its line to its value."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from tests.jupyter.scripted import ScriptedCluster
from tfos_lab.errors import ClusterInterrupted, ConfigError, FeedError, NodeFailed

DataFrame = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})


@pytest.fixture
def run(magics: Any, run_cell: Any) -> Any:
    return run_cell


def press_stop() -> None:
    """Do what ■ does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def interrupt_when(event: threading.Event) -> None:
    """Press ■ when something has happened."""

    def press() -> None:
        event.wait(10)
        press_stop()

    threading.Thread(target=press, daemon=True).start()


def join_background(cluster: ScriptedCluster) -> None:
    """Wait until a cell in the background has done its work."""
    for thread in threading.enumerate():
        if thread.name == f"tfos-cell-{cluster.id}":
            thread.join(5)


def test_the_cell_shows_what_the_nodes_returned(run: Any, scripted: Any, magics: Any) -> None:
    results = {"chief:0": 1, "worker:0": None}
    scripted(ScriptedCluster(results=results))
    assert run("%%tfos cluster_size=2\n1") is results
    assert magics.user_ns["cluster"].name == "cluster"


def test_the_cell_shows_nothing_if_no_node_returned_something(run: Any, scripted: Any) -> None:
    scripted(ScriptedCluster(results={"chief:0": None}), ScriptedCluster(results={"chief:0": 1}))
    assert run("%%tfos\nx = 1") is None
    assert run("%%tfos\n1;") is None


def test_the_engine_gets_the_function_the_arguments_and_the_options(run: Any, scripted: Any) -> None:
    started = scripted(ScriptedCluster("mnist"))
    run("rate = 0.5")
    run("%%tfos cluster_size=3 num_ps=1 name=mnist args={'lr': rate} local=processes\nargs['lr']")
    assert started[0]["args"] == {"lr": 0.5}
    assert started[0]["map_fun"](started[0]["args"]) == 0.5
    assert started[0]["config"].cluster_size == 3
    assert started[0]["config"].local == "processes"
    assert started[0]["spark"] is None


def test_data_is_fed_before_the_results_are_waited_for(run: Any, scripted: Any, magics: Any) -> None:
    cluster = ScriptedCluster(results={"chief:0": 1})
    scripted(cluster)
    magics.user_ns["df"] = DataFrame()
    run("%%tfos data=df epochs=3 columns=a,b remainder=drop feed_timeout=5\n1")
    options = {"epochs": 3, "columns": ["a", "b"], "remainder": "drop", "timeout_s": 5.0}
    assert cluster.calls == ["wait_until_running", ("train", magics.user_ns["df"], options), "wait"]


def test_a_failing_node_fails_the_cell(run: Any, scripted: Any) -> None:
    scripted(ScriptedCluster(error=NodeFailed(node="worker:0", kind="ValueError", message="no")))
    with pytest.raises(NodeFailed):
        run("%%tfos\n1")


def test_a_failing_feed_fails_the_cell(run: Any, scripted: Any, magics: Any) -> None:
    scripted(ScriptedCluster(train_error=FeedError(reason="column 'x' holds nulls")))
    magics.user_ns["df"] = DataFrame()
    with pytest.raises(FeedError, match="column 'x' holds nulls"):
        run("%%tfos data=df\n1")


def test_a_cell_that_cannot_feed_leaves_nothing_running(run: Any, scripted: Any, magics: Any) -> None:
    clusters = [ScriptedCluster(name, forever=True) for name in ("a", "b")]
    for cluster in clusters:
        cluster.refusal = ConfigError(["column 'zz' is not in the data"])
    scripted(*clusters)
    magics.user_ns["df"] = DataFrame()
    with pytest.raises(ConfigError, match="column 'zz'"):
        run("%%tfos name=a data=df columns=zz\n1")
    assert clusters[0].ended
    run("%%tfos name=b data=df columns=zz background\n1")
    join_background(clusters[1])
    assert clusters[1].ended
    [(_, note)] = [call for call in clusters[1].calls if call[0] == "note"]
    assert note.startswith("stopped: "), "nobody else would tell"
    assert "column 'zz'" in note


def test_an_interrupt_stops_the_nodes_with_little_grace(run: Any, scripted: Any) -> None:
    cluster = ScriptedCluster(forever=True)
    scripted(cluster)
    interrupt_when(cluster.waiting)
    with pytest.raises(ClusterInterrupted, match="interrupted: the nodes of 'cluster' are stopped"):
        run("%%tfos\n1")
    assert ("stop", 1.0) in cluster.calls
    assert cluster.state == "stopped"


def test_a_second_interrupt_leaves_no_grace_at_all(run: Any, scripted: Any) -> None:
    cluster = ScriptedCluster(forever=True)
    cluster.stop_takes_s = 20.0
    scripted(cluster)

    def press_twice() -> None:
        cluster.waiting.wait(10)
        cluster.waiting.clear()
        press_stop()
        cluster.waiting.wait(10)
        while ("stop", 1.0) not in cluster.calls:
            pass
        press_stop()

    threading.Thread(target=press_twice, daemon=True).start()
    with pytest.raises(ClusterInterrupted):
        run("%%tfos\n1")
    assert ("stop", 0.0) in cluster.calls


def test_a_cluster_that_is_stopped_from_elsewhere_stops_run_all(run: Any, scripted: Any) -> None:
    cluster = ScriptedCluster(forever=True)
    scripted(cluster)
    threading.Thread(target=lambda: (cluster.waiting.wait(10), cluster.stop()), daemon=True).start()
    with pytest.raises(ClusterInterrupted):
        run("%%tfos\n1")


def test_a_running_cluster_of_the_same_name_is_not_trampled_on(run: Any, scripted: Any) -> None:
    old = ScriptedCluster(forever=True)
    started = scripted(old, ScriptedCluster("other"), ScriptedCluster())
    run("%%tfos background\n1")
    with pytest.raises(ConfigError) as error:
        run("%%tfos\n1")
    assert str(error.value) == (
        "the cluster 'cluster' is still running: wait for it with cluster.wait(), stop it with %tfos stop cluster, "
        "write `replace` to stop it first, or give this one another name=..."
    )
    run("%%tfos name=other\n1")
    assert not old.ended
    run("%%tfos replace\n1")
    assert old.ended
    assert len(started) == 3


def test_a_cell_in_the_background_returns_at_once(run: Any, scripted: Any, magics: Any) -> None:
    cluster = ScriptedCluster(forever=True)
    scripted(cluster)
    assert run("%%tfos background\n1") is None
    assert magics.user_ns["cluster"] is cluster
    join_background(cluster)
    assert cluster.calls == ["wait_until_running"]  # rows may still come from another cell


def test_a_cell_in_the_background_feeds_and_waits(run: Any, scripted: Any, magics: Any) -> None:
    cluster = ScriptedCluster(error=NodeFailed(node="worker:0", kind="ValueError", message="no"))
    scripted(cluster)
    magics.user_ns["df"] = DataFrame()
    run("%%tfos background data=df\n1")
    join_background(cluster)
    assert [call if isinstance(call, str) else call[0] for call in cluster.calls] == [
        "wait_until_running",
        "train",
        "wait",
    ]


def test_the_notebooks_session_is_found_where_none_is_active(
    run: Any, scripted: Any, magics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspark  # noqa: F401 - only then a session is looked for

    session = type("SparkSession", (), {"__module__": "pyspark.sql.session"})()
    other = type("SparkSession", (), {"__module__": "pyspark.sql.session"})()
    monkeypatch.setattr("tfos_lab.engine.spark_session.active_session", lambda: None)
    started = scripted(*(ScriptedCluster() for _ in range(4)))
    frame = DataFrame()
    frame.sparkSession = other
    magics.user_ns |= {"spark": session, "other": other, "frame": frame}
    run("%%tfos\n1")
    run("%%tfos spark=other\n1")
    run("%%tfos data=frame\n1")
    magics.user_ns["spark"] = "no session"
    run("%%tfos\n1")
    assert [call["spark"] for call in started] == [session, other, other, None]


# ---- in the kernel itself: the real engine --------------------------------------------------------------------------


def test_an_inline_cell_runs_here(run: Any, magics: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run("x = 20\nseen = []")
    results = run("%%tfos local=inline args=2\nseen.append(ctx.job_name)\nprint('hello')\nx = x + args\nx")
    assert dict(results) == {"chief:0": 22}
    assert magics.user_ns["x"] == 20
    assert magics.user_ns["seen"] == ["chief"]  # the values are the notebook's own
    assert "hello\n" in capsys.readouterr().out


def test_an_inline_error_comes_with_its_own_frames_only(run: Any, magics: Any) -> None:
    with pytest.raises(ZeroDivisionError) as error:
        run("%%tfos local=inline\ndef f():\n    return 1 / 0\nf()")
    names = [entry.name for entry in error.traceback][-2:]
    assert names == ["<module>", "f"]
    files = [str(entry.path) for entry in error.traceback]
    assert not any("calling.py" in file or "launchers" in file for file in files)
    assert magics.user_ns["cluster"].state == "failed"


def test_lines_above_an_inline_cell_are_counted(run: Any) -> None:
    with pytest.raises(ZeroDivisionError) as error:
        run("\n\n\n%%tfos local=inline\n1 / 0\n")
    assert error.traceback[-1].lineno == 4  # counted from 0


def test_a_last_value_that_cannot_be_sent_shows_as_its_text(run: Any) -> None:
    results = run("%%tfos local=inline\nimport threading\nthreading.Lock()")
    assert "lock" in repr(results["chief:0"])
