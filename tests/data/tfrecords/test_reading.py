"""What the driver plans: which task reads which files."""

from __future__ import annotations

from pyspark.sql.types import LongType, StructField, StructType

from tfos_lab.data.tfrecords.reading import plan_read


def test_small_files_share_a_task_and_large_ones_have_one_each(tmp_path):
    for name, megabytes in {"a": 1, "b": 2, "c": 9, "d": 5, "e": 3}.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(megabytes << 20)
    groups = plan_read({"path": str(tmp_path)}, StructType([StructField("id", LongType())]))
    assert ["".join(plain[-1] for _, plain, _ in group) for group in groups] == ["ab", "c", "d", "e"]
