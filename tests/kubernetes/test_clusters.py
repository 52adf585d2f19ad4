"""Clusters on Kubernetes: Spark's own scheduler back end and executors, in pods of a stand-in for its API server.

The pods share one session. Tests with `late_pod` come first, while its second pod finds no host; others have both pods.
"""

import threading

import pytest

import tfos_lab
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.kube import executor_of, unschedulable
from tests.support.kube_documents import confs_of, manifests_of
from tfos_lab.errors import NodeFailed, NotEnoughSlots

pytestmark = pytest.mark.leaves_nothing

PODS = 2
NO_NODE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
HEADING = "### Session"


@pytest.fixture(scope="module")
def session(kube, open_session):
    """A session whose second pod finds no host at first."""
    kube.why_pending = lambda pod: unschedulable(NO_NODE) if int(executor_of(pod)) >= PODS else None
    confs = confs_of(HEADING)
    name, namespace = confs["spark.kubernetes.driver.pod.name"], confs["spark.kubernetes.namespace"]
    kube.add_driver(name, namespace, manifests_of("### Service for the driver")[0]["spec"]["selector"])
    return open_session(HEADING)


@pytest.fixture
def late_pod(session):
    """Leave the second pod waiting for a host."""


@pytest.fixture(autouse=True)
def _hosts(request, kube, session):
    """Let all pods find hosts, unless the test is about one that does not: each may be run by itself."""
    if "late_pod" not in request.fixturenames:
        kube.why_pending = lambda pod: None


def executors_of(cluster):
    return {node.executor for node in cluster.nodes}


# Functions are made where they are asked for: nodes elsewhere cannot import this module.


def make_waiting():
    def wait_forever(args, ctx):
        import threading

        threading.Event().wait()

    return wait_forever


def test_pods_are_as_the_page_configures_them(kube, session, late_pod):
    session.range(1).count()
    pod = next(pod for pod in kube.posted if executor_of(pod) == "1")
    confs = confs_of(HEADING)
    (container,) = pod["spec"]["containers"]
    assert pod["metadata"]["namespace"] == confs["spark.kubernetes.namespace"]
    assert pod["metadata"]["labels"].items() >= manifests_of("### Pod template")[0]["metadata"]["labels"].items()
    assert container["image"] == confs["spark.kubernetes.container.image"]
    assert container["resources"]["requests"]["cpu"] == confs["spark.executor.cores"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes[mounts["/tmp"]]["emptyDir"]["sizeLimit"] == "50Gi"
    assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory"
    assert [owner["name"] for owner in pod["metadata"]["ownerReferences"]] == ["notebook-0"]


def test_where_a_pod_does_not_come_it_is_told_how_to_ask_kubernetes(session, run, late_pod):
    with pytest.raises(NotEnoughSlots) as error:
        run(make_waiting(), cluster_size=PODS, start_timeout=5)
    assert (error.value.free, error.value.total) == (1, 1)
    pods = f"spark-app-selector={session.sparkContext.applicationId}"
    assert (
        "Spark has 1 free task slot of 1: Kubernetes has started 1 of 2 executors so far (why others wait: "
        f"kubectl -n {confs_of(HEADING)['spark.kubernetes.namespace']} describe pods -l {pods}; "
    ) in str(error.value)


def test_more_nodes_than_all_pods_will_hold_are_refused_at_once(session, run, late_pod):
    with pytest.raises(NotEnoughSlots, match="cluster_size=3, but Spark has 1 free task slot of 1"):
        run(make_waiting(), cluster_size=PODS + 1)


def test_nodes_wait_for_pods_that_come_late_and_tell_so(kube, session, run, late_pod):
    before = len(tfos_lab.clusters())

    def find_a_host():
        """Be an autoscaler that is slower than the wait is told."""
        eventually(lambda: [cluster for cluster in tfos_lab.clusters()[before:] if cluster.view().notes])
        kube.why_pending = lambda pod: None

    def read(args, ctx):
        feed, rows = ctx.data_feed(), []
        while not feed.should_stop():
            rows += [row[0] for row in feed.next_batch(10)]
        return rows

    threading.Thread(target=find_a_host).start()
    cluster = run(read, cluster_size=PODS)
    assert len(executors_of(cluster)) == PODS
    cluster.train(session.range(0, 100, 1, 5))  # the nodes hold all slots, and give them back
    for executor in executors_of(cluster):
        tmp = kube.process_of(executor).tmp
        assert tmp.name.startswith("scratch")  # the page's volume
        assert [folder.name for folder in tmp.glob("tfos_lab-*/code-*")]
    assert sorted(row for rows in cluster.wait(timeout=PATIENCE_S).values() for row in rows) == list(range(100))
    (waiting,) = cluster.view().notes
    assert waiting.startswith("waiting for Spark's executors: Kubernetes has started 1 of 2 executors so far")


def test_a_killed_pod_is_told_at_once_and_kubernetes_brings_another(kube, session, run):
    cluster = run(make_waiting(), cluster_size=PODS)
    victim = next(node for node in cluster.nodes if node.name == "worker:0")
    kube.process_of(victim.executor).kill()
    with pytest.raises(NodeFailed) as error:
        cluster.wait(timeout=PATIENCE_S)
    assert (error.value.node, error.value.kind) == ("worker:0", "Lost")
    assert error.value.message == (
        f"the node on {victim.host} (executor {victim.executor}) is gone: Spark has lost its executor: The executor "
        f"with id {victim.executor} exited with exit code 137 (SIGKILL, possible container OOM); its container: "
        "OOMKilled"
    )
    # Spark asks for another pod; the next cluster waits for it.
    again = run(lambda args, ctx: ctx.node, cluster_size=PODS)
    assert victim.executor not in executors_of(again)
    again.wait(timeout=PATIENCE_S)
