"""What is said of executors' pods that do not run yet."""

from __future__ import annotations

import pytest

from tfos_lab.engine.spark.pods import PendingPod, describe_pending, why_pending

NO_NODE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu"


def scheduled(status, message=""):
    return {"type": "PodScheduled", "status": status, "message": message}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"conditions": [scheduled("False", f"{NO_NODE}.")]}, NO_NODE),
        ({"conditions": [scheduled("True")]}, ""),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no\n such image"}}}]},
            "ErrImagePull: no such image",
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, "ContainerCreating"),
        (
            {
                "initContainerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
                "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}],
            },
            "CrashLoopBackOff",
        ),
        ({"reason": "SchedulingGated", "message": "a gate is closed"}, "SchedulingGated: a gate is closed"),
        ({}, ""),
    ],
    ids=["no host", "scheduled", "no image", "being made", "first container", "gate", "new"],
)
def test_kubernetes_says_why_a_pod_is_pending(status, why):
    assert why_pending(status) == why


def test_pods_that_wait_for_the_same_are_told_together():
    pods = [PendingPod(f"exec-{number}", NO_NODE) for number in range(1, 6)]
    assert describe_pending(pods) == f"5 executor pods are pending: exec-1, exec-2, exec-3 and 2 more ({NO_NODE})"
    two = describe_pending([PendingPod("exec-1", "no image"), PendingPod("exec-2", "no room")])
    assert two == "2 executor pods are pending: exec-1 (no image); exec-2 (no room)"


def test_executors_that_have_no_pod_at_all_are_told():
    reason = "a quota, or rights of the driver's service account"
    text = f"which the API server may have refused ({reason}): Spark's log says so"
    assert describe_pending([], 2) == f"2 more executors have no pod yet, {text}"
    assert describe_pending([PendingPod("exec-1", "no room")], 1) == (
        f"1 executor pod is pending: exec-1 (no room); 1 more executor has no pod yet, {text}"
    )
    assert describe_pending([]) == describe_pending([], -1) == ""
