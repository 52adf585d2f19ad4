"""The reason that is given for an executor that Spark has removed."""

from __future__ import annotations

from tfos_lab.engine.spark.executor_watch import removal_text

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
