"""The part of ``ctx`` that is about files: paths, the output folder, and where models are saved."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core import messages as m
from tfos_lab.core.paths import hadoop_path, is_local, split_scheme
from tfos_lab.errors import ConfigError
from tfos_lab.node.context.facts import NodeFacts

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


class FolderMethods(NodeFacts):
    """Methods of `NodeContext` for files and folders."""

    def absolute_path(self, path: str) -> str:
        """Return ``path`` in full, with its scheme, as TensorFlowOnSpark does.

        A path without a scheme is on Spark's default file system. A relative one is in the user's home there; if that
        file system is a local one, it is in `working_dir`, the folder of the notebook.
        """
        return hadoop_path(path, self.defaultFS, self.working_dir)

    @property
    def backup_dir(self) -> str:
        """Folder for what a restart resumes from, shared by all nodes; empty unless ``restarts`` is given."""
        if self._backup_dir and is_local(self._backup_dir):
            Path(self._backup_dir).mkdir(parents=True, exist_ok=True)
        return self._backup_dir

    @property
    def output_dir(self) -> str:
        """A folder on this node, created when it is asked for, for files that are to outlive the run.

        Models, checkpoints and plots that the chief writes there are in ``cluster.run_dir / "output"`` of the notebook
        when the run has ended, from any host. With ``collect="all"`` other nodes' files are too, each node's in its own
        folder, such as ``worker-0``; by default they are removed with the node. Files are also sent if the
        function fails, is stopped or is killed. Those on other hosts are sent while the function works, some seconds
        after they were last changed, and at its end; symbolic links are not sent, and neither is what the notebook's
        disk has no room for.

        What the function writes by relative paths, such as ``"m.keras"``, goes to the node's working folder, and by
        the same rules to ``work`` in the notebook's folder. Only the chief on the notebook's own machine has no such
        folder: it works in that of the notebook.

        After a restart, files of the nodes before are still in the notebook's folder, and new ones of the same names
        replace them. Write files that the function itself resumes from to ``backup_dir``.

        Examples
        --------
        >>> def train(args, ctx):
        ...     import keras
        ...
        ...     with ctx.strategy().scope():
        ...         model = args()
        ...     best = keras.callbacks.ModelCheckpoint(f"{ctx.output_dir}/best.keras", "loss", save_best_only=True)
        ...     model.fit(ctx.dataset(32, label="label"), epochs=ctx.epochs, callbacks=[*ctx.callbacks(), best])
        ...     ctx.save_model(model)
        """
        if not self._output_dir:
            self._output_dir = tempfile.mkdtemp(prefix="tfos-output-")
        Path(self._output_dir).mkdir(parents=True, exist_ok=True)
        return self._output_dir

    def save_model(self, model: keras.Model | tf.Module) -> str:
        """Save a trained model for the notebook: `Cluster.model` loads it, and `Cluster.model_path` is its file.

        All workers may call it; the chief's model counts. Under a MultiWorkerMirroredStrategy all workers should call
        it, and with tf_keras they must, since it reads some variables from all of them. A later call replaces what an
        earlier one has saved, once it is complete.

        Parameters
        ----------
        model : keras.Model, tf_keras.Model or tf.Module
            Becomes ``model.keras`` in `output_dir`; a ``tf.Module`` that is not a Keras model becomes a SavedModel in
            ``model``.

        Returns
        -------
        str
            Its path on this node. On nodes whose output is not sent, it is removed with the node.

        Raises
        ------
        ConfigError
            For anything else.
        """
        from tfos_lab.data.model_files import save_model

        return save_model(model, self.output_dir)

    def model_dir(self, path: str) -> str:
        """Return where this node may save to ``path``: there on the chief, in a scratch folder elsewhere.

        All workers of a MultiWorkerMirroredStrategy must save, and only the chief's copy is wanted. Use it for folders
        that you manage yourself, and `save_model` and `output_dir` for what the notebook is to have. If the path is on
        a disk of the chief's host that the notebook does not see, the cell warns.

        Parameters
        ----------
        path : str
            A file or folder. A relative one is below `working_dir`, the folder of the notebook, or in the user's home
            if Spark's file system is a distributed one.

        Returns
        -------
        str
            A plain local path whose parent folder exists, or an address such as ``hdfs://...`` unchanged.

        Raises
        ------
        ConfigError
            If the parent folder cannot be created on this host.

        Examples
        --------
        >>> model.save(ctx.model_dir("/shared/mnist.keras"))  # doctest: +SKIP
        >>> model.save_weights(ctx.model_dir("/shared/mnist.weights.h5"))  # doctest: +SKIP
        >>> model.export(ctx.model_dir("/shared/mnist"))  # a SavedModel  # doctest: +SKIP
        """
        if not self.is_chief:
            copy = self._scratch_folder() / "model" / Path(path).name
            _make_parent(path, copy)
            return str(copy)
        target = self.absolute_path(path)
        if not is_local(target):
            return target
        target = split_scheme(target)[2]
        _make_parent(path, Path(target))
        self._send(m.SavesTo(path=target))
        return target


def _make_parent(path: str, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        host = socket.gethostname()
        why = f"{target.parent} cannot be made on {host} ({error.strerror})"
        advice = "save below ctx.output_dir, which comes to the notebook, or give a folder that the chief can write to"
        raise ConfigError([f"ctx.model_dir({path!r}): {why}; {advice}"]) from None
