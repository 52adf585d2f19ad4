"""The format of ``run.json``: written and read, now and by later versions."""

from __future__ import annotations

import json

import pytest

from tfos_lab.engine.record.format import (
    VERSION,
    MetricsRecord,
    NodeRecord,
    ProcessRecord,
    RunRecord,
    decode,
    encode,
)
from tfos_lab.engine.state.activity import NodeActivity

RECORD = RunRecord(
    id="mnist-1",
    name="mnist",
    launcher="local",
    started_s=1.0,
    written_s=2.0,
    process=ProcessRecord(host="here", pid=1, born="then"),
    options={"cluster_size": 2},
    versions={"python": "3.11", "tensorflow": None},
    state="running",
    nodes=(NodeRecord(node="chief:0", state="running", activity=NodeActivity(step=41, step_s=0.5, computes=0.9)),),
    verdict="compute bound: 90 % of a step",
    progress=0.5,
    metrics=(MetricsRecord(time_s=0.5, node="chief:0", step=1, metrics={"loss": None}),),
)


def test_what_is_written_can_be_read():
    assert decode(encode(RECORD)) == RECORD


def test_it_is_json_that_people_can_read():
    text = encode(RECORD).decode()
    assert json.loads(text)["version"] == VERSION
    assert '\n "name": "mnist",\n' in text


def test_fields_that_a_later_minor_version_adds_are_ignored():
    fields = json.loads(encode(RECORD))
    assert decode(json.dumps({**fields, "colour": "red"}).encode()) == RECORD


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"[]"])
def test_a_damaged_file_is_a_value_error(data):
    with pytest.raises(ValueError):  # noqa: PT011 - the text is the decoder's own
        decode(data)


def test_a_later_version_is_refused():
    fields = json.loads(encode(RECORD))
    with pytest.raises(ValueError, match="is of version 2; this tfos_lab reads versions up to 1"):
        decode(json.dumps({**fields, "version": 2}).encode())
