"""What the driver plans: which task reads which files."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from tfos_lab.data.tfrecords.encode import encode
from tfos_lab.data.tfrecords.framing import frame
from tfos_lab.data.tfrecords.reading import infer_schema, plan_read
from tfos_lab.errors import ConfigError


def test_small_files_share_a_task_and_large_ones_have_one_each(tmp_path):
    for name, megabytes in {"a": 1, "b": 2, "c": 9, "d": 5, "e": 3}.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(megabytes << 20)
    groups = plan_read({"path": str(tmp_path)}, StructType([StructField("id", LongType())]))
    assert ["".join(plain[-1] for _, plain, _ in group) for group in groups] == ["ab", "c", "d", "e"]


def test_records_without_values_are_distinguished_from_no_records(tmp_path):
    nothing = pa.RecordBatch.from_pydict({"a": pa.nulls(3, pa.int64())})
    (tmp_path / "a").write_bytes(frame(encode(nothing)))
    with pytest.raises(ConfigError, match="their records hold no values to infer a schema from; give one"):
        infer_schema({"path": str(tmp_path)})
