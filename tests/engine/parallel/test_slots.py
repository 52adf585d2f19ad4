"""How many independent runs may go on at once."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tfos_lab.core.launchers import LAUNCHERS
from tfos_lab.engine.launchers.capacity import Room
from tfos_lab.engine.parallel import slots as module
from tfos_lab.engine.parallel.slots import InlineSlots, MachineSlots, SparkSlots, slots_for
from tfos_lab.engine.spark.session import Slots
from tfos_lab.errors import ConfigError
from tfos_lab.node.gpus import GpuLocks

ROOM = Room(cores=4)


@pytest.fixture(autouse=True)
def _locks(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_GPU_LOCKS", str(tmp_path / "locks"))


@pytest.mark.parametrize(
    ("limit", "default", "free"),
    [(None, None, 4), (2, None, 2), (8, None, 8), (None, 3, 3)],
    ids=["cores", "fewer", "more than cores", "a local session"],
)
def test_a_machine_has_a_slot_for_each_core_unless_told_otherwise(limit, default, free):
    slots = MachineSlots(limit, default, room=ROOM)
    assert slots.free(0, 0) == free
    assert slots.free(1, 1) == free - 1


def test_more_than_the_machine_holds_is_refused():
    with pytest.raises(ConfigError, match="slots=500: this machine has room for 256 runs at once: it has 4 cores"):
        MachineSlots(500, None, room=ROOM)


def test_runs_get_gpus_of_their_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,8")
    slots = MachineSlots(None, None, gpus=2, room=ROOM)
    assert slots.free(0, 0) == 2
    assert [slots.environ(run) for run in (0, 1)] == [{"CUDA_VISIBLE_DEVICES": "4,5"}, {"CUDA_VISIBLE_DEVICES": "6,7"}]
    assert slots.free(2, 0) == 0
    slots.release(0)
    assert slots.environ(2) == {"CUDA_VISIBLE_DEVICES": "4,5"}
    slots.release(1)
    slots.release(2)


def test_gpus_that_other_clusters_hold_are_no_slots(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    others = GpuLocks(os.environ)
    others.claim(2, ["0", "1"])
    slots = MachineSlots(None, None, gpus=1, room=ROOM)
    assert slots.free(0, 0) == 1
    assert slots.environ(0) == {"CUDA_VISIBLE_DEVICES": "2"}
    others.close()
    assert slots.free(1, 0) == 2
    slots.release(0)


def test_more_gpus_than_there_are_are_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(ConfigError, match="gpus=2: this machine has 1 for all runs"):
        MachineSlots(None, None, gpus=2, room=ROOM)


def test_without_gpus_nothing_is_set():
    slots = MachineSlots(None, None, room=ROOM)
    assert slots.environ(0) == {}
    slots.release(0)


@pytest.fixture
def spark(monkeypatch):
    """A session whose slots, and kind of allocation, are the test's."""
    fake = SimpleNamespace(slots=Slots(total=4, free=4), dynamic=False)
    monkeypatch.setattr(module.spark_session, "slots_of", lambda spark: spark.slots)
    monkeypatch.setattr(module.spark_session, "allocates_dynamically", lambda spark: spark.dynamic)
    return fake


def test_spark_has_the_slots_that_nobody_holds(spark):
    slots = SparkSlots(None, spark)
    assert slots.free(0, 0) == 4
    spark.slots = Slots(total=4, free=1)
    assert slots.free(2, 0) == 1
    assert slots.free(2, 1) == 0, "a run that launches will take the last one"
    assert slots.total == 4


def test_a_limit_holds_on_spark(spark):
    slots = SparkSlots(2, spark)
    assert slots.free(0, 0) == 2
    assert slots.free(1, 0) == 1


def test_it_says_when_others_hold_all_slots(spark):
    spark.slots = Slots(total=4, free=0)
    slots = SparkSlots(None, spark)
    assert slots.free(0, 0) == 0
    assert slots.is_waiting
    spark.slots = Slots(total=4, free=1)
    slots.free(0, 0)
    assert not slots.is_waiting


def test_under_dynamic_allocation_one_waits_so_that_spark_asks_for_an_executor(spark):
    spark.dynamic = True
    spark.slots = Slots(total=0, free=0)
    slots = SparkSlots(None, spark)
    assert slots.free(0, 0) == 1
    assert slots.free(1, 1) == 0


@pytest.fixture
def hosts(monkeypatch):
    """The GPUs of the executors' hosts, which Spark does not assign."""
    facts = [{"host": "a", "gpus": "0, 1, 2"}, {"host": "a", "gpus": "0, 1, 2"}, {"host": "b", "gpus": "0"}]
    monkeypatch.setattr(module.spark_session, "gpus_per_task", lambda spark: spark.gpus_per_task)
    monkeypatch.setattr(module, "inspect_executors", lambda spark, nodes, env: facts)


def test_on_spark_the_gpus_of_the_hosts_are_enough_for_so_many_runs(spark, hosts):
    spark.gpus_per_task = None
    assert slots_for(LAUNCHERS["spark"], spark, limit=None, gpus=1).free(0, 0) == 4
    pairs = slots_for(LAUNCHERS["spark"], spark, limit=None, gpus=2)
    assert (pairs.free(0, 0), pairs.free(1, 1)) == (1, 0)
    with pytest.raises(
        ConfigError, match=r"gpus=4: no host of Spark's executors has so many for a run \(a has 3, b has 1"
    ):
        slots_for(LAUNCHERS["spark"], spark, limit=None, gpus=4)


def test_where_spark_assigns_gpus_its_task_slots_count(spark, hosts):
    spark.gpus_per_task = 2
    assert slots_for(LAUNCHERS["spark"], spark, limit=None, gpus=2).free(0, 0) == 4


def test_nodes_that_have_given_their_slots_back_still_count(spark):
    spark.slots = Slots(total=4, free=4)
    slots = SparkSlots(None, spark)
    assert slots.free(3, 0) == 1, "they did so for the tasks that feed them"
    assert slots.free(4, 0) == 0


def test_under_dynamic_allocation_a_larger_run_waits_with_all_its_tasks(spark):
    spark.dynamic = True
    spark.slots = Slots(total=1, free=1)
    assert SparkSlots(None, spark).free(0, 0, 3) == 3


def test_there_are_as_many_slots_as_the_largest_run_has_nodes():
    assert MachineSlots(None, None, room=ROOM, largest=6).most() == 6
    assert MachineSlots(2, None, room=ROOM, largest=6).most() == 2


def test_spark_tells_how_many_slots_one_run_may_take(spark, monkeypatch):
    monkeypatch.setattr(module.spark_session, "await_slots", lambda spark, wanted: spark.slots)
    assert SparkSlots(None, spark).most() == 4
    assert SparkSlots(2, spark).most() == 2
    spark.dynamic = True
    assert SparkSlots(None, spark).most() is None


def test_the_nodes_of_a_larger_run_take_gpus_themselves(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    slots = MachineSlots(None, None, gpus=1, room=ROOM)
    assert slots.environ(0, 2) == {}
    assert slots.free(2, 2, 2) == 1, "they are about to"
    nodes = GpuLocks(os.environ)
    nodes.claim(2, ["4", "5", "6"])
    assert slots.free(2, 0) == 1
    assert slots.environ(1) == {"CUDA_VISIBLE_DEVICES": "6"}
    slots.release(0)
    slots.release(1)
    nodes.close()


def test_inline_runs_follow_one_another():
    slots = InlineSlots()
    assert (slots.free(0, 0), slots.free(1, 0)) == (1, 0)


def test_a_launcher_has_slots_of_its_kind(spark):
    assert isinstance(slots_for(LAUNCHERS["inline"], None, limit=3, gpus=None), InlineSlots)
    assert isinstance(slots_for(LAUNCHERS["spark"], spark, limit=None, gpus=None), SparkSlots)
    assert isinstance(slots_for(LAUNCHERS["local"], None, limit=None, gpus=None), MachineSlots)
