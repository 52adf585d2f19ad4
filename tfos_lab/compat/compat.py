"""What differs between releases of TensorFlow and Keras, under one name each; for programs, on nodes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.data.model_files import package_of
from tfos_lab.scoring.description import write_names

if TYPE_CHECKING:
    import tensorflow as tf


def export_saved_model(model: Any, export_dir: str, is_chief: bool = False) -> None:
    """Export a model as a SavedModel.

    Under a MultiWorkerMirroredStrategy all workers have to call it. The chief's model is written to ``export_dir``, the
    others' to a scratch folder, which is removed with the node.

    Parameters
    ----------
    model : keras.Model, tf_keras.Model or tf.Module
        Keras 3's are exported for serving (``model.export``), Keras 2's saved with all they have. `pipeline.TFModel`
        knows the names of inputs and outputs of both.
    export_dir : str
        The folder; also with a scheme, as from ``ctx.absolute_path``.
    is_chief : bool
        Whether this node's model is the one that counts.
    """
    if is_chief:
        # On this machine without its scheme, which Keras does not know.
        target = split_scheme(export_dir)[2] if is_local(export_dir) else export_dir
    else:
        scratch = os.environ.get("TFOS_LAB_SCRATCH") or tempfile.mkdtemp(prefix="tfos-model-")
        target = str(Path(scratch) / "worker_model")
    package = package_of(model)
    if package == "tf_keras":
        model.save(target, save_format="tf")
    elif package == "keras":
        model.export(target)
        write_names(model, target)
    else:
        import tensorflow as tf

        tf.saved_model.save(model, target)


def disable_auto_shard(options: tf.data.Options) -> None:
    """Have TensorFlow leave a dataset whole on each worker: rows that are fed have been dealt out already."""
    import tensorflow as tf

    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF


def is_gpu_available() -> bool:
    """Whether TensorFlow sees a GPU."""
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU")) > 0
