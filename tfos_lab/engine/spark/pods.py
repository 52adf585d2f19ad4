"""What Kubernetes says of executors' pods that do not run yet, asked through Spark's own client in its JVM."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tfos_lab.data.frames import is_connect
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.spark.asked import executors_asked
from tfos_lab.errors.text import format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTER = "k8s://"
_NAMED = 3
_PENDING = "Pending"
_ENDED = ("Failed", "Succeeded")
# What a pod waits for from its first second on, whatever keeps it.
_UNTELLING = ("", "ContainerCreating", "PodInitializing")


class PendingPod(NamedTuple):
    """An executor's pod that does not run yet, and what it waits for."""

    name: str
    why: str


def on_kubernetes(spark: SparkSession) -> bool:
    """Whether executors are pods, and the session's JVM can be asked about them."""
    return not is_connect(spark) and spark_session.master_of(spark).startswith(_MASTER)


def pending_text(spark: SparkSession) -> str:
    """Return a clause on executors that Kubernetes has not started yet, or "" if there are none or it does not tell."""
    if not on_kubernetes(spark):
        return ""
    with contextlib.suppress(Exception):  # the session may be gone, or its account may not list pods
        pods = _pods(spark)
        pending = [_pending_pod(spark, pod) for pod in pods if _phase_of(pod) == _PENDING]
        return describe_pending(pending, executors_asked(spark) - len(pods))
    return ""


def describe_pending(pods: Iterable[PendingPod], without_pod: int = 0) -> str:
    """Return a clause on pods that wait, by what they wait for, and on executors for which there is no pod.

    Examples
    --------
    >>> describe_pending([PendingPod("app-exec-3", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu")])
    '1 executor pod is pending: app-exec-3 (0/3 nodes are available: 3 Insufficient nvidia.com/gpu)'
    """
    names = defaultdict(list)
    for pod in pods:
        names[pod.why].append(pod.name)
    count = sum(map(len, names.values()))
    clauses = []
    if count:
        groups = "; ".join(f"{_some(group)} ({why})" for why, group in names.items())
        clauses.append(f"{format_count(count, 'executor pod is', 'executor pods are')} pending: {groups}")
    if without_pod > 0:
        executors = format_count(without_pod, "more executor has", "more executors have")
        clauses.append(
            f"{executors} no pod yet, which the API server may have refused (a quota, or rights of the driver's "
            "service account): Spark's log says so"
        )
    return "; ".join(clauses)


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def why_pending(status: Mapping[str, Any]) -> str:
    """Return what a pod waits for according to its ``status``, or "" if it does not say.

    Examples
    --------
    >>> why_pending({"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no x"}}}]})
    'ImagePullBackOff: no x'
    """
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = container.get("state", {}).get("waiting")
        if waiting:
            return _sentence(waiting.get("reason"), waiting.get("message"))
    for condition in status.get("conditions", ()):
        if condition.get("status") == "False" and condition.get("message"):
            return _sentence(None, condition["message"])
    return _sentence(status.get("reason"), status.get("message"))


def _sentence(reason: str | None, message: str | None) -> str:
    return ": ".join(" ".join(part.split()).rstrip(".") for part in (reason, message) if part)


def _pending_pod(spark: SparkSession, pod: Mapping[str, Any]) -> PendingPod:
    name = str(pod["metadata"]["name"])
    why = why_pending(pod.get("status", {}))
    if why in _UNTELLING:
        # Of a volume that cannot be mounted, only an event tells.
        why = _last_warning(spark, name) or why or "Kubernetes does not say why"
    return PendingPod(name, why)


def _pods(spark: SparkSession) -> list[dict[str, Any]]:
    """Return the pods of the session's executors that have not ended, oldest first, as the API server has them."""
    found = _client(spark).pods().inNamespace(_namespace(spark))
    labelled = found.withLabel("spark-app-selector", spark_session.conf(spark, "spark.app.id"))
    pods = _items(spark, labelled.withLabel("spark-role", "executor").list())
    living = [pod for pod in pods if _phase_of(pod) not in _ENDED]
    return sorted(living, key=lambda pod: int(pod["metadata"]["labels"]["spark-exec-id"]))


def _phase_of(pod: Mapping[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase", _PENDING))


def _last_warning(spark: SparkSession, pod: str) -> str:
    """Return the newest warning about a pod; "" if there is none, or the driver's account may not list events."""
    with contextlib.suppress(Exception):
        events = _client(spark).v1().events().inNamespace(_namespace(spark)).withField("involvedObject.name", pod)
        warnings = [event for event in _items(spark, events.list()) if event.get("type") == "Warning"]
        warnings.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
        return _sentence(warnings[-1].get("reason"), warnings[-1].get("message")) if warnings else ""
    return ""


def _namespace(spark: SparkSession) -> str:
    return spark_session.conf(spark, "spark.kubernetes.namespace", "default")


def _client(spark: SparkSession) -> Any:
    """Return the client by which Spark's scheduler asks for pods; not every version of Spark has a method for it."""
    backend = spark.sparkContext._jsc.sc().schedulerBackend()  # noqa: SLF001 - it has no Python name
    field = backend.getClass().getDeclaredField("kubernetesClient")
    field.setAccessible(True)
    return field.get(backend)


def _items(spark: SparkSession, listed: Any) -> list[dict[str, Any]]:
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - it has no Python name
    assert jvm is not None
    text = jvm.io.fabric8.kubernetes.client.utils.Serialization.asJson(listed)
    items: list[dict[str, Any]] = json.loads(text).get("items", [])
    return items
