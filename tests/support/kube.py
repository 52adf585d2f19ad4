"""A stand-in for Kubernetes: its API server, as far as Spark's scheduler asks it, and pods that are local processes.

Spark's own back end talks to it (``spark.master=k8s://http://127.0.0.1:PORT``, client mode): it posts pods and config
maps, watches and lists pods, and deletes them. Each pod becomes a `tests.support.kube_pod.PodProcess`.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.support.kube_pod import PodProcess
from tests.support.kube_server import KINDS, Manifest, make_server

_TURN_S = 0.05
_GRACE_S = 5.0


class Kube:
    """The state of the cluster, and the kubelet's thread that starts and ends pods.

    ``image`` is the environment that the containers' image sets. ``why_pending``, given a pod, returns the ``status``
    that Kubernetes gives it while it stays pending, or None if it starts.
    """

    def __init__(self, image: Mapping[str, str]) -> None:
        self.why_pending: Callable[[Manifest], Manifest | None] = lambda _: None
        self.posted: list[Manifest] = []
        self._image = image
        self._folder = Path(tempfile.mkdtemp(prefix="kube-", dir="/tmp"))
        self._changed = threading.Condition()
        self._objects: dict[tuple[str, str], Manifest] = {}
        self._events: list[tuple[str, Manifest]] = []
        self._version = itertools.count(1)
        self._numbers = itertools.count(1)
        self._processes: dict[str, PodProcess] = {}
        self._doomed: dict[str, float] = {}
        self._closed = threading.Event()
        self._kubelet = threading.Thread(target=self._work, name="kubelet", daemon=True)
        self._server = make_server(self)
        self._listener = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="kube", daemon=True)
        self._kubelet.start()
        self._listener.start()

    # ---- for tests --------------------------------------------------------------------------------------------------

    @property
    def master(self) -> str:
        """The master URL for Spark."""
        return f"k8s://http://127.0.0.1:{self._server.server_port}"

    def pods(self) -> list[Manifest]:
        """Return the pods of executors, oldest first."""
        return [pod for pod in self.objects("pods") if _is_executor(pod)]

    def objects(self, resource: str) -> list[Manifest]:
        """Return all objects of a resource, such as ``configmaps``."""
        with self._changed:
            return [found for (kind, _), found in self._objects.items() if kind == resource]

    def add_driver(self, name: str, namespace: str, labels: Mapping[str, str]) -> None:
        """Add the pod in which the test's process is thought to run."""
        made = self.create("pods", namespace, {"metadata": {"name": name, "labels": dict(labels)}, "spec": {}})
        self._set_status(made, {**_running("127.0.0.1"), "conditions": [{"type": "Ready", "status": "True"}]})

    def process_of(self, executor: str) -> PodProcess:
        (name,) = (pod["metadata"]["name"] for pod in self.pods() if executor_of(pod) == executor)
        with self._changed:
            return self._processes[name]

    def close(self) -> None:
        """End all pods and the server."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._kubelet.join()
        self._listener.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- the kubelet ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._closed.wait(_TURN_S):
            for pod in self.pods():
                self._look_after(pod)
        for process in self._processes.values():
            process.remove()

    def _look_after(self, pod: Manifest) -> None:
        name = pod["metadata"]["name"]
        process = self._processes.get(name)
        if process is None:
            self._try_to_start(pod)
            return
        code = process.wait(0)
        if code is not None and pod["status"]["phase"] == "Running":
            self._set_status(pod, _ended(pod["status"], code))
        if name in self._doomed:
            self._end(name, process, has_ended=code is not None)

    def _try_to_start(self, pod: Manifest) -> None:
        name = pod["metadata"]["name"]
        if name in self._doomed:
            self._remove(name)
        elif (pending := self.why_pending(pod)) is not None:
            if pod["status"] != {"phase": "Pending", **pending}:
                self._set_status(pod, {"phase": "Pending", **pending})
        else:
            number = next(self._numbers)
            ip = f"127.1.0.{number}"
            maps = {found["metadata"]["name"]: found.get("data", {}) for found in self.objects("configmaps")}
            process = PodProcess(pod, ip, self._folder / str(number), maps, self._image)
            with self._changed:
                self._processes[name] = process
            self._set_status(pod, _running(ip))

    def _end(self, name: str, process: PodProcess, *, has_ended: bool) -> None:
        since = self._doomed[name]
        if not since:
            pod = self._objects["pods", name]
            self._put("MODIFIED", "pods", {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": _now()}})
            process.terminate()
            self._doomed[name] = time.monotonic()
        elif has_ended or time.monotonic() > since + _GRACE_S:
            process.remove()
            self._remove(name)

    # ---- the API server ---------------------------------------------------------------------------------------------

    def _set_status(self, pod: Manifest, status: Manifest) -> None:
        self._put("MODIFIED", "pods", {**pod, "status": status})

    def _put(self, event: str, resource: str, found: Manifest) -> Manifest:
        with self._changed:
            version = next(self._version)
            stored = {**found, "metadata": {**found["metadata"], "resourceVersion": str(version)}}
            self._objects[resource, stored["metadata"]["name"]] = stored
            self._tell(event, resource, stored)
        return stored

    def _remove(self, name: str) -> None:
        with self._changed:
            pod = self._objects.pop(("pods", name))
            self._tell("DELETED", "pods", pod)

    def _tell(self, event: str, resource: str, found: Manifest) -> None:
        if resource == "pods":
            self._events.append((event, found))
            self._changed.notify_all()

    def create(self, resource: str, namespace: str, found: Manifest) -> Manifest:
        """Store what was posted."""
        kind = KINDS.get(resource, resource)
        metadata = {
            **found["metadata"],
            "namespace": namespace,
            "uid": str(next(self._numbers)),
            "creationTimestamp": _now(),
        }
        made = {"apiVersion": "v1", "kind": kind, **found, "metadata": metadata}
        if resource == "pods":
            if _is_executor(made):
                self.posted.append(made)
            made["status"] = {"phase": "Pending"}
        return self._put("ADDED", resource, made)

    def delete(self, resource: str, name: str) -> bool:
        """Remove an object; a pod goes when its process has."""
        with self._changed:
            if (resource, name) not in self._objects:
                return False
            if resource == "pods":
                self._doomed.setdefault(name, 0.0)
            else:
                del self._objects[resource, name]
        return True

    def found(self, resource: str, name: str) -> Manifest | None:
        with self._changed:
            return self._objects.get((resource, name))

    def patch(self, resource: str, name: str, change: Manifest) -> Manifest | None:
        """Merge labels and annotations into an object."""
        found = self.found(resource, name)
        if found is None:
            return None
        metadata = {**found["metadata"]}
        for field in ("labels", "annotations"):
            metadata[field] = {**metadata.get(field, {}), **change.get("metadata", {}).get(field, {})}
        return self._put("MODIFIED", resource, {**found, "metadata": metadata})

    def changes(self) -> Iterator[Manifest]:
        """Yield what happens to pods from now on, until the server closes."""
        with self._changed:
            seen = len(self._events)
        while not self._closed.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._closed.is_set() or len(self._events) > seen)  # noqa: B023
                news, seen = self._events[seen:], len(self._events)
            yield from ({"type": event, "object": pod} for event, pod in news)


@contextmanager
def running_kube(image: Mapping[str, str]) -> Iterator[Kube]:
    """Run a stand-in; all its pods end with the block."""
    kube = Kube(image)
    try:
        yield kube
    finally:
        kube.close()


def _is_executor(pod: Manifest) -> bool:
    return pod["metadata"].get("labels", {}).get("spark-role") == "executor"


def executor_of(pod: Manifest) -> str:
    """Return the identifier of a pod's executor."""
    return str(pod["metadata"]["labels"]["spark-exec-id"])


def unschedulable(message: str) -> Manifest:
    """Return the status of a pod for which the scheduler finds no node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [condition]}


def _running(ip: str) -> Manifest:
    container = {**_container({"running": {"startedAt": _now()}}), "ready": True}
    return {"phase": "Running", "podIP": ip, "startTime": _now(), "containerStatuses": [container]}


def _ended(status: Manifest, code: int) -> Manifest:
    reason = {0: "Completed", 137: "OOMKilled"}.get(code, "Error")
    container = _container({"terminated": {"exitCode": code, "reason": reason, "finishedAt": _now()}})
    return {**status, "phase": "Failed" if code else "Succeeded", "containerStatuses": [container]}


def _container(state: Manifest) -> Manifest:
    return {
        "name": "spark-kubernetes-executor",
        "image": "",
        "imageID": "",
        "restartCount": 0,
        "ready": False,
        "state": state,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
