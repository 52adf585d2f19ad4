"""`tfos_lab.runs`: one row for each run."""

from __future__ import annotations

import pandas as pd

import tfos_lab
from tests.support.recorded_runs import curve, failure, write_run, write_some


def test_every_run_is_a_row(tmp_path):
    write_some(tmp_path)
    table = tfos_lab.runs(tmp_path)
    assert isinstance(table, pd.DataFrame)
    assert len(table) == 8
    assert table.index.name == "id"
    assert table.loc["mnist-20260102-120000-2a3b", "pinned"]
    assert set(table["outcome"]) == {"done", "failed", "lost", "running"}
    assert len(table.attrs["unreadable"]) == 2


def test_columns_have_types_and_can_be_sorted(tmp_path):
    write_run(tmp_path, "a-1", reports=curve(0.1, 5), ago_s=10)
    write_run(tmp_path, "b-1", reports=curve(2.0, 50), ago_s=20)
    write_run(tmp_path, "c-1", reports=[], ago_s=30, **failure())
    table = tfos_lab.runs(tmp_path)
    assert list(table.sort_values("metrics.loss")["name"]) == ["b", "a", "c"]
    assert table["metrics.loss"].isna().tolist() == [False, False, True]
    assert table["when"].dt.tz is not None
    assert (table["when"] > "2026-01-01").all()
    assert table.loc["c-1", "error"] == "worker:0: ValueError: no such label: 11"
    assert table.loc["a-1", "files"] == ["model.keras"]
    assert table.loc["a-1", "options"]["cluster_size"] == 2


def test_without_runs_the_columns_are_there(tmp_path):
    table = tfos_lab.runs(tmp_path)
    assert table.empty
    expected = {"name", "when", "outcome", "seconds", "rows", "options", "metrics", "phases", "code", "files", "error"}
    assert expected <= set(table.columns)


def test_nothing_heavy_is_needed_for_it(tmp_path):
    write_run(tmp_path)
    run = tfos_lab.run_record("mnist", tmp_path)
    assert repr(run) == "<Run 'mnist-20260101-120000-1f2e': done>"
