"""`tfos_lab.parallel` on every launcher: results in order, failures told apart, retries, stops."""

import os
import signal
import threading
import time

import pytest

import tfos_lab
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import ParallelFailed, ParallelInterrupted

pytestmark = pytest.mark.leaves_nothing

# Of the standalone cluster.
SLOTS = 4


@pytest.fixture
def parallel(back_end, spark):
    """``tfos_lab.parallel`` on the back end, with a quick TensorFlow."""
    env = {} if back_end.is_inline else QUICK_ENV

    def run(map_fun, args_list, **options):
        return tfos_lab.parallel(map_fun, args_list, spark=spark, local=back_end.local, env=env, **options)

    return run


def act(args, ctx):
    """Do what the argument asks for."""
    import os
    import signal
    import sys
    from pathlib import Path

    what, *more = args if isinstance(args, tuple) else (args,)
    if what == "raise":
        raise ValueError(*more)
    if what == "exit":
        sys.exit(3)
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "fail once":
        mark = Path(more[0])
        if not mark.exists():
            mark.touch()
            raise RuntimeError("the first try")
    sys.stdout.write(f"did {what}\n")
    ctx.report(step=1, loss=0.5)
    return what


@pytest.mark.back_ends("local", "standalone", "connect")
def test_more_runs_than_slots_return_in_order(parallel, capfd):
    results = parallel(act, [f"job {number}" for number in range(7)], show=True)
    assert list(results) == [f"job {number}" for number in range(7)]
    assert results.failures == {}
    assert results.states == ["done"] * 7
    shown = capfd.readouterr().out
    assert "did job 6" in shown
    assert "7 of 7 done" in shown


@pytest.mark.back_ends("inline", "local")
def test_a_failing_run_does_not_end_the_others(parallel):
    with pytest.raises(ParallelFailed) as caught:
        parallel(act, ["a", ("raise", "no such luck"), "b", "exit"], name="some")
    assert list(caught.value.failures) == [1, 3]
    assert [caught.value.results[index] for index in (0, 2)] == ["a", "b"]
    raised, exited = caught.value.failures.values()
    assert (raised.kind, raised.error, raised.message, raised.tries) == ("raised", "ValueError", "no such luck", 1)
    assert "raise ValueError(*more)" in raised.traceback
    assert exited.kind == "exited"
    text = str(caught.value)
    assert text.startswith("2 of 4 runs failed (1 raised, 1 exited)")
    assert "run 1 (('raise', 'no such luck')): ValueError: no such luck" in text
    assert "raise ValueError(*more)" in text


@pytest.mark.back_ends("inline", "local")
def test_only_what_failed_is_tried_again(parallel, tmp_path):
    results = parallel(act, ["a", ("fail once", str(tmp_path / "mark")), "b"], retries=1)
    assert list(results) == ["a", "fail once", "b"]
    assert list(results.table["tries"]) == [1, 2, 1]


@pytest.mark.back_ends("local")
def test_a_lost_node_is_told_from_an_error(parallel):
    results = parallel(act, ["die", ("raise", "x"), "a"], retries=1, raise_failures=False)
    assert [failure.kind for failure in results.failures.values()] == ["lost", "raised"]
    assert results.states == ["lost", "failed", "done"]
    assert list(results.table["tries"]) == [2, 2, 1]
    assert "SIGKILL" in results.table["error"][0]


@pytest.mark.back_ends("local")
def test_as_many_go_on_at_once_as_there_are_slots(parallel, tmp_path):
    def span(folder, ctx):
        import time
        import uuid
        from pathlib import Path

        began = time.time()
        (Path(folder) / uuid.uuid4().hex).touch()
        while len(list(Path(folder).iterdir())) < 2:  # the first run ends after another has begun
            time.sleep(0.01)
        time.sleep(0.5)
        return began, time.time()

    begun = tmp_path / "begun"
    begun.mkdir()
    spans = list(parallel(span, [str(begun)] * 6, slots=2, show=False))
    most = max(sum(began <= one[0] < ended for began, ended in spans) for one in spans)
    assert most == 2


@pytest.mark.back_ends("local", "standalone")
def test_an_interrupt_stops_all_and_keeps_what_has_returned(parallel, tmp_path):
    def work(args, ctx):
        import threading
        from pathlib import Path

        if args == 0:
            return "quick"
        Path(args).touch()
        return threading.Event().wait()

    marks = [tmp_path / str(number) for number in range(3)]

    def interrupt():
        try:
            eventually(lambda: all(mark.exists() for mark in marks[:2]))
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(ParallelInterrupted) as caught:
        parallel(work, [0, *map(str, marks)], slots=2, name="long")
    assert caught.value.results[0] == "quick"
    assert caught.value.results.states == ["done", "stopped", "stopped", "stopped"]
    assert "the runs of 'long' are stopped; 1 of 4 had returned" in str(caught.value)


@pytest.mark.back_ends("local")
def test_what_cannot_be_sent_is_refused_before_anything_begins(parallel, tmp_path):
    lock = threading.Lock()
    with pytest.raises(tfos_lab.errors.PayloadError, match="lock"):
        parallel(act, ["a", ("b", lock)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.back_ends("standalone")
def test_runs_wait_for_slots_that_others_hold(parallel, spark, tmp_path):
    over = tmp_path / "over"
    job = threading.Thread(target=_hold_slots, args=(spark, str(over), str(tmp_path)))
    job.start()
    end = threading.Timer(2.0, over.touch)
    try:
        eventually(lambda: len(list(tmp_path.glob("held-*"))) == SLOTS)
        end.start()
        assert list(parallel(act, ["a", "b"])) == ["a", "b"]
    finally:
        over.touch()
        job.join()


def _hold_slots(spark, over, folder):
    """Hold all slots until there is a file."""

    def wait(number, rows):
        from pathlib import Path

        Path(folder, f"held-{number}").touch()
        while not Path(over).exists():
            time.sleep(0.05)
        return rows

    spark.sparkContext.parallelize(range(SLOTS), SLOTS).mapPartitionsWithIndex(wait).count()
