"""The passengers of the Titanic: a small table with gaps, names and categories, as tutorials use it.

It is not downloaded, as its usual site asks for a login. `titanic` reads it from the user's folders, and says where to
put it, or makes passengers up if that is asked for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
        the same kind. ``source`` says so.

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

    folders = _folders()
    folder = next((path for path in folders if (path / "train.csv").is_file() and (path / "test.csv").is_file()), None)
    asked = " or ".join(str(path) for path in folders)
    if folder is None and stand_in:
        from tfos_lab.data.datasets.titanic_stand_in import make_passengers

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


def _folders() -> list[Path]:
    root = os.environ.get("TFOS_LAB_DATA")
    cache = os.environ.get("XDG_CACHE_HOME")
    parents = [Path(root).expanduser()] if root else []
    parents.append((Path(cache) if cache else Path.home() / ".cache") / "tfos_lab")
    return [parent / "titanic" for parent in parents]


def _dataframe(frame: pd.DataFrame, spark: SparkSession | None, partitions: int | None) -> DataFrame:
    import pyarrow as pa

    # Through Arrow, NaN and None both become nulls; from pandas directly, Spark would keep NaN as a value.
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    return to_dataframe(table, spark, partitions)
