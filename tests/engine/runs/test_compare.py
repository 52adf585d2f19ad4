"""What two runs have in common, and where they differ."""

from __future__ import annotations

import msgspec

from tests.support.recorded_runs import CODE, NODES, curve, make_record, write_some
from tfos_lab.engine.record.format import CodeRecord, MetricsRecord
from tfos_lab.engine.runs.compare import code_diff, differences, last_metrics, leading_reports, phase_seconds
from tfos_lab.engine.runs.find import find_run
from tfos_lab.engine.runs.run import Run


def run_of(tmp_path, name="mnist-1", **fields):
    return Run(make_record(name, 0.0, fields.pop("reports", curve(1.0, 3)), **fields), tmp_path)


def test_inputs_options_and_versions_that_differ_are_told(tmp_path):
    first = run_of(tmp_path)
    second = run_of(
        tmp_path,
        inputs={"args.lr": 0.1, "DEPTH": 3},
        options={**first.options, "restarts": 2, "name": "other"},
        versions={**first.record.versions, "tensorflow": "2.22.0"},
        verdict="compute bound",
    )
    assert {one.name: one.texts for one in differences([first, second])} == {
        "args.lr": ("0.01", "0.1"),
        "BATCH": ("64", ""),
        "DEPTH": ("", "3"),
        "restarts": ("0", "2"),
        "verdict": ("", "compute bound"),
        "tensorflow": ("2.21.0", "2.22.0"),
    }
    assert differences([first, first]) == []


def test_the_number_of_nodes_is_told_once(tmp_path):
    first = run_of(tmp_path)
    second = run_of(tmp_path, nodes=first.record.nodes[:1], options={**first.options, "cluster_size": 1})
    assert [one.name for one in differences([first, second])] == ["cluster_size"]


def test_last_metrics_and_phases_are_aligned(tmp_path):
    write_some(tmp_path)
    runs = [find_run(name, tmp_path) for name in ("1f2e", "7e8f.0")]
    assert last_metrics(runs)["loss"][1] is None
    assert list(last_metrics(runs)) == ["loss", "accuracy"]
    assert phase_seconds(runs)["launch"] == [0.1, 0.1]


def test_a_curve_is_that_of_the_first_node_which_has_the_metric(tmp_path):
    reports = [
        MetricsRecord(time_s=1, node="worker:0", step=1, metrics={"loss": 9.0, "val_loss": 2.0}),
        MetricsRecord(time_s=2, node="chief:0", step=1, metrics={"loss": 1.0}),
    ]
    leading = leading_reports(run_of(tmp_path, metrics=tuple(reports)))
    assert [(one.node, one.metrics) for one in leading] == [("worker:0", {"val_loss": 2.0}), ("chief:0", {"loss": 1.0})]
    assert NODES[0] == "chief:0"


def test_code_is_compared_by_lines(tmp_path):
    first = run_of(tmp_path)
    code = msgspec.structs.replace(first.record.code, source=CODE.replace("64", "128"))
    assert code_diff(first, first) == []
    lines = code_diff(first, run_of(tmp_path, "mnist-2", code=code))
    assert [line for line in lines[2:] if line[0] in "+-"] == [
        "-model.fit(ctx.dataset(64, label='label'), callbacks=ctx.callbacks())",
        "+model.fit(ctx.dataset(128, label='label'), callbacks=ctx.callbacks())",
    ]
    long = CodeRecord(name="f", file="f.py", line=1, source="\n".join(map(str, range(1000))))
    assert code_diff(first, run_of(tmp_path, code=long))[-1].endswith("more lines")
