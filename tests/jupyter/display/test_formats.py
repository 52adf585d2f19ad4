"""Numbers as people read them."""

from __future__ import annotations

import pytest

from tfos_lab.jupyter.display.formats import format_metric, format_metrics, format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.00 s"), (0.123, "0.12 s"), (9.996, "10.0 s"), (59.96, "1:00"), (245, "4:05"), (3723, "1:02:03")],
)
def test_durations_are_easy_to_read(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.123456, "0.1235"),
        (2.0, "2"),
        (1234.5, "1,234"),
        (1e-7, "1.000e-07"),
        (2.5e9, "2.500e+09"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_metrics_have_four_digits(value: float, text: str) -> None:
    assert format_metric(value) == text


def test_the_loss_comes_first_and_validation_last() -> None:
    metrics = {"val_loss": 2.0, "accuracy": 0.5, "loss": 1.0, "lr": 0.1}
    assert format_metrics(metrics) == "loss 1 · accuracy 0.5 · lr 0.1"
    assert format_metrics(metrics, at_most=9).endswith("val_loss 2")
