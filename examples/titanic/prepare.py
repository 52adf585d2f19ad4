r"""Makes features of the Titanic's passengers with Spark, and writes them as TFRecord files.

    spark-submit --master spark://host:7077 examples/titanic/prepare.py --output titanic

It writes titanic/train in five shards, titanic/valid (every fifth passenger of the training table, for the accuracy)
and titanic/test (passengers whose fate the table does not tell). Without ``--data`` the table is that of
`tfos_lab.data.titanic`, which makes passengers up where there are no Titanic data; the program says so.
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import tfos_lab

SHARDS = 5
TITLES = ["Mr", "Mrs", "Miss", "Master"]


def read_tables(spark, folder):
    """Return the tables for training and testing: of the folder's CSV files, or those of `tfos_lab.data.titanic`."""
    if not folder:
        passengers = tfos_lab.data.titanic(stand_in=True)
        print(passengers)
        return passengers.train_df(spark), passengers.test_df(spark)
    read = spark.read.options(header=True, inferSchema=True, escape='"')
    return read.csv(f"{folder}/train.csv"), read.csv(f"{folder}/test.csv")


def add_features(rows, age, fare):
    """Return what the model sees of each passenger: texts, whole numbers and floats, without gaps."""
    title = sql.regexp_extract("Name", r",\s*([^.]+)\.", 1)
    return rows.select(
        sql.col("PassengerId").cast("bigint").alias("passenger_id"),
        *([sql.col("Survived").cast("float").alias("survived")] if "Survived" in rows.columns else []),
        sql.col("Sex").alias("sex"),
        sql.when(title.isin(TITLES), title).otherwise("other").alias("title"),
        sql.coalesce("Embarked", sql.lit("?")).alias("embarked"),
        sql.coalesce(sql.substring("Cabin", 1, 1), sql.lit("?")).alias("deck"),
        sql.col("Pclass").cast("int").alias("pclass"),
        sql.least(sql.col("SibSp") + sql.col("Parch") + 1, sql.lit(7)).cast("int").alias("family"),
        sql.coalesce("Age", sql.lit(age)).cast("float").alias("age"),
        sql.log1p(sql.coalesce("Fare", sql.lit(fare))).cast("float").alias("fare"),
    )


def parse_arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder or address with train.csv and test.csv, as Kaggle has them")
    parser.add_argument("--output", required=True, help="folder or address for the TFRecord files")
    return parser.parse_args()


def main():
    """Write the features, and print how many passengers there are."""
    args = parse_arguments()
    spark = SparkSession.builder.appName("Titanic: features").getOrCreate()
    known, unknown = read_tables(spark, args.data)
    medians = known.agg(sql.median("Age"), sql.median("Fare")).first()
    rows = add_features(known, *medians).cache()
    held_out = rows.passenger_id % 5 == 0
    parts = {"train": rows.where(~held_out), "valid": rows.where(held_out), "test": add_features(unknown, *medians)}
    for name, part in parts.items():
        shards = SHARDS if name == "train" else 1
        tfos_lab.data.write_tfrecords(part.repartition(shards), f"{args.output}/{name}", mode="overwrite")
        print(f"{name}: {part.count()} passengers in {shards} files")
    spark.stop()


if __name__ == "__main__":
    main()
