"""A %%tfos cell from its line to its value."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from tests.jupyter.scripted import ScriptedCluster
from tests.support.quick import QUICK_ENV
from tfos_lab.engine.cluster import runtime_of
from tfos_lab.engine.launchers.local import LocalLauncher
from tfos_lab.errors import (
    ClusterEnded,
    ClusterInterrupted,
    ConfigError,
    FeedError,
    LaunchFailed,
    NodeFailed,
    NotEnoughSlots,
)
from tfos_lab.jupyter.display.text import TextDisplay

DataFrame = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})


@pytest.fixture
def run(magics: Any, run_cell: Any) -> Any:
    return run_cell


def press_stop() -> None:
    """Interrupt as ■ does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def interrupt_when(event: threading.Event) -> None:
    """Press ■ once an event is set."""

    def press() -> None:
        event.wait(60)
        press_stop()

    threading.Thread(target=press, daemon=True).start()


def join_background(cluster: ScriptedCluster) -> None:
    """Wait until a cell in the background has finished."""
    for thread in threading.enumerate():
        if thread.name == f"tfos-cell-{cluster.id}":
            thread.join(60)


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
    run("%%tfos data=df epochs=3 columns=a,b remainder=drop feed_timeout=5 objects=false\n1")
    options = {"epochs": 3, "columns": ["a", "b"], "remainder": "drop", "timeout_s": 5.0, "objects": False}
    assert cluster.calls == ["wait_until_running", ("train", magics.user_ns["df"], options), "wait"]


def test_a_failing_node_fails_the_cell(run: Any, scripted: Any) -> None:
    scripted(ScriptedCluster(error=NodeFailed(node="worker:0", kind="ValueError", message="no")))
    with pytest.raises(NodeFailed):
        run("%%tfos\n1")


def test_a_function_that_fails_before_rows_are_fed_is_what_the_cell_reports(
    run: Any, scripted: Any, magics: Any
) -> None:
    magics.user_ns["df"] = DataFrame()
    ended = ClusterEnded(cluster="cluster", state="failed", asked="feed rows")
    scripted(ScriptedCluster(train_error=ended, error=ScriptedCluster().failure()))
    with pytest.raises(NodeFailed, match="worker:0: ValueError: no"):
        run("%%tfos data=df\n1")


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


def test_an_interrupt_while_nodes_are_launched_stops_them(run: Any, scripted: Any) -> None:
    cluster = ScriptedCluster(forever=True)
    cluster.launching = threading.Event()
    scripted(cluster)
    interrupt_when(cluster.waiting)
    with pytest.raises(ClusterInterrupted, match="interrupted: the nodes of 'cluster' are stopped"):
        run("%%tfos\n1")
    assert cluster.calls == [("stop", 1.0)]


def test_an_interrupt_before_the_cluster_is_made_has_no_raw_traceback(
    run: Any, magics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*args: Any, **_options: Any) -> None:
        press_stop()
        threading.Event().wait(60)

    monkeypatch.setattr("tfos_lab.engine.start.pack", press)
    with pytest.raises(ClusterInterrupted):
        run("%%tfos local=processes\n1")


def test_an_interrupt_while_the_old_cluster_is_stopped_has_no_raw_traceback(run: Any, scripted: Any) -> None:
    old = ScriptedCluster(forever=True)
    scripted(old, ScriptedCluster())
    run("%%tfos background\n1")
    join_background(old)
    old.waiting.clear()
    old.stop_takes_s = 20.0
    interrupt_when(old.waiting)
    with pytest.raises(ClusterInterrupted):
        run("%%tfos replace\n1")


def test_a_launch_is_shown_and_an_immediate_error_is_not(
    run: Any, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, slow = ScriptedCluster("quick"), ScriptedCluster("slow", forever=True)
    for cluster in (quick, slow):
        cluster.launch_error = NotEnoughSlots(wanted=4, free=2, total=2)
    slow.launching = threading.Event()
    scripted(quick, slow)
    shown = []

    def open_display(cluster: Any, **options: Any) -> TextDisplay:
        shown.append(cluster.name)
        slow.launching.set()
        return TextDisplay(cluster, **options)

    monkeypatch.setattr("tfos_lab.jupyter.run.open_display", open_display)
    for name in ("quick", "slow"):
        with pytest.raises(NotEnoughSlots):
            run(f"%%tfos name={name}\n1")
    assert shown == ["slow"]


def test_a_cell_that_cannot_feed_is_shown_as_stopped(
    run: Any, scripted: Any, magics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, shown = ScriptedCluster(forever=True), []
    cluster.refusal = ConfigError(["column 'zz' is not in the data"])
    scripted(cluster)

    class Shown(TextDisplay):
        def __exit__(self, *exc: object) -> None:
            shown.append(cluster.state)
            super().__exit__(*exc)

    monkeypatch.setattr("tfos_lab.jupyter.run.open_display", Shown)
    magics.user_ns["df"] = DataFrame()
    with pytest.raises(ConfigError, match="column 'zz'"):
        run("%%tfos data=df columns=zz\n1")
    assert shown == ["stopped"]


def test_an_interrupt_while_the_display_opens_stops_the_nodes(
    run: Any, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ScriptedCluster(forever=True)
    scripted(cluster)

    class Interrupted(TextDisplay):
        def __enter__(self) -> Self:
            raise KeyboardInterrupt

    monkeypatch.setattr("tfos_lab.jupyter.run.open_display", Interrupted)
    with pytest.raises(ClusterInterrupted):
        run("%%tfos\n1")
    assert cluster.state == "stopped"


def test_a_second_interrupt_leaves_no_grace_at_all(run: Any, scripted: Any) -> None:
    cluster = ScriptedCluster(forever=True)
    cluster.stop_takes_s = 20.0
    scripted(cluster)

    def press_twice() -> None:
        cluster.waiting.wait(60)
        cluster.waiting.clear()
        press_stop()
        cluster.waiting.wait(60)
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
    threading.Thread(target=lambda: (cluster.waiting.wait(60), cluster.stop()), daemon=True).start()
    with pytest.raises(ClusterInterrupted):
        run("%%tfos\n1")


def test_a_running_cluster_of_the_same_name_is_not_replaced_silently(run: Any, scripted: Any) -> None:
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
    assert cluster.calls == ["wait_until_running"]  # another cell may still feed it


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


def test_the_session_of_the_notebook_is_used_if_none_is_active(
    run: Any, scripted: Any, magics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspark  # noqa: F401 - only then a session is looked for

    session = type("SparkSession", (), {"__module__": "pyspark.sql.session"})()
    other = type("SparkSession", (), {"__module__": "pyspark.sql.session"})()
    monkeypatch.setattr("tfos_lab.engine.spark.session.active_session", lambda: None)
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


# ---- real nodes ------------------------------------------------------------------------------------------------------


class Forks:
    """Counts agents as they are forked, and calls a function at the given one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.at, self.then = 0, 0, lambda: None
        fork = LocalLauncher._fork_agent

        def counted(launcher: Any, *args: Any) -> None:
            fork(launcher, *args)
            self.count += 1
            if self.count == self.at:
                self.then()

        monkeypatch.setattr(LocalLauncher, "_fork_agent", counted)


@pytest.mark.leaves_nothing
@pytest.mark.parametrize("phase", ["launching", "reserving", "starting", "running"])
def test_an_interrupt_in_any_phase_ends_the_cell_and_leaves_nothing(
    run: Any, magics: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, phase: str
) -> None:
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    magics.user_ns["env"] = QUICK_ENV
    forks = Forks(monkeypatch)
    forks.at = 3
    reached = threading.Event()
    interrupt_when(reached)
    if phase == "launching":
        # The launch goes no further before the cell has taken note.
        forks.then = lambda: (
            reached.set(),
            until(lambda: runtime_of(magics.user_ns["cluster"]).generation.launcher._cancelled),
        )
    else:
        forks.then = lambda: watch_for(magics.user_ns["cluster"], phase, reached)
    with pytest.raises(ClusterInterrupted, match="interrupted: the nodes of 'cluster' are stopped"):
        run("%%tfos cluster_size=12 local=processes env=env\nimport threading\nthreading.Event().wait()")
    assert magics.user_ns["cluster"].state == "stopped"
    # The first node may reserve, and the interrupt come, while others are still to be forked.
    most = 3 if phase == "launching" else 12
    assert forks.count == most or (phase == "reserving" and 3 <= forks.count < most)


def watch_for(cluster: Any, state: str, reached: threading.Event) -> None:
    """Set the event as soon as the cluster has reached the state."""
    states = ("launching", "reserving", "starting", "running")

    def watch() -> None:
        until(lambda: cluster.state not in states[: states.index(state)])
        reached.set()

    threading.Thread(target=watch, daemon=True).start()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)


def test_a_failing_fork_is_reported_and_nothing_is_left(
    run: Any, magics: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    forks = Forks(monkeypatch)

    def fail() -> None:
        raise OSError(24, "Too many open files")

    forks.at, forks.then = 2, fail
    magics.user_ns["env"] = QUICK_ENV
    with pytest.raises(LaunchFailed, match=r"could not start a node, when 2 of 4 nodes were on their way: .*Too many"):
        run("%%tfos cluster_size=4 local=processes env=env\nimport threading\nthreading.Event().wait()")
    assert magics.user_ns["cluster"].state == "failed"


# ---- in the kernel itself: the real engine --------------------------------------------------------------------------


def test_an_inline_cell_runs_here(run: Any, magics: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run("x = 20\nseen = []")
    results = run("%%tfos local=inline args=2\nseen.append(ctx.job_name)\nprint('hello')\nx = x + args\nx")
    assert dict(results) == {"chief:0": 22}
    assert magics.user_ns["x"] == 20
    assert magics.user_ns["seen"] == ["chief"]  # the notebook's own objects
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


def test_a_last_value_that_cannot_be_sent_is_shown_as_text(run: Any) -> None:
    results = run("%%tfos local=inline\nimport threading\nthreading.Lock()")
    assert "lock" in repr(results["chief:0"])
