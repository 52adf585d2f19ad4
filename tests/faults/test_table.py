"""Each fault of the table, done to a real cluster on each of its back ends; and the page that the table writes."""

import json

import pytest

from tests.faults import table, write  # noqa: F401 - the table declares its faults
from tests.faults.declare import FAULTS, HERE, LOCAL, assert_words
from tests.support.processes import gone
from tfos_lab.errors import ClusterEnded, NodeFailed

pytestmark = pytest.mark.leaves_nothing


def cases(*, with_a_session):
    """Return each fault and back end, of those that have a session of Spark's, or of those without."""
    return [
        pytest.param(
            fault, place, id=f"{fault.do.__name__}-{place}", marks=[pytest.mark.tensorflow] if fault.tensorflow else []
        )
        for fault in FAULTS
        for place in fault.on
        if (place != HERE) == with_a_session
    ]


@pytest.mark.parametrize(("fault", "place"), cases(with_a_session=False))
def test_a_fault_on_this_machine_is_seen_as_the_table_says(fault, place, scene, next_cluster_runs):
    see(fault, scene)
    next_cluster_runs()


@pytest.mark.full
@pytest.mark.parametrize(("fault", "spark_mode"), cases(with_a_session=True))
def test_a_fault_with_a_session_is_seen_as_the_table_says(fault, spark_mode, scene, spark, next_cluster_runs):
    see(fault, scene)
    scene.monkeypatch.undo()
    assert spark.range(10).count() == 10
    if spark_mode != LOCAL:
        next_cluster_runs()


def see(fault, scene):
    """Do a fault; see that the user sees what the table says, and that no process is left."""
    start, sees = scene.run, fault.sees
    if fault.tensorflow:
        scene.run = lambda *args, **options: start(*args, **{"env": {}, **options})

    def do():
        fault.do(scene)
        return scene.cluster.wait(timeout=120)

    if sees.error is None:
        assert dict(do()) == sees.results
    else:
        with pytest.raises(sees.error) as caught:
            do()
        sees.check(caught.value)
        if scene.cluster and scene.cluster.ended:
            with pytest.raises((NodeFailed, ClusterEnded)) as again:
                scene.cluster.wait(timeout=120)
            assert_words(sees.then, str(again.value))
    if scene.cluster:
        scene.cluster.stop()
        record = json.loads((scene.cluster.run_dir / "run.json").read_text())
        for notes in (scene.cluster.view().notes, record["view"]["notes"]):
            assert_words(sees.note, "\n".join(notes))
    if scene.family:
        assert gone(scene.family.nodes)


def test_the_page_is_what_the_table_writes():
    assert write.PAGE.read_text() == write.page(), "python -m tests.faults.write"


def test_each_row_of_the_page_is_shown_by_a_test():
    missing = [f"{path}::{test}" for path, test in write.citations() if not write.is_there(path, test)]
    assert missing == []
    assert len(write.citations()) > 60
