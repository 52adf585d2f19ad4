"""The passengers of the Titanic: a small table with gaps, names and categories, as tutorials use it.

It is not downloaded, as its usual site asks for a login. `titanic` reads it from the user's folders, and makes up
passengers if that is asked for; its error explains where to put the files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tfos_lab.data.frames import to_dataframe
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, eq=False, repr=False)
class TableData:
    """Two tables, for training and testing, and where they come from.

    Parameters
    ----------
    train, test : pandas.DataFrame
        The rows; the test rows may lack the column to predict.
    source : str
        A description of where they come from.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    source: str

    def __repr__(self) -> str:
        return f"<{len(self.train):,} training and {len(self.test):,} test rows: {self.source}>"

    def train_df(self, spark: SparkSession | None = None, partitions: int | None = None) -> DataFrame:
        """Make a Spark DataFrame of the training rows; gaps are nulls.

        Parameters
        ----------
        spark : pyspark.sql.SparkSession, optional
            Classic or Spark Connect; the active session by default.
        partitions : int, optional
            Number of partitions to spread the rows over evenly; by default Spark decides.
        """
        return _dataframe(self.train, spark, partitions)

    def test_df(self, spark: SparkSession | None = None, partitions: int | None = None) -> DataFrame:
        """Make a Spark DataFrame of the test rows; see `train_df`."""
        return _dataframe(self.test, spark, partitions)


def titanic(*, stand_in: bool = False) -> TableData:
    """Load the Titanic's passengers as Kaggle's competition has them: ``Survived`` is in the training rows only.

    Tries the folder ``titanic`` in the one that the environment variable ``TFOS_LAB_DATA`` names, and in
    ``~/.cache/tfos_lab`` (``$XDG_CACHE_HOME/tfos_lab``).

    Parameters
    ----------
    stand_in : bool
        Whether made-up passengers do where there are no files: the same columns and gaps, and survival by odds of
        the same kind. ``source`` shows it.

    Returns
    -------
    TableData
        pandas frames ``train`` (891 rows) and ``test`` (418 rows), and DataFrames by ``train_df()`` and ``test_df()``.

    Raises
    ------
    ConfigError
        If the files are in neither folder, or cannot be read.
    """
    import pandas as pd

    root, cache = os.environ.get("TFOS_LAB_DATA"), os.environ.get("XDG_CACHE_HOME")
    parents = [Path(root).expanduser()] if root else []
    parents.append((Path(cache) if cache else Path.home() / ".cache") / "tfos_lab")
    folders = [parent / "titanic" for parent in parents]
    folder = next((path for path in folders if (path / "train.csv").is_file() and (path / "test.csv").is_file()), None)
    asked = " or ".join(str(path) for path in folders)
    if folder is None and stand_in:
        return TableData(*make_passengers(), source=f"made-up passengers, as there are no Titanic data in {asked}")
    if folder is None:
        problem = (
            f"no Titanic data in {asked}: put train.csv and test.csv (from kaggle.com/c/titanic/data) there, or into "
            "the folder titanic of the one that TFOS_LAB_DATA names; or use made-up passengers: titanic(stand_in=True)"
        )
        raise ConfigError([problem])
    try:
        train, test = pd.read_csv(folder / "train.csv"), pd.read_csv(folder / "test.csv")
    except (OSError, ValueError) as error:
        raise ConfigError([f"cannot read the Titanic data in {folder}: {error}"]) from error
    return TableData(train, test, source=f"the Titanic's passengers, from {folder}")


def _dataframe(frame: pd.DataFrame, spark: SparkSession | None, partitions: int | None) -> DataFrame:
    import pyarrow as pa

    # Through Arrow, NaN and None both become nulls; from pandas directly, Spark would keep NaN as a value.
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    return to_dataframe(table, spark, partitions)


# ---- made-up passengers ----------------------------------------------------------------------------------------------

# For machines that have no Titanic data: the same columns, gaps and rough proportions. Nobody of them existed. Who
# survives is drawn from odds by sex, class, age and family, as in the real table but clearer: there is the same kind of
# thing to learn, and nothing to be learned about the ship.

TRAIN_ROWS, TEST_ROWS = 891, 418
_SEED = 1912
_SURNAMES = (
    *("Abel", "Baker", "Carter", "Dixon", "Elliot", "Foster", "Gray", "Hughes"),
    *("Ives", "Jansen", "Keller", "Larsen", "Moreau", "Novak", "Olsen"),
)
# By class, from the first.
_SHARE = (0.24, 0.21, 0.55)
_WOMEN = (0.43, 0.41, 0.29)
_AGE = (38.0, 30.0, 25.0)
_LOG_FARE = (4.1, 2.9, 2.3)
_LOG_ODDS_WOMEN = (3.4, 2.6, -0.9)
_LOG_ODDS_MEN = (-0.9, -2.3, -2.4)
_LOG_ODDS_BOYS = (3.0, 3.0, 1.2)


def make_passengers() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return tables for training and testing, the same ones each time; the second lacks ``Survived``."""
    import pandas as pd

    random, count = np.random.default_rng(_SEED), TRAIN_ROWS + TEST_ROWS
    level = random.choice(3, count, p=_SHARE)
    female = random.random(count) < np.take(_WOMEN, level)
    age = np.clip(random.normal(np.take(_AGE, level), 14.0), 0.5, 80.0).round()
    married = (age > 20) & (random.random(count) < 0.6)
    men = np.where(age < 14, "Master", np.where(random.random(count) < 0.03, "Dr", "Mr"))
    title = np.where(female, np.where(married, "Mrs", "Miss"), men)
    siblings = random.poisson(np.where(age < 16, 1.6, 0.4))
    parents = random.poisson(np.where(age < 16, 1.2, 0.25))
    odds = np.where(female, np.take(_LOG_ODDS_WOMEN, level), np.take(_LOG_ODDS_MEN, level))
    odds = np.where(title == "Master", np.take(_LOG_ODDS_BOYS, level), odds) - 1.5 * (siblings + parents > 3)
    frame = pd.DataFrame(
        {
            "PassengerId": np.arange(1, count + 1),
            "Survived": (random.random(count) < 1 / (1 + np.exp(-odds))).astype(int),
            "Pclass": level + 1,
            "Name": [f"{random.choice(_SURNAMES)}, {one}. {chr(65 + place % 26)}." for place, one in enumerate(title)],
            "Sex": np.where(female, "female", "male"),
            "Age": np.where(random.random(count) < 0.2, np.nan, age),
            "SibSp": siblings,
            "Parch": parents,
            "Ticket": random.integers(1000, 400_000, count).astype(str),
            "Fare": np.exp(random.normal(np.take(_LOG_FARE, level), 0.5)).round(4),
            "Cabin": _cabins(random, level),
            "Embarked": random.choice(["S", "C", "Q"], count, p=(0.72, 0.19, 0.09)),
        }
    )
    return frame[:TRAIN_ROWS], frame[TRAIN_ROWS:].drop(columns="Survived").reset_index(drop=True)


def _cabins(random: np.random.Generator, level: np.ndarray) -> list[str | None]:
    known = random.random(len(level)) < np.take((0.8, 0.1, 0.02), level)
    decks = np.array(["C", "E", "F"])[level]
    return [
        f"{deck}{number}" if there else None
        for deck, number, there in zip(decks, random.integers(1, 130, len(level)), known, strict=True)
    ]
