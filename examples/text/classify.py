r"""Classifies sentences: words become vectors, sentences become matrices, and convolutions tell them apart.

    spark-submit --master spark://host:7077 --conf spark.cores.max=4 examples/text/classify.py \
        --data sentences.tsv --cluster-size 2 --epochs 6 --model models/text

A line of the data is a label, a tab, and a sentence; without ``--data``, the sentences are made up. Models with few and
with many filters are trained side by side and compared; then a cluster trains the better one on all rows, and Spark
scores sentences that it has not seen. Without ``--master``, the nodes are processes on this machine.
"""

import argparse
import random

from pyspark.ml import Pipeline
from pyspark.ml.feature import StringIndexer, Tokenizer, Word2Vec
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from tfos_lab.ml import TFTextFileEstimator

FILTERS = [2, 32]


def train(args, ctx=None, _read_data=None):
    """Train a model: by itself on all rows, or with the other nodes of a cluster, which share them."""
    return train_alone(args, _read_data) if ctx is None else train_together(args, ctx)


def train_alone(args, read_data):
    """Train in a custom loop; each call of `read_data` begins with the first row."""
    import numpy as np

    model = build_model(args)
    for epoch in range(args["epochs"]):
        told = []
        for rows in read_data(max_records=args["batch_size"]):
            x = np.array([row[args["feature"]] for row in rows], "float32")
            y = np.array([row[args["label"]] for row in rows], "int32")
            told.append(model.train_on_batch(x, y, return_dict=True))
        metrics = {name: np.mean([one[name] for one in told]) for name in told[0]}
        read_data.report(step=epoch + 1, total_steps=args["epochs"], **metrics)
    path = f"{args['model']}.keras"
    model.save(path)
    return {**metrics, "model": path}


def train_together(args, ctx):
    """Train in step with the other nodes: all of them take equally many steps, and no row is left out.

    ``TFNode.DataFeed(ctx.mgr, True)`` has the rows as Python objects, as in `train_alone`.
    """
    with ctx.strategy().scope():
        model = build_model(args)
    rows = ctx.dataset(args["batch_size"], features=args["feature"], label=args["label"], shuffle=True)
    history = model.fit(rows, epochs=ctx.epochs, callbacks=ctx.callbacks(), verbose=2)
    path = f"{args['model']}.keras"
    model.save(ctx.model_dir(path))
    return {**history.history, "model": path}


def build_model(args):
    """Return a network that looks at three words at once."""
    import keras

    model = keras.Sequential(
        [
            keras.Input((args["sequence_length"], args["embedding_size"]), name="matrix"),
            keras.layers.Conv1D(args["filters"], 3, activation="relu", padding="same"),
            keras.layers.GlobalMaxPooling1D(),
            keras.layers.Dense(args["classes"], "softmax", name="scores"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.03), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def read_sentences(spark, path, rows):
    """Return a DataFrame of the columns kind and text."""
    if path:
        return spark.read.csv(path, sep="\t", quote="", schema="kind string, text string").dropna()
    return spark.createDataFrame(make_sentences(rows), "kind string, text string")


def make_sentences(rows):
    """Make up sentences of praise and of complaint; a "not" turns one into the other."""
    things = ["the film", "this book", "our room", "the service", "my new phone", "the soup"]
    words = {
        "praise": ["great", "lovely", "excellent", "a joy", "worth it"],
        "complaint": ["dull", "awful", "broken", "a mess", "too dear"],
    }
    other = {"praise": "complaint", "complaint": "praise"}
    ends = {
        "praise": ["", " and i will come back", " and i told everybody", " if you ask me", " again"],
        "complaint": ["", " and i want my money back", " and i left early", " if you ask me", " again"],
    }
    dice = random.Random(3)  # noqa: S311 - nothing is secret
    made = []
    for _ in range(rows):
        kind, turned = dice.choice(list(words)), dice.random() < 0.25
        word = dice.choice(words[other[kind] if turned else kind])
        made.append((kind, f"{dice.choice(things)} was {'not ' if turned else ''}{word}{dice.choice(ends[kind])}"))
    return made


def make_matrices(sentences, size, length):
    """Return the column label, and matrix: for each sentence the vectors of its words, padded with zeros or cut."""
    stages = [
        StringIndexer(inputCol="kind", outputCol="label"),
        Tokenizer(inputCol="text", outputCol="words"),
        Word2Vec(inputCol="words", outputCol="mean", vectorSize=size, minCount=1, maxIter=5, stepSize=0.1, seed=3),
    ]
    pipeline = Pipeline(stages=stages).fit(sentences)
    vectors = {row.word: [float(x) for x in row.vector] for row in pipeline.stages[-1].getVectors().collect()}
    nothing = [0.0] * size

    @sql.udf("array<array<float>>")
    def matrix(words):
        known = [vectors[word] for word in words if word in vectors][:length]
        return known + [nothing] * (length - len(known))

    return pipeline.transform(sentences).select(matrix("words").alias("matrix"), sql.col("label").cast("int"))


def parse_arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="file or folder of lines with a label, a tab, and a sentence")
    parser.add_argument("--rows", type=int, default=1500, help="how many sentences to make up without --data")
    parser.add_argument("--vector-size", type=int, default=16, help="of the words' vectors")
    parser.add_argument("--sequence-length", type=int, default=16, help="words in a sentence, at the most")
    parser.add_argument("--cluster-size", type=int, default=2, help="number of nodes that train the better model")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16, help="rows per step on each node")
    parser.add_argument("--model", required=True, help="where to save the model, as <model>.keras")
    return parser.parse_args()


def main():
    """Compare two models, train the better one on a cluster, and score sentences that it has not seen."""
    args = parse_arguments()
    spark = SparkSession.builder.appName("Text").getOrCreate()
    matrices = make_matrices(
        read_sentences(spark, args.data, args.rows), args.vector_size, args.sequence_length
    ).cache()  # each model has Spark compute the rows
    train_df, test_df = matrices.randomSplit([0.8, 0.2], seed=3)
    fit_param = {
        "epochs": args.epochs,
        "batch_size": args.batch_size,
        "sequence_length": args.sequence_length,
        "classes": matrices.agg(sql.max("label")).first()[0] + 1,
    }

    estimator = TFTextFileEstimator(inputCol="matrix", outputCol="scores", labelCol="label", mapFnParam=train)
    compared = estimator.fit(train_df, [{**fit_param, "filters": filters} for filters in FILTERS])
    for row in compared.results.collect():
        print(f"{row.params.filters} filters: accuracy {row.metrics['accuracy']:.3f}, {row.model}")
    best = compared.results.orderBy("metrics.loss").first()

    estimator.setRunningMode("TFoS")
    chosen = {"filters": best.params.filters, "cluster_size": args.cluster_size, "model": args.model}
    model = estimator.fit(train_df, {**fit_param, **chosen})
    scores = model.transform(test_df).select("label", sql.expr("array_position(scores, array_max(scores)) - 1 = label"))
    right, count = (scores.filter(scores[1]).count(), scores.count())
    print(f"accuracy: {right / count:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
