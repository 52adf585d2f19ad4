"""Makes of a classifier's output what Spark ML's classifiers return: a vector of probabilities, and the best class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.scoring.output_types import Output

# The column with a classifier's output until it is a vector.
CLASS_SCORES = "tfos_lab_class_scores"


def add_classes(scored: DataFrame, output: Output, probability: str, prediction: str) -> DataFrame:
    """Return the columns of a DataFrame with probabilities and classes instead of a classifier's output.

    Parameters
    ----------
    scored : pyspark.sql.DataFrame
        With the output as the column `CLASS_SCORES`.
    output : Output
        It: a probability for each class, or one value, that of the second of two classes.
    probability, prediction : str
        Names of the new columns: a vector of spark.ml, and a double, the number of the most probable class.

    Raises
    ------
    ConfigError
        If the output is not of floating-point numbers.
    """
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    if output.leaf != "double":
        raise ConfigError([f"probabilityCol='{probability}': the output '{output.name}' is {output.leaf}, no numbers"])
    scores = F.col(CLASS_SCORES)
    if not output.is_array:
        scores = F.array(F.lit(1.0) - scores, scores)
    best = (F.array_position(scores, F.array_max(scores)) - 1).cast("double")
    return scored.select("*", array_to_vector(scores).alias(probability), best.alias(prediction)).drop(CLASS_SCORES)
