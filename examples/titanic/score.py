r"""Scores passengers in parallel with the newest version of the model, and writes who survives as CSV files.

    spark-submit --master spark://host:7077 examples/titanic/score.py \
        --data titanic --export-dir models/titanic --output predictions

Each line reads "892,0,0.118": the passenger, the prediction and its probability. The passengers that were held out of
the training show how good the model is, beside the rule that women survive and men do not.
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import tfos_lab

PASSENGERS = "sex string, title string, embarked string, deck string, pclass int, family int, age float, fare float"


def newest_version(folder):
    """Return the folder of the model's newest version."""
    versions = [path for path in Path(folder).glob("*") if path.name.isdigit()]
    if not versions:
        raise SystemExit(f"{folder} has no version of a model: run train.py first")
    return str(max(versions, key=lambda path: int(path.name)))


def score(spark, args):
    """Return the passengers of both sets with their probability to survive, and what follows from it.

    Those of the test set have no column ``survived``, which is null for them.
    """
    folders = [f"{args.data}/valid", f"{args.data}/test"]
    rows = tfos_lab.data.read_tfrecords(spark, folders, f"passenger_id long, survived float, {PASSENGERS}")
    features = [one.split()[0] for one in PASSENGERS.split(", ")]
    scored = tfos_lab.predict(rows, newest_version(args.export_dir), dict(zip(features, features, strict=True)))
    return scored.withColumn("survives", (sql.col("prediction") > 0.5).cast("int"))


def parse_arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder or address that prepare.py wrote")
    parser.add_argument("--export-dir", required=True, help="folder of the model's versions, which executors find")
    parser.add_argument("--output", required=True, help="folder for the CSV files; it must not exist")
    return parser.parse_args()


def main():
    """Score both sets, and print the accuracy."""
    args = parse_arguments()
    spark = SparkSession.builder.appName("Titanic: scoring").getOrCreate()
    scored = score(spark, args).cache()
    right = sql.avg((sql.col("survives") == sql.col("survived")).cast("int"))
    rule = sql.avg(((sql.col("sex") == "female") == (sql.col("survived") == 1)).cast("int"))
    accuracy, baseline = scored.where("survived is not null").agg(right, rule).first()
    lines = scored.where("survived is null").select("passenger_id", "survives", sql.round("prediction", 3))
    lines.write.csv(args.output)
    print(f"accuracy: {accuracy:.3f}\nbaseline: {baseline:.3f} (women survive, men do not)")
    spark.stop()


if __name__ == "__main__":
    main()
