"""The rows of a script: files and tables are read by Spark, anything else is left as it is."""

from __future__ import annotations

import pytest

from tfos_lab.engine.script.rows import open_rows
from tfos_lab.errors import ConfigError, NoSession


def test_what_names_no_files_is_left_as_it_is():
    rows = object()
    assert open_rows(rows) is rows
    assert open_rows(None) is None


def test_files_need_a_session():
    with pytest.raises(NoSession, match=r"data='rows\.parquet' is read by Spark, but there is no SparkSession"):
        open_rows("rows.parquet")


def test_files_of_each_format_and_tables_are_read(spark, tmp_path):
    rows = spark.range(4)
    rows.write.parquet(str(tmp_path / "p"))
    rows.write.parquet(str(tmp_path / "one.parquet"))
    rows.write.json(str(tmp_path / "j.json"))
    rows.write.option("header", True).csv(str(tmp_path / "c.csv"))
    rows.createOrReplaceTempView("some_rows")
    for name in ("p", "one.parquet", "j.json", "c.csv", "one.parquet/part-*.parquet"):
        assert {row.id for row in open_rows(str(tmp_path / name), spark).collect()} == {0, 1, 2, 3}
    assert open_rows([tmp_path / "p", tmp_path / "one.parquet"], spark).count() == 8
    assert open_rows("some_rows", spark).count() == 4
    with pytest.raises(ConfigError, match=r"data='.*nothing' cannot be read: .*(not exist|NOT_FOUND)"):
        open_rows(str(tmp_path / "nothing"), spark)
    with pytest.raises(ConfigError, match="data='no_such_table' cannot be read"):
        open_rows("no_such_table", spark)
