"""Trials in this very process: the driver judges each report as it is made, and ends the function where it is cut."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tfos_lab.engine.parallel.tries import InlineCut
from tfos_lab.engine.state.events import MetricsReported
from tfos_lab.node.invoke import call_map_fun


def judged(map_fun: Callable[..., Any], judge: Callable[[MetricsReported], bool]) -> Callable[[Any, Any], Any]:
    """Return the function with a ``ctx.report`` that ends it once ``judge`` says that the trial is cut."""

    def run(args: Any, ctx: Any) -> Any:
        send = ctx.report
        steps = 0

        def report(step: int | None = None, *, total_steps: int | None = None, **metrics: float) -> None:
            nonlocal steps
            steps = int(step) if step is not None else steps + 1
            numbers = {name: float(value) for name, value in metrics.items()}
            send(steps, total_steps=total_steps, **numbers)
            if judge(MetricsReported(
                time_s=time.time(), node="", step=steps, total_steps=total_steps, metrics=numbers
            )):  # fmt: skip
                raise InlineCut

        ctx.report = report
        return call_map_fun(map_fun, args, ctx)

    run.__tfos_implicit__ = getattr(map_fun, "__tfos_implicit__", False)  # type: ignore[attr-defined]
    return run
