"""What every user does, on two hosts with two networks. One resolves its own name to 127.0.1.1, as Debian has it."""

import contextlib
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.hosts.functions import answer_rows, meet, take_rows, told_to_end, work_until_told, write_files
from tests.hosts.host import HostPlan, firewall
from tests.support.eventually import eventually
from tfos_lab.errors import NodeFailed

# The first test waits for hosts, Spark and its executors.
pytestmark = pytest.mark.timeout(600)

PATIENCE_S = 120
HOSTS = (HostPlan(own_name_is_loopback=True, second_interface=True), HostPlan(second_interface=True))


# ---- addresses and ports --------------------------------------------------------------------------------------------


def test_nodes_have_addresses_that_peers_on_other_hosts_reach(run, rig):
    told = dict(run(meet, cluster_size=4).wait())
    assert sorted(said["host"] for said in told.values()) == ["h1", "h1", "h2", "h2"]
    assert {said["met"] for said in told.values()} == {3}
    addresses = {host.name: host.address for host in rig.hosts}
    assert {said["at"].rpartition(":")[0] == addresses[said["host"]] for said in told.values()} == {True}


def test_nodes_stay_within_the_ports_that_a_firewall_lets_through(run, rig, session, monkeypatch):
    monkeypatch.setenv("TFOS_NODE_PORTS", "20000-20019")
    with firewall(*rig.hosts, ports="20000-20019"):
        told = dict(run(meet, cluster_size=4).wait())
    assert {said["met"] for said in told.values()} == {3}
    assert {20000 <= int(said["at"].rpartition(":")[2]) < 20020 for said in told.values()} == {True}


def test_nodes_meet_on_the_network_that_they_are_told(run, rig, monkeypatch):
    monkeypatch.setenv("TFOS_NODE_NETWORK", rig.network.second_network)
    with firewall(*rig.hosts, ports="20000-20019"):  # on the first network, for none of these nodes
        told = dict(run(meet, cluster_size=4).wait())
    assert {said["met"] for said in told.values()} == {3}


def test_a_host_that_is_not_on_the_nodes_network_is_named(run, monkeypatch):
    monkeypatch.setenv("TFOS_NODE_NETWORK", "10.99.0.0/16")
    with pytest.raises(NodeFailed, match=r"has no address in TFOS_NODE_NETWORK=10\.99\.0\.0/16: h[12] reaches"):
        run(meet, cluster_size=4).wait()


def test_a_range_without_enough_ports_is_told_with_its_host(run, monkeypatch):
    monkeypatch.setenv("TFOS_NODE_PORTS", "20000-20002")
    with pytest.raises(NodeFailed, match=r"TFOS_NODE_PORTS=20000-20002 is free on h[12]; each node of a host takes 2"):
        run(meet, cluster_size=4).wait()


# ---- rows, files, training ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def occupied(session, host):
    """For the length of the block, have Spark's tasks hold all slots of a host."""
    name = host.name

    def hold(_number):
        while socket.gethostname() == name and not Path("/tmp/leave").exists():
            time.sleep(0.05)

    host.run("rm", "-f", "/tmp/leave")
    job = threading.Thread(target=lambda: session.sparkContext.parallelize(range(40), 40).foreach(hold))
    job.start()
    try:
        # All tasks that can run elsewhere have ended, and both slots of the host are held.
        tracker = session.sparkContext.statusTracker()
        eventually(
            lambda: any(
                (stage := tracker.getStageInfo(number)) and (stage.numActiveTasks, stage.numCompletedTasks) == (2, 38)
                for number in tracker.getActiveStageIds()
            ),
            PATIENCE_S,
        )
        yield
    finally:
        host.run("touch", "/tmp/leave")
        job.join(PATIENCE_S)


def numbers(session, count, partitions):
    return session.sparkContext.parallelize(range(count), partitions)


def test_rows_go_to_nodes_on_another_host_through_its_firewall(run, rig, session, monkeypatch):
    monkeypatch.setenv("TFOS_NODE_PORTS", "20000-20019")
    with firewall(*rig.hosts, ports="20000-20019"):
        with occupied(session, rig.hosts[0]):
            cluster = run(take_rows, cluster_size=2)
        # The nodes hold all slots of h2: tasks that read the rows run on h1.
        cluster.train(numbers(session, 1000, 4), objects=True)
        told = dict(cluster.wait(timeout=PATIENCE_S))
    assert {said["host"] for said in told.values()} == {"h2"}
    assert sorted(row for said in told.values() for row in said["rows"]) == list(range(1000))


def test_nodes_on_all_hosts_answer_for_rows(run, session):
    with run(answer_rows, cluster_size=4) as cluster:
        answers = cluster.inference(numbers(session, 400, 8)).collect()
    assert [answer[:2] for answer in answers] == [(row, 2 * row) for row in range(400)]
    assert {answer[2] for answer in answers} <= {"h1", "h2"}


def test_output_and_event_files_come_home(run, tmp_path):
    cluster = run(write_files, cluster_size=4, collect="all")
    hosts = dict(cluster.wait(timeout=PATIENCE_S))
    home = {path.name for path in tmp_path.rglob("from-*.txt")}
    assert home == {"from-h1.txt", "from-h2.txt"}
    events = [path.name for path in tmp_path.rglob("events.out.tfevents.*")]
    assert events == [f"events.out.tfevents.1.{hosts['chief:0']}"]


# ---- links ----------------------------------------------------------------------------------------------------------


def test_a_link_that_is_cut_for_two_seconds_is_survived(run, rig):
    for _ in range(5):
        cluster, took_s = cut_for_two_seconds(run, rig)
        if took_s < 2.5:  # on a busy machine it may be a longer cut
            break
        cluster.stop(grace=0.0)
    told = dict(cluster.wait(timeout=PATIENCE_S))
    assert sorted(told.values()) == ["h1", "h1", "h2", "h2"]


def cut_for_two_seconds(run, rig):
    with told_to_end(*rig.hosts):
        cluster = run(work_until_told, cluster_size=4)
        with rig.hosts[1].wire.cut():
            began = time.monotonic()
            time.sleep(2)
        return cluster, time.monotonic() - began


@pytest.mark.minutes
@pytest.mark.tensorflow
def test_a_firewall_between_nodes_is_told_with_what_to_do(run, rig):
    with firewall(*rig.hosts, ports="20000-20019"):
        cluster = run(lambda args, ctx: ctx.strategy(), cluster_size=4, env={})
        with pytest.raises(NodeFailed, match=r"on h[12] cannot connect to .* \(timed out\).*TFOS_NODE_PORTS"):
            cluster.wait(timeout=PATIENCE_S)


# ---- TensorFlow -----------------------------------------------------------------------------------------------------


def fit(args, ctx):
    import keras

    with ctx.strategy().scope():
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    history = model.fit(ctx.dataset(10).map(lambda row: (row["x"], row["y"])), verbose=0, callbacks=ctx.callbacks())
    saved = ctx.save_model(model)
    return {"host": socket.gethostname(), "loss": history.history["loss"], "saved": str(saved)}


@pytest.mark.tensorflow
def test_keras_trains_over_two_hosts_and_the_model_comes_home(run, rig, session, monkeypatch):
    monkeypatch.setenv("TFOS_NODE_PORTS", "20000-20019")
    with firewall(*rig.hosts, ports="20000-20019"):
        cluster = run(fit, cluster_size=2, env={})
        cluster.train(session.createDataFrame([(i / 200, i / 100) for i in range(200)], ["x", "y"]))
        told = dict(cluster.wait(timeout=PATIENCE_S))
    assert {said["host"] for said in told.values()} == {"h1", "h2"}
    assert cluster.model_path.exists()
    assert told["chief:0"]["loss"] == told["worker:0"]["loss"]
