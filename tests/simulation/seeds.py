"""Runs the plans of seeds, and looks for the least that fails like one of them."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Iterable

from tests.simulation.invariants import problems
from tests.simulation.plan import Plan
from tests.simulation.run import Run


def outcome_of(plan: Plan) -> tuple[list[str], list[str]]:
    """Return the state in which a run of a plan ends, with the kinds of its faults; and what does not hold for it."""
    try:
        run = Run(plan).live()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        return ["error"], [f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"]
    state = "no kernel" if run.kernel.is_gone else str(run.head.state.state)
    return [state, *(one.kind for one in run.done)], problems(run)


def failing(seeds: Iterable[int]) -> tuple[Counter[str], list[tuple[int, str]]]:
    """Return how many runs of some seeds have ended how, and met which fault; and which do not hold, and why not."""
    logging.disable(logging.CRITICAL)  # warnings of the driver are what faults are to bring about
    met: Counter[str] = Counter()
    failed = []
    try:
        for seed in seeds:
            outcome, wrong = outcome_of(Plan.drawn(seed))
            met.update(outcome)
            if wrong:
                failed.append((seed, wrong[0]))
    finally:
        logging.disable(logging.NOTSET)
    return met, failed


def least(plan: Plan) -> Plan:
    """Return a plan with as little in it as fails like this one."""
    kind = kind_of(outcome_of(plan)[1][0])
    while True:
        for simpler in plan.simpler():
            wrong = outcome_of(simpler)[1]
            if wrong and kind_of(wrong[0]) == kind:
                plan = simpler
                break
        else:
            return plan


def kind_of(text: str) -> str:
    """Return what failures have in common: the words that are no names or numbers."""
    return " ".join(word for word in text.split()[:12] if word.isalpha())
