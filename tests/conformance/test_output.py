"""The output of a function: models and files are copied to the notebook, from every back end."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tfos_lab.errors import NoModel

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore")]

ROWS = np.arange(8, dtype="float32").reshape(4, 2)


def save_everything(args, ctx):
    """Save a model of either Keras in each way that is recommended; return what is there, and what it predicts."""
    import importlib

    keras = importlib.import_module(args["package"])
    while not args["gate"].exists():
        time.sleep(0.01)
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.layers.Dense(3, input_shape=(2,))])
    model.compile("sgd", "mse")
    folder = args["folder"]
    places = {name: ctx.model_dir(f"{folder}/deep/{name}") for name in ("m.keras", "m.weights.h5", "exported")}
    model.save(places["m.keras"])
    model.save_weights(places["m.weights.h5"])
    model.export(places["exported"])
    checkpoint = keras.callbacks.ModelCheckpoint(f"{ctx.output_dir}/checkpoints/{{epoch}}.keras")
    Path(ctx.output_dir, "checkpoints").mkdir()
    model.fit(args["rows"], args["rows"] @ np.ones((2, 3), "float32"), epochs=2, callbacks=[checkpoint], verbose=0)
    Path(ctx.output_dir, "notes.json").write_text(json.dumps(ctx.node))
    saved = ctx.save_model(model)
    return {
        "there": {name: Path(place).exists() for name, place in places.items()},
        "plain": all(place.startswith("/") for place in [*places.values(), saved, ctx.output_dir]),
        "predicted": model.predict(args["rows"], verbose=0),
    }


# Where files go does not depend on the Keras that writes them: each back end has one.
OF_KERAS_2 = ("inline", "standalone")


@pytest.fixture
def saved(back_end, run, once, tmp_path):
    """A run that has saved a model, once for each back end."""
    folder, package = tmp_path / "models", "tf_keras" if back_end.name in OF_KERAS_2 else "keras"
    args = {"package": package, "folder": folder.as_uri(), "rows": ROWS, "gate": tmp_path / "gate"}

    def save():
        cluster = run(save_everything, args)
        with pytest.raises(NoModel, match=r"the cluster 'cluster' is \w+: its model is here when it has ended"):
            _ = cluster.model_path
        args["gate"].touch()
        results = cluster.wait(timeout=200)
        chief_s = sorted(path.name for path in (folder / "deep").iterdir())
        return {"cluster": cluster, "results": results, "package": package, "chief_s": chief_s}

    return once("saved", save)


@pytest.mark.one_spark
def test_the_ways_to_save_in_the_docstrings_work_on_every_node(saved):
    for result in saved.results.values():
        assert result["there"] == {"m.keras": True, "m.weights.h5": True, "exported": True}
        assert result["plain"]
    assert [name for name in saved.chief_s if not name.startswith(".")] == ["exported", "m.keras", "m.weights.h5"]
    assert not Path("file:").exists()


@pytest.mark.one_spark
def test_the_chief_s_output_is_in_the_run_s_folder(saved):
    output = saved.cluster.run_dir / "output"
    found = sorted(path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file())
    assert found == ["checkpoints/1.keras", "checkpoints/2.keras", "model.keras", "notes.json"]
    assert json.loads((output / "notes.json").read_text()) == "chief:0"
    [note] = [note for note in saved.cluster.view().notes if "output" in note]
    assert note.startswith("output: 4 files of ")
    assert note.endswith(f" in {output}")


@pytest.mark.back_ends("inline", "local")
def test_the_model_is_loaded_unchanged_into_the_kernel(saved):
    assert saved.cluster.model_path == saved.cluster.run_dir / "output" / "model.keras"
    model = saved.cluster.model()
    assert isinstance(model, sys.modules[saved.package].Model)
    np.testing.assert_allclose(model.predict(ROWS, verbose=0), saved.results["chief:0"]["predicted"], rtol=1e-5)


@pytest.mark.back_ends("local")
def test_a_run_without_a_saved_model_is_reported(run):
    cluster = run(lambda args, ctx: Path(ctx.output_dir, "plot.png").touch())
    cluster.wait(timeout=100)
    with pytest.raises(NoModel) as caught:
        cluster.model()
    assert str(caught.value) == (
        f"the cluster 'cluster' (done) has saved no model; {cluster.run_dir / 'output'} holds plot.png: have its "
        "function call ctx.save_model(model) on the chief, or on all workers"
    )


@pytest.mark.back_ends("inline", "local")
def test_the_error_of_a_kernel_without_tensorflow_names_the_model_s_path(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, f"{saved.package}.models", None)
    with pytest.raises(NoModel) as caught:
        saved.cluster.model()
    path = saved.cluster.model_path
    assert str(caught.value).startswith(f"this kernel cannot load {path}: import of {saved.package}.models halted")
    assert str(caught.value).endswith(f"tfos_lab.predict(df, '{path}') on executors that have it, or install it here")


@pytest.mark.back_ends("local")
def test_a_module_of_tensorflow_comes_as_a_saved_model(run):
    def save(args, ctx):
        import tensorflow as tf

        class Doubling(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
            def __call__(self, x):
                return 2.0 * x

        for _ in range(2):
            ctx.save_model(Doubling())

    cluster = run(save)
    cluster.wait(timeout=100)
    assert cluster.model_path == cluster.run_dir / "output" / "model"
    assert cluster.model()(np.array([1.0, 2.0], "float32")).numpy().tolist() == [2.0, 4.0]
