"""`tfos_lab.search`: grids, halving, failures, sizes, rows, and what is told where a search makes no sense."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import tfos_lab
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tests.support.trials import endless, fit
from tfos_lab.errors import ConfigError, ParallelInterrupted, SearchFailed

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture
def search(back_end, spark):
    """``tfos_lab.search`` on the back end, with a quick TensorFlow; inline, see tests/driver/test_search.py."""
    defaults = {"spark": spark, "local": back_end.local, "env": QUICK_ENV}
    return lambda map_fun, space, **options: tfos_lab.search(map_fun, space, **{**defaults, **options})


@pytest.mark.back_ends("local")
def test_a_grid_is_searched_and_a_failure_is_a_row(search, capfd):
    found = search(fit, {"x": range(4)}, args={"lr": 0.1}, show=True)
    assert (found.metric, found.best.params, found.best.metric, found.best.value) == ("loss", {"x": 2}, 1 / 3, 2)
    assert (found.best.run_dir / "output" / "x.txt").read_text() == "{'lr': 0.1, 'x': 2}"
    table = found.table
    assert list(table["x"]) == [2, 1, 0, 3]
    assert list(table["state"]) == ["done", "done", "done", "failed"]
    assert list(table["steps"][:3]) == [3, 3, 3]
    assert table["error"][3] == "ValueError: no threes"
    assert found.failures[3].traceback
    html = found._repr_html_()
    assert "<td>0.3333</td>" in html
    assert f"{found.best.run_dir.name}</td>" in html
    assert tfos_lab.search.last.best == found.best
    shown = capfd.readouterr().out
    assert "3 of 4 done, 1 failed · best loss 0.3333 (trial 2: x=2)" in shown
    last = shown[shown.rindex("trial ", 0, shown.index("best loss  parameters")) :]
    assert last.index("\ntrial 2 ") < last.index("\ntrial 1 ") < last.index("\ntrial 0 ") < last.index("\ntrial 3 ")


@pytest.mark.back_ends("local")
def test_halving_stops_early_what_is_worse(search):
    found = search(endless, {"x": range(3)}, strategy="halving", seed=1, slots=1)
    assert found.best.params == {"x": 0}
    assert [trial.params["x"] for trial in found] == [0, 2, 1], "drawn at random"
    assert list(found.table["state"]) == ["done", "stopped early", "stopped early"]
    assert list(found.table["metric"]) == [0.0, 1.0, 2.0]


@pytest.mark.back_ends("local")
def test_where_all_fail_there_is_one_error(search):
    with pytest.raises(SearchFailed) as caught:
        search(lambda args, ctx: args["y"], {"x": [1, 2]})
    text = str(caught.value)
    assert text.startswith("all 2 trials failed (2 raised), so none is the best\n")
    assert "trial 1 (x=2): KeyError: 'y'" in text
    assert list(caught.value.results.table["state"]) == ["failed", "failed"]


@pytest.mark.back_ends("local")
def test_a_metric_that_the_first_trial_does_not_report_ends_the_search(search):
    def work(args, ctx):
        import threading

        ctx.report(1, loss=1.0)
        if args["goes_on"]:
            threading.Event().wait()

    with pytest.raises(ConfigError, match=r"metric='acuracy': trial 0 has returned .* it has reported loss$"):
        search(work, {"goes_on": [False, True, True]}, metric="acuracy")
    assert [trial.state for trial in tfos_lab.search.last] != ["done"] * 3


@pytest.mark.back_ends("local", "standalone")
def test_trials_are_clusters_of_their_own_sizes(search):
    def count(args, ctx):
        if ctx.job_name == "chief":
            ctx.report(1, nodes=ctx.world_size)

    found = search(count, {"nodes": [1, 2, 3]}, cluster_size="nodes", mode="max", slots=4)
    assert [trial.metric for trial in found] == [1.0, 2.0, 3.0]
    assert list(found.table["cluster_size"]) == [3, 2, 1]


@pytest.mark.back_ends("local-session")
def test_each_trial_is_fed_all_rows(search, spark):
    def total(args, ctx):
        import time

        rows, feed = 0, ctx.data_feed()
        while not feed.should_stop():
            rows += len(feed.next_batch(args["batch"]))
            ctx.report(rows, rows=rows)
        if ctx.world_size == 1:
            return rows
        time.sleep(0.1)
        return None

    sizes = {1: 1, 7: 2}
    options = {"mode": "max", "data": spark.range(40), "epochs": 2, "objects": True, "slots": 2}
    found = search(total, {"batch": [1, 7]}, cluster_size=lambda params: sizes[params["batch"]], **options)
    assert found[0].value == 80
    assert [trial.state for trial in found] == ["done", "done"]
    assert found[1].metric == 80 / sizes[7]


@pytest.mark.back_ends("local-session")
def test_all_trials_are_compared_by_the_same_rows_that_none_is_trained_on(search):
    def split(args, ctx):
        train, held_out = (
            sorted(int(x) for batch in ctx.dataset(args["batch"], split=split) for x in batch["x"])
            for split in ("train", "validation")
        )
        ctx.report(error=len(held_out) / args["batch"])
        return train, held_out

    rows = {"x": np.arange(40)}
    found = search(split, {"batch": [4, 5]}, data=rows, validation=0.25, env={})
    assert found.best.params == {"batch": 5}
    train, held_out = found[0].value
    assert sorted([*train, *held_out]) == list(range(40))
    assert len(held_out) == 10
    assert found[1].value == found[0].value
    with pytest.raises(ConfigError, match="validation: there are no rows to train on beside these; give data"):
        search(split, {"batch": [4]}, validation=rows)


@pytest.mark.back_ends("local")
def test_an_interrupt_stops_all_and_keeps_what_is_there(search, tmp_path):
    def work(args, ctx):
        import threading
        from pathlib import Path

        ctx.report(1, loss=args["x"])
        if args["x"] > 0:
            Path(args["folder"], str(args["x"])).touch()
            threading.Event().wait()

    def interrupt():
        try:
            eventually(lambda: len(list(tmp_path.glob("[12]"))) == 2)
            time.sleep(0.5)  # what they have reported is on its way
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(ParallelInterrupted) as caught:
        search(work, {"x": range(4)}, slots=2, args={"folder": str(tmp_path)})
    assert "the trials of 'search' are stopped; 1 of 4 had returned" in str(caught.value)
    found = caught.value.results
    assert found.best.params == {"x": 0}
    assert list(found.table["state"]) == ["done", "stopped", "stopped", "stopped"]
    assert list(found.table["metric"][:3]) == [0.0, 1.0, 2.0]
    assert tfos_lab.search.last.best == found.best


@pytest.mark.back_ends("local", "standalone")
def test_a_cluster_that_finds_no_slots_is_refused(search, spark):
    with pytest.raises(ConfigError, match="cluster_size=3: a trial needs 3 slots at once, and slots=2 allows no more"):
        search(fit, {"x": [1]}, cluster_size=3, slots=2)
    if spark is not None:
        with pytest.raises(ConfigError, match="cluster_size=5: a trial needs 5 slots at once, and there are 4;"):
            search(fit, {"x": [1, 5]}, cluster_size="x")
