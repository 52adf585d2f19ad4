"""The reason that is given for an executor that Spark has removed."""

from __future__ import annotations

import pytest

from tfos_lab.engine.spark.executor_watch import loss_reason, removal_text

KILLED = "Executor killed by driver."


def test_the_reason_for_an_idle_executor_names_the_setting():
    text = removal_text(KILLED, "30s")
    assert text.startswith("Spark took its executor back (Executor killed by driver)")
    assert "spark.dynamicAllocation.cachedExecutorIdleTimeout=30s" in text


def test_without_dynamic_allocation_the_setting_is_not_mentioned():
    assert removal_text(KILLED, "") == "Spark took its executor back (Executor killed by driver)"


def test_any_other_reason_is_given_as_spark_gives_it():
    assert removal_text("Command exited with code 137", "30s") == (
        "Spark has lost its executor: Command exited with code 137"
    )


# As Spark writes it for a pod.
OF_A_POD = """
The executor with id 2 exited with exit code 137(SIGKILL, possible container OOM).

The API gave the following container statuses:

\t container name: spark-kubernetes-executor
\t exit code: 137
\t termination reason: REASON
      """
OUT_OF_MEMORY = "The executor with id 2 exited with exit code 137 (SIGKILL, possible container OOM)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OF_A_POD.replace("REASON", "OOMKilled"), f"{OUT_OF_MEMORY}; its container: OOMKilled"),
        (OF_A_POD.replace("REASON", "Error"), OUT_OF_MEMORY),
        (OF_A_POD.replace("REASON", "N/A"), OUT_OF_MEMORY),
        (" Command exited with code 137. ", "Command exited with code 137"),
    ],
    ids=["pod out of memory", "pod that failed", "pod", "standalone"],
)
def test_what_spark_says_of_a_lost_executor_fits_a_line(text, expected):
    assert loss_reason(text) == expected


def test_a_pod_that_was_lost_is_told_in_a_line():
    assert removal_text(OF_A_POD, "") == f"Spark has lost its executor: {OUT_OF_MEMORY}; its container: REASON"
