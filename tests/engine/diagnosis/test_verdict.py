"""Verdicts from staged figures: right where the figures allow one, and silent where they do not."""

from __future__ import annotations

import statistics

import pytest

from tfos_lab.engine.diagnosis.figures import figures_of, with_slower
from tfos_lab.engine.diagnosis.verdict import Kind, judge
from tfos_lab.engine.state.activity import NodeActivity
from tfos_lab.engine.state.events import FeedView, NodeView


def activity(step_s=0.1, step=50, **figures):
    known = ("waits_rows", "waits_data", "waits_peers", "computes", "python")
    rest = 1.0 - sum(figures.get(name, 0.0) for name in known)
    figures.setdefault("computes", max(0.0, rest))
    return NodeActivity(step=step, step_s=step_s, **figures)


def nodes(*activities, hosts=()):
    hosts = hosts or ["h"] * len(activities)
    return tuple(
        NodeView(f"worker:{number}", "worker", number, is_chief=False, activity=what, host=host)
        for number, (what, host) in enumerate(zip(activities, hosts, strict=True))
    )


def verdict_on(*activities, feeds=(), hosts=()):
    return judge(figures_of(with_slower(nodes(*activities, hosts=hosts)), feeds))


# ---- six runs -------------------------------------------------------------------------------------------------------


def test_slow_spark():
    verdict = verdict_on(
        activity(waits_rows=0.64, rows_s=2100), activity(waits_rows=0.60, rows_s=2040), feeds=[FeedView()]
    )
    assert verdict.kind is Kind.ROWS
    assert verdict.text == (
        "waits for rows 62 % of the time: Spark delivers 4,100 rows/s, the nodes could take 11,000; use more "
        "partitions, or cache the DataFrame"
    )


def test_a_slow_map_in_tf_data():
    verdict = verdict_on(activity(0.2, waits_data=0.7), activity(0.2, waits_data=0.5))
    assert verdict.kind is Kind.DATA
    assert verdict.text == (
        "waits for its tf.data pipeline 60 % of the time: a step takes 200 ms, 120 ms of it for its batch; use map(…, "
        "num_parallel_calls=tf.data.AUTOTUNE), cache() and prefetch(tf.data.AUTOTUNE)"
    )


def test_slow_steps():
    verdict = verdict_on(activity(0.21, computes=0.93, python=0.07, cpu=1.9), activity(0.21, computes=0.93, cpu=1.9))
    assert verdict.kind is Kind.COMPUTE
    assert verdict.text.startswith("compute bound: 93 % of a step of 210 ms is spent in TensorFlow, on 1.9 cores")


def test_a_straggler():
    fast = activity(waits_peers=0.525, host_cpu=0.4)
    slow = activity(waits_peers=0.0, host_cpu=0.98)
    verdict = verdict_on(fast, fast, fast, slow, hosts=["h1", "h1", "h1", "h2"])
    assert verdict.kind is Kind.STRAGGLER
    assert verdict.text == (
        "worker:3 is 2.1 × slower than the others, which wait for it 52 % of the time: its host h2 is at 98 % CPU; see "
        "what else runs there"
    )


def test_a_straggler_is_not_explained_by_a_host_that_all_nodes_share():
    fast = activity(waits_peers=0.5, host_cpu=0.4)
    slow = activity(python=0.9, where="step, train.py, line 7", host_cpu=0.98)
    assert "in Python (step, train.py, line 7)" in verdict_on(fast, slow).text
    elsewhere = verdict_on(fast, fast, slow, hosts=["h1", "h2", "h2"])
    assert "its host h2 is at 98 % CPU" in elsewhere.text


def test_waiting_for_peers():
    verdict = verdict_on(activity(0.04, waits_peers=0.5), activity(0.04, waits_peers=0.45))
    assert verdict.kind is Kind.PEERS
    assert "wait for one another 48 % of the time, and none is slower" in verdict.text
    assert "takes 19 ms of each step of 40 ms" in verdict.text


def test_a_healthy_run():
    verdict = verdict_on(activity(waits_rows=0.1, python=0.2), activity(waits_data=0.1, python=0.2))
    assert (verdict.kind, verdict.text) == (Kind.HEALTHY, "healthy: computes 70 % of the time, and waits 10 %")


# ---- what is close to them ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "why"),
    [
        ({"waits_rows": 0.6}, "it waits for rows 60 % of the time; repartition the DataFrame evenly"),
        ({"waits_data": 0.6}, "it waits for its tf.data pipeline 60 % of the time"),
        ({"python": 0.6, "where": "step, a.py, line 3"}, "it spends 60 % of the time in Python (step, a.py, line 3)"),
        ({}, "it computes 100 % of the time; give all nodes like hosts and equal batches"),
    ],
)
def test_a_straggler_s_own_reason_is_told(figures, why):
    verdict = verdict_on(activity(waits_peers=0.6), activity(**figures))
    assert verdict.kind is Kind.STRAGGLER
    assert why in verdict.text


def test_nodes_that_do_not_wait_for_one_another_have_stragglers_too():
    verdict = verdict_on(activity(0.1, python=0.3), activity(0.1, python=0.3), activity(0.3, python=0.3))
    assert verdict.kind is Kind.STRAGGLER
    assert verdict.text.startswith("worker:2 is 3.0 × slower than the others: it computes")


def test_two_slow_nodes_are_no_straggler():
    verdict = verdict_on(*[activity(waits_peers=0.6)] * 3, activity(), activity())
    assert verdict.kind is not Kind.STRAGGLER


def test_rows_that_have_all_arrived_are_not_spark_s_fault():
    verdict = verdict_on(activity(waits_rows=0.5, rows_s=50), feeds=[FeedView(complete=True)])
    assert verdict.kind is Kind.ROWS
    assert "though all have arrived: the nodes read 50 rows/s" in verdict.text
    assert "Spark" not in verdict.text


def test_a_stream_is_waited_for_by_nature():
    verdict = verdict_on(activity(waits_rows=0.8), feeds=[FeedView(kind="stream")])
    assert verdict.kind is Kind.HEALTHY
    assert verdict.text == "keeps up with the stream: the nodes wait for its rows 80 % of the time"


def test_a_busy_host_gets_another_cure_for_its_pipeline():
    verdict = verdict_on(activity(waits_data=0.6, host_cpu=0.97), hosts=["h1"])
    assert verdict.text.endswith("the host h1 is at 97 % CPU, so cache() what it computes, or prepare the data before")


def test_python_is_told_from_tensorflow():
    slow = verdict_on(activity(0.5, python=0.9, where="step, Cell In[3], line 12"))
    assert slow.kind is Kind.PYTHON
    assert "a step takes 500 ms, now at step, Cell In[3], line 12" in slow.text


def test_short_steps_are_healthy_whatever_they_do():
    assert verdict_on(activity(0.003)).text == "healthy: steps of 3 ms that wait 0 % of the time"
    quick = verdict_on(activity(0.003, python=0.9))
    assert quick.kind is Kind.HEALTHY
    assert quick.text.endswith("90 % is spent in Python, so larger batches take more rows per second")


def test_a_busy_gpu_is_named():
    busy, idle = activity(gpu=0.97), activity(gpu=0.1)
    assert "with the GPUs at 97 %" in verdict_on(busy).text
    assert verdict_on(idle).kind is not Kind.COMPUTE


# ---- silence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what",
    [
        pytest.param([None], id="no figures"),
        pytest.param([activity(), None], id="figures of one node only"),
        pytest.param([NodeActivity(step=50, step_s=0.1)], id="no shares"),
        pytest.param([activity(step=2)], id="too few steps"),
        pytest.param([activity(step_s=None, waits_rows=0.9)], id="no steps"),
        pytest.param([activity(idle_s=30.0)], id="may be hung"),
        pytest.param([activity(waits_rows=0.2, waits_data=0.2, python=0.3)], id="a bit of everything"),
        pytest.param([activity(has_gpu_peers=True, gpu=1.0)] * 2, id="GPUs that may wait for one another"),
    ],
)
def test_it_is_silent_where_it_does_not_know(what):
    verdict = verdict_on(*what)
    assert (verdict.kind, verdict.text) == (Kind.UNKNOWN, "")


def test_no_nodes_give_no_verdict():
    assert judge(figures_of(())).text == ""


def test_parameter_servers_do_not_count():
    ps = NodeView("ps:0", "ps", 0, is_chief=False)
    assert figures_of([ps, *nodes(activity())]) is not None
    assert figures_of([ps]) is None


# ---- slower ---------------------------------------------------------------------------------------------------------


def test_each_node_is_compared_with_its_peers():
    views = with_slower(nodes(activity(waits_peers=0.5), activity(waits_peers=0.5), activity()))
    assert [view.activity.slower for view in views] == pytest.approx([2 / 3, 2 / 3, 2.0])


def test_a_fraction_of_a_millisecond_makes_no_straggler():
    even, moody = activity(0.0003), activity(0.00042)
    assert [view.activity.slower for view in with_slower(nodes(even, even, moody))] == [1.0, 1.0, 1.0]
    assert verdict_on(even, even, moody).kind is not Kind.STRAGGLER
    assert verdict_on(activity(0.0003), activity(0.0003), activity(0.003)).kind is Kind.STRAGGLER


def test_a_node_alone_is_not_slower_than_anybody():
    (view,) = with_slower(nodes(activity()))
    assert view.activity.slower is None
    views = with_slower(nodes(activity(), None))
    assert views[0].activity.slower is None


@pytest.mark.parametrize("count", [2, 3, 4, 7, 50])
def test_the_usual_seconds_are_the_median_of_all_others(count):
    seconds = [0.1 * (1 + place * 7 % 5) for place in range(count)]
    views = with_slower(nodes(*(activity(step_s) for step_s in seconds)))
    expected = [
        step_s / statistics.median(seconds[:place] + seconds[place + 1 :]) for place, step_s in enumerate(seconds)
    ]
    assert [view.activity.slower for view in views] == pytest.approx(expected)
