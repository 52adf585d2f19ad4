"""`adapt` of Keras' preprocessing layers, where each node has a part of the rows."""

import re
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.clusters import running_clusters

pytestmark = [pytest.mark.full, pytest.mark.tensorflow, pytest.mark.timeout(300)]

TOLD = "differ from node to node before it is trained, as in a vocabulary, a mean or loaded weights: "
# Common words come late, and rare ones on one node only.
ROWS = {
    "number": [float(number) for number in range(37)],
    "words": [("ash elm " if number % 3 else "fir ") + f"tree{number // 5}" for number in range(37)],
    "y": [1.0] * 37,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    parquet.write_table(pa.table(ROWS), folder / "rows.parquet", row_group_size=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFOS_LAB_RUNS", str(tmp_path_factory.mktemp("runs")))
        with running_clusters({"local": "processes", "grace": 2.0}) as start:
            cluster = start(adapt_all, ROWS, cluster_size=2)
            cluster.train(str(folder))
            return list(cluster.wait(timeout=250).values()), cluster.logs("worker:0")


def adapt_all(rows, ctx):
    import keras
    import tf_keras

    ctx.strategy()
    dataset = ctx.dataset(4, features=["number", "words"], label="y")
    found = {}
    for module in (keras, tf_keras):
        found[module.__name__] = {
            kind: adapt(module, kind, dataset, rows) for kind in ("number", "text", "bins", "ragged")
        }
    if ctx.is_chief:
        keras.layers.StringLookup()  # from here on, layers have other names on other nodes
    fit(ctx, keras, dataset, vocabulary=None)
    sys.stdout.write("fitted what all have adapted to\n")
    fit(ctx, keras, dataset, vocabulary=["ash", "elm", f"tree{ctx.rank}"])
    for module in (keras, tf_keras):
        sys.stdout.write(f"loaded by {module.__name__}\n")
        fit(ctx, module, dataset, vocabulary=["ash"], loads=ctx.is_chief)
    return found


def adapt(keras, kind, dataset, rows):
    """Return what a layer has learned from the fed rows, and what it learns from all of them in one process."""
    import numpy as np
    import tensorflow as tf

    makes = {
        "number": keras.layers.Normalization,
        "text": lambda: keras.layers.TextVectorization(max_tokens=8),
        "bins": lambda: keras.layers.Discretization(num_bins=2),
        "ragged": keras.layers.StringLookup,
    }
    if kind == "ragged":
        fed, whole = dataset.map(lambda x, y, w: tf.strings.split(x["words"])), " ".join(rows["words"]).split()
    else:
        column = "words" if kind == "text" else "number"
        fed, whole = dataset.map(lambda x, y, w: x[column][:, None]), np.array(rows[column])[:, None]
    states = []
    for data in (fed, whole):
        layer = makes[kind]()
        layer.adapt(data)
        if kind == "number":
            states.append([float(np.ravel(value)[0]) for value in (layer.mean, layer.variance)])
        else:
            states.append(list(map(str, layer.bin_boundaries if kind == "bins" else layer.get_vocabulary())))
    return states


def fit(ctx, keras, dataset, vocabulary, *, loads=False):
    words = keras.layers.StringLookup(vocabulary=vocabulary, output_mode="multi_hot", name=vocabulary and "known")
    if vocabulary is None:
        words.adapt(dataset.map(lambda x, y, w: x["words"][:, None]), steps=2)
    with ctx.strategy().scope():
        model = keras.Sequential([keras.Input((1,), dtype="string"), words, keras.layers.Dense(1, name="answers")])
        model.compile("sgd", "mse")
    if loads:
        model.set_weights([value + 1 for value in model.get_weights()])
    model.fit(dataset.map(lambda x, y, w: (x["words"][:, None], y, w)), verbose=0)


@pytest.mark.parametrize("keras", ["keras", "tf_keras"])
@pytest.mark.parametrize("kind", ["number", "text", "bins", "ragged"])
def test_a_layer_adapts_to_the_rows_of_all_nodes(found, keras, kind):
    nodes, _ = found
    for node in nodes:
        learned, alone = node[keras][kind]
        assert learned == (pytest.approx(alone, rel=1e-5) if kind == "number" else alone)


def test_layers_that_differ_from_node_to_node_are_named_in_the_log(found):
    _, log = found
    parts = re.split("fitted what all have adapted to|loaded by t?f?_?keras", log)
    told = [re.findall(f"{TOLD}(.*?)\\.", part) for part in parts]
    assert told == [[], ["known"], ["answers"], ["answers"]]
