"""The agent's reports join the child's figures with those of its process, and know when it last gave a sign."""

from __future__ import annotations

import os
import time

from tfos_lab import messages as m
from tfos_lab.node.activity import reporter
from tfos_lab.node.activity.reporter import ActivityReporter


def sent_by(*messages, monkeypatch, **options):
    """Return what a reporter sends after it has taken each of these messages."""
    monkeypatch.setattr(reporter, "PERIOD_S", 0.0)
    sent = []
    with_gpus = ActivityReporter(3, sent.append, group=False, **options)
    for message in messages:
        with_gpus.take(message)
        with_gpus.tick()
    with_gpus.close()
    return sent


RUNNING = m.Progressed(rank=3, state="running", pid=os.getpid())


def test_nothing_is_sent_before_the_function_runs(monkeypatch):
    assert sent_by(m.Progressed(rank=3, state="importing"), monkeypatch=monkeypatch) == []


def test_the_child_s_figures_and_the_agent_s_go_together(monkeypatch):
    child = m.Activity(3, step=41, step_s=0.1, computes=0.75, python=0.25)
    began, last = sent_by(RUNNING, child, monkeypatch=monkeypatch)
    assert (began.last_sign, began.step) == ("began", None)
    assert (last.rank, last.step, last.computes, last.last_sign) == (3, 41, 0.75, "step 41")
    assert last.memory_bytes > 0
    assert last.idle_s < 60
    assert (last.gpu, last.gpu_memory_bytes) == (None, None)


def test_rows_reports_and_output_are_signs_too(monkeypatch):
    rows = m.RowsTaken(rank=3, rows=7, epoch=0)
    report = m.Reported(rank=3, step=None, total_steps=None, metrics={}, time_s=0.0)
    signs = [message.last_sign for message in sent_by(RUNNING, rows, report, rows, monkeypatch=monkeypatch)]
    assert signs == ["began", "took rows", "reported", "reported"]
    printed = sent_by(RUNNING, monkeypatch=monkeypatch, output_at=lambda: time.monotonic() + 1)
    assert printed[0].last_sign == "printed"


def test_a_step_that_stays_the_same_is_no_sign(monkeypatch):
    same = m.Activity(3, step=4)
    *_, before, after = sent_by(RUNNING, same, same, monkeypatch=monkeypatch)
    assert before.last_sign == after.last_sign == "step 4"
    assert after.idle_s > before.idle_s


def test_a_gpu_without_its_library_is_not_known(monkeypatch):
    (began,) = sent_by(RUNNING, monkeypatch=monkeypatch, gpus=["no such GPU"])
    assert began.gpu is None


def test_a_step_is_told_whether_its_rows_are_heard_of_before_it_or_after(monkeypatch):
    rows, step = m.RowsTaken(rank=3, rows=7, epoch=0), m.Activity(rank=3, step=1)
    for order in ([rows, step], [step, rows]):
        assert sent_by(RUNNING, *order, monkeypatch=monkeypatch)[-1].last_sign == "step 1"
