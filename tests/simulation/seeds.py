"""Runs the plans of seeds, and looks for the least that fails like one of them."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Iterable

from tests.simulation.invariants import problems
from tests.simulation.plan import Plan
from tests.simulation.run import Run


def outcome_of(plan: Plan) -> tuple[str, list[str]]:
    """Return the state in which a run of a plan ends, and what does not hold for it."""
    try:
        run = Run(plan).live()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "error", [f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"]
    return "no kernel" if run.kernel.is_gone else str(run.head.state.state), problems(run)


def failing(seeds: Iterable[int]) -> tuple[Counter[str], list[tuple[int, str]]]:
    """Return how the runs of some seeds have ended, and which of them do not hold, with the first reason."""
    logging.disable(logging.CRITICAL)  # warnings of the driver are what faults are to bring about
    states: Counter[str] = Counter()
    failed = []
    try:
        for seed in seeds:
            state, wrong = outcome_of(Plan.drawn(seed))
            states[state] += 1
            if wrong:
                failed.append((seed, wrong[0]))
    finally:
        logging.disable(logging.NOTSET)
    return states, failed


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
