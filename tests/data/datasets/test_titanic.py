"""Where the Titanic data are looked for, and the error when they do not exist."""

from __future__ import annotations

import re

import pytest

from tfos_lab.data import titanic
from tfos_lab.errors import ConfigError

TRAIN = "PassengerId,Survived,Name,Age,Cabin\n1,0,Ann,30,\n2,1,Bob,,C85\n"
TEST = "PassengerId,Name,Age,Cabin\n3,Eve,20.5,\n"


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.delenv("TFOS_LAB_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def put(folder, train=TRAIN, test=TEST):
    folder.mkdir(parents=True)
    (folder / "train.csv").write_text(train)
    (folder / "test.csv").write_text(test)


def test_the_folder_comes_before_the_cache(places, monkeypatch):
    put(places / "cache/tfos_lab/titanic")
    assert repr(titanic()).startswith("<2 training and 1 test rows: the Titanic's passengers, from ")
    put(places / "mine/titanic", train=TRAIN + "4,1,Zoe,4,\n")
    monkeypatch.setenv("TFOS_LAB_DATA", str(places / "mine"))
    passengers = titanic()
    assert len(passengers.train) == 3
    assert passengers.source.endswith(str(places / "mine/titanic"))
    assert "Survived" not in passengers.test


def test_without_the_files_the_error_names_the_folders_for_them(places, monkeypatch):
    with pytest.raises(
        ConfigError, match=f"no Titanic data in {re.escape(str(places))}/cache.*put train.csv and test.csv"
    ):
        titanic()
    monkeypatch.setenv("TFOS_LAB_DATA", str(places / "mine"))
    with pytest.raises(ConfigError, match=r"mine/titanic or .*cache/tfos_lab/titanic"):
        titanic()


def test_a_damaged_file_is_reported(places):
    put(places / "cache/tfos_lab/titanic", train="")
    with pytest.raises(ConfigError, match=r"cannot read the Titanic data in .*titanic: No columns"):
        titanic()


def test_made_up_passengers_stand_in_where_they_are_asked_for_and_there_are_no_files(places):
    passengers = titanic(stand_in=True)
    assert repr(passengers).startswith("<891 training and 418 test rows: made-up passengers, as there are no Titanic")
    assert passengers.train.equals(titanic(stand_in=True).train), "they are the same each time"
    assert list(passengers.test) == [name for name in passengers.train if name != "Survived"]
    rates = passengers.train.groupby("Sex").Survived.mean()
    assert rates["female"] > 0.6
    assert rates["male"] < 0.3
    assert 0.1 < passengers.train.Age.isna().mean() < 0.3
    put(places / "cache/tfos_lab/titanic")
    assert len(titanic(stand_in=True).train) == 2, "the real ones come first"


@pytest.mark.spark
def test_gaps_become_nulls_of_the_right_type(places, spark):
    put(places / "cache/tfos_lab/titanic")
    passengers = titanic()
    df = passengers.train_df(spark)
    assert dict(df.dtypes) == {
        "PassengerId": "bigint",
        "Survived": "bigint",
        "Name": "string",
        "Age": "double",
        "Cabin": "string",
    }
    assert [tuple(row) for row in df.collect()] == [(1, 0, "Ann", 30.0, None), (2, 1, "Bob", None, "C85")]
    assert passengers.test_df(partitions=1).count() == 1
