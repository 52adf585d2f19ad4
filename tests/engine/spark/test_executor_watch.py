"""What is said of an executor that Spark has removed."""

from __future__ import annotations

from tfos_lab.engine.spark.executor_watch import removal_text

KILLED = "Executor killed by driver."


def test_an_executor_that_spark_took_for_idle_is_told_with_the_setting_that_did_it():
    words = removal_text(KILLED, "30s")
    assert words.startswith("Spark took its executor back (Executor killed by driver)")
    assert "spark.dynamicAllocation.cachedExecutorIdleTimeout=30s" in words


def test_without_that_setting_no_cause_is_made_up():
    assert removal_text(KILLED, "") == "Spark took its executor back (Executor killed by driver)"


def test_any_other_end_is_told_in_spark_s_own_words():
    assert removal_text("Command exited with code 137", "30s") == (
        "Spark has lost its executor: Command exited with code 137"
    )
