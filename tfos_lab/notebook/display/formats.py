"""Numbers as people read them: counts, rates, sizes and metrics."""

from __future__ import annotations

import math

from tfos_lab.driver.metrics import by_weight


def format_rate(per_s: float) -> str:
    """Return a rate with three significant digits, as a whole number from 100 on."""
    if per_s >= 100:
        digits = max(0, len(str(int(per_s))) - 3)
        return f"{round(per_s, -digits):,.0f}"
    return f"{per_s:.3g}"


def format_bytes(count: float) -> str:
    """Return a size, such as ``812 B`` or ``14.6 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.3g} {unit}"


def format_metric(value: float) -> str:
    """Return a metric with four significant digits; or ``nan`` and ``inf``."""
    if not math.isfinite(value):
        return str(value)
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def format_metrics(metrics: dict[str, float], at_most: int = 3) -> str:
    """Return the metrics that fit in a line, the loss first."""
    return " · ".join(f"{name} {format_metric(metrics[name])}" for name in by_weight(metrics)[:at_most])
