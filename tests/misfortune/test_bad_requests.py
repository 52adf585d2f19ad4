"""Requests that cannot work are refused at once, with what would work, and nothing is started."""

from __future__ import annotations

import time

import pytest

import tfos_lab
from tests.misfortune.conftest import wait_forever
from tfos_lab.errors import ConfigError, NoSession, NotEnoughRoom, NotEnoughSlots, PayloadError, ReservationTimeout

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(autouse=True)
def _nothing_is_started():
    before = [cluster.id for cluster in tfos_lab.clusters()]
    yield
    assert all(cluster.ended for cluster in tfos_lab.clusters() if cluster.id not in before)


def test_all_impossible_roles_are_reported_together():
    with pytest.raises(ConfigError) as error:
        tfos_lab.run(wait_forever, cluster_size=2, num_ps=2, master_node="boss")
    assert error.value.problems == [
        "master_node='boss': not a job name that can lead; use 'chief' or 'master', or None to let worker:0 lead",
        "num_ps=2: leaves no node to train in a cluster of 2; ask for cluster_size=3 or more",
    ]


def test_something_that_is_not_a_function_is_refused():
    with pytest.raises(PayloadError, match="it is not a function"):
        tfos_lab.run("not a function", local="processes")


def test_asking_for_too_many_gpus_is_refused_with_their_number(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(ConfigError, match=r"gpus=1 for 2 nodes needs 2 GPUs, and this machine has 1; ask for gpus=0"):
        tfos_lab.run(wait_forever, cluster_size=2, gpus=1, local="processes")


def test_asking_for_too_many_nodes_is_refused_with_the_number_that_fits():
    with pytest.raises(NotEnoughRoom, match=r"cluster_size=400000, but this machine has room for \d+ nodes: ") as error:
        tfos_lab.run(wait_forever, cluster_size=400_000, local="processes")
    assert 12 <= error.value.fits < 400_000


def test_requiring_spark_without_a_session_says_how_to_make_one(spark_sessions):
    spark_sessions.close()
    with pytest.raises(NoSession, match=r"there is no SparkSession\. Make one with SparkSession\.builder"):
        tfos_lab.run(wait_forever, local="false")


def test_nodes_that_do_not_reserve_in_time_are_named(run, monkeypatch):
    monkeypatch.setattr("tfos_lab.engine.launchers.local.LocalLauncher.launch", lambda self: None)
    with pytest.raises(ReservationTimeout, match=r"0 of 2 nodes reserved within 0\.3 s; missing: chief:0, worker:0"):
        run(wait_forever, reservation_timeout_s=0.3)


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_asking_for_more_nodes_than_slots_is_refused_with_the_numbers(run, spark):
    spark.range(4).count()
    called_s = time.monotonic()
    with pytest.raises(NotEnoughSlots) as error:
        run(wait_forever, cluster_size=9)
    assert (error.value.wanted, error.value.total) == (9, 4)
    assert str(error.value).startswith("cluster_size=9, but Spark has 4 free task slots of 4. Ask for cluster_size=4")
    assert time.monotonic() - called_s < 30


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_parameter_servers_on_the_driver_s_machine_are_not_counted_among_the_slots(run, spark):
    with pytest.raises(NotEnoughSlots) as error:
        run(wait_forever, cluster_size=7, num_ps=2, driver_ps=True)
    assert str(error.value).startswith(
        "cluster_size=7, but Spark has 4 free task slots of 4 for the 5 nodes that are not parameter servers. "
        "Ask for cluster_size=6"
    )


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_slots_that_another_cluster_holds_are_not_free(run, spark):
    with run(wait_forever, cluster_size=3), pytest.raises(NotEnoughSlots) as error:
        run(wait_forever, cluster_size=2)
    assert (error.value.wanted, error.value.free, error.value.total) == (2, 1, 4)


def test_a_session_that_was_stopped_is_refused(new_spark):
    session = new_spark("local[1]")
    session.stop()
    with pytest.raises(NoSession, match=r"the SparkSession was stopped\. Make one"):
        tfos_lab.run(wait_forever, spark=session)
