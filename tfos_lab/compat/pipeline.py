"""Training and scoring as stages of a Spark ML pipeline.

`TFEstimator` trains on a cluster, fed with the rows of a DataFrame. `TFModel` scores a DataFrame in parallel with what
the training has exported; each of Spark's Python workers loads the model once, so it has to fit into its memory.
"""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from pyspark.ml.base import Estimator, Model
from pyspark.ml.param import Param, Params, TypeConverters

from tfos_lab.compat import TFCluster, util
from tfos_lab.compat.namespace import Namespace
from tfos_lab.data.frames import is_connect, model_path
from tfos_lab.data.schema import select_columns
from tfos_lab.errors import ConfigError
from tfos_lab.node.remote_files import register_file_systems
from tfos_lab.scoring.description import ModelSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

# Parts of names that setters and getters write otherwise.
_TITLES = {"ps": "PS", "tfrecord": "TFRecord"}

Arguments = dict[str, Any] | Namespace | list[str] | Any


# ---- parameters ------------------------------------------------------------------------------------------------------


class TFTypeConverters:
    """Converters for types of parameters that Spark has none for."""

    @staticmethod
    def toDict(value: Any) -> dict[Any, Any]:
        """Return a dict as it is; a TypeError for anything else."""
        if isinstance(value, dict):
            return value
        raise TypeError(f"{value!r:.60} is a {type(value).__name__}, not a dict")


def _param(doc: str, converter: Callable[[Any], Any]) -> Param[Any]:
    return Param(Params._dummy(), "", doc, converter)  # noqa: SLF001 - Spark has no other way


class _Mixin(Params):
    """Names the parameters that a class declares with `_param`, and gives it a setter and a getter for each.

    Where the class has no docstring, it gets those of its parameters.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, param in list(vars(cls).items()):
            if isinstance(param, Param) and not param.name:
                param.name = name
                _add_methods(cls, name)
                cls.__doc__ = cls.__doc__ or f"``{name}``: {param.doc}."


def _add_methods(stage: type[_Mixin], name: str) -> None:
    def set_value(self: _Mixin, value: Any) -> _Mixin:
        return self._set(**{name: value})

    def get_value(self: _Mixin) -> Any:
        return self.getOrDefault(name)

    title = "".join(_TITLES.get(part, part.capitalize()) for part in name.split("_"))
    for function, method, doc in (
        (set_value, f"set{title}", f"Set ``{name}``, and return this stage."),
        (get_value, f"get{title}", f"Return ``{name}``, or its default."),
    ):
        function.__name__, function.__qualname__, function.__doc__ = method, f"{stage.__name__}.{method}", doc
        if method not in vars(stage):
            setattr(stage, method, function)


class HasBatchSize(_Mixin):
    batch_size = _param("Number of rows in a batch", TypeConverters.toInt)


class HasClusterSize(_Mixin):
    cluster_size = _param("Number of nodes in the cluster", TypeConverters.toInt)


class HasEpochs(_Mixin):
    epochs = _param("Number of times that all rows are fed", TypeConverters.toInt)


class HasGraceSecs(_Mixin):
    grace_secs = _param("Seconds that nodes have for their last work after feeding", TypeConverters.toInt)


class HasInputMapping(_Mixin):
    input_mapping = _param("Which column is which input tensor", TFTypeConverters.toDict)


class HasInputMode(_Mixin):
    input_mode = _param("How nodes get their rows (1: from Spark)", TypeConverters.toInt)

    def setInputMode(self, value: int) -> Self:
        """Set ``input_mode``, and return this stage; a ConfigError for ``InputMode.TENSORFLOW``."""
        if value == 0:
            raise ConfigError(["input_mode=InputMode.TENSORFLOW: a pipeline feeds a DataFrame; use InputMode.SPARK"])
        return self._set(input_mode=value)


class HasMasterNode(_Mixin):
    master_node = _param("Job name of the leading worker", TypeConverters.toString)


class HasModelDir(_Mixin):
    model_dir = _param("Folder of the model's checkpoints", TypeConverters.toString)


class HasNumPS(_Mixin):
    num_ps = _param("Number of parameter servers among the nodes", TypeConverters.toInt)
    driver_ps_nodes = _param("Run parameter servers on the driver", TypeConverters.toBoolean)


class HasOutputMapping(_Mixin):
    output_mapping = _param("Which output tensor is which column", TFTypeConverters.toDict)


class HasProtocol(_Mixin):
    protocol = _param("TensorFlow's network protocol", TypeConverters.toString)


class HasReaders(_Mixin):
    readers = _param("Number of reading threads", TypeConverters.toInt)


class HasSteps(_Mixin):
    steps = _param("Most steps to train", TypeConverters.toInt)


class HasTensorboard(_Mixin):
    tensorboard = _param("Run TensorBoard", TypeConverters.toBoolean)


class HasTFRecordDir(_Mixin):
    tfrecord_dir = _param("Folder for rows as TFRecord files", TypeConverters.toString)


class HasExportDir(_Mixin):
    export_dir = _param("Folder of the exported SavedModel", TypeConverters.toString)


class HasSignatureDefKey(_Mixin):
    signature_def_key = _param("Name of a SavedModel's signature", TypeConverters.toString)

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(signature_def_key=None)


class HasTagSet(_Mixin):
    tag_set = _param("Tags of a SavedModel's graph, separated by commas", TypeConverters.toString)


class TFParams(_Mixin):
    """A stage with arguments beside its parameters."""

    args: Namespace | None = None

    def merge_args_params(self) -> Namespace:
        """Return the arguments together with all parameters, which win where both have a name.

        Raises
        ------
        ConfigError
            With every parameter that has neither a value nor a default.
        """
        unset = [param.name for param in self.params if not self.isDefined(param)]
        if unset:
            raise ConfigError([f"{name} is not set, and has no default: call its setter first" for name in unset])
        merged = copy.copy(self.args) if self.args is not None else Namespace({})
        vars(merged).update({param.name: self.getOrDefault(param) for param in self.params})
        return merged


# ---- stages ----------------------------------------------------------------------------------------------------------


class TFEstimator(
    Estimator["TFModel"],
    TFParams,
    HasInputMapping,
    HasClusterSize,
    HasNumPS,
    HasInputMode,
    HasMasterNode,
    HasProtocol,
    HasGraceSecs,
    HasTensorboard,
    HasModelDir,
    HasExportDir,
    HasTFRecordDir,
    HasBatchSize,
    HasEpochs,
    HasReaders,
    HasSteps,
):
    """Trains on a cluster that is fed with a DataFrame's rows.

    A row is the columns that `input_mapping` names, ordered by their names.

    Parameters
    ----------
    train_fn : callable
        ``train_fn(args, ctx)``, run on each node. It has to export the model itself; ``args`` has the arguments and all
        parameters of this stage.
    tf_args : dict, argparse.Namespace, Namespace or list
        The arguments. A list becomes ``sys.argv`` of the nodes, and is their ``args`` as it is.
    export_fn : callable, optional
        Not called: it is for graphs of TensorFlow 1. A warning reports that.

    Examples
    --------
    >>> estimator = TFEstimator(main_fun, args).setInputMapping({"image": "x", "label": "y"})  # doctest: +SKIP
    >>> model = estimator.setClusterSize(2).setExportDir("/models/digits").fit(train_df)  # doctest: +SKIP
    """

    args: Namespace
    train_fn: Callable[..., Any]
    export_fn: Callable[..., Any] | None = None

    def __init__(
        self, train_fn: Callable[..., Any], tf_args: Arguments, export_fn: Callable[..., Any] | None = None
    ) -> None:
        super().__init__()
        if export_fn is not None:
            text = "TFEstimator: export_fn is for TensorFlow 1, and is not called: export the model in train_fn"
            warnings.warn(text, stacklevel=2)
        self.train_fn = train_fn
        self.args = Namespace(tf_args)
        self._setDefault(
            input_mapping={},
            cluster_size=1,
            num_ps=0,
            driver_ps_nodes=False,
            input_mode=TFCluster.InputMode.SPARK,
            master_node="chief",
            protocol="grpc",
            tensorboard=False,
            model_dir=None,
            export_dir=None,
            tfrecord_dir=None,
            batch_size=100,
            epochs=1,
            readers=1,
            steps=1000,
            grace_secs=30,
        )

    def _fit(self, dataset: DataFrame) -> TFModel:
        args = self.merge_args_params()
        logger.info("training with %s", args)
        if not args.input_mapping:
            raise ConfigError([_NO_INPUTS])
        if is_connect(dataset.sparkSession):
            raise ConfigError(["TFEstimator.fit needs a classic SparkSession: with Spark Connect, use tfos_lab.run"])
        rows = _selected(dataset, sorted(args.input_mapping))
        cluster = TFCluster.run(
            rows.sparkSession.sparkContext,
            self.train_fn,
            self.args.argv or args,
            args.cluster_size,
            args.num_ps,
            args.tensorboard,
            TFCluster.InputMode.SPARK,
            master_node=args.master_node,
            driver_ps_nodes=args.driver_ps_nodes,
        )
        try:
            cluster.train(rows.rdd, args.epochs)
        except BaseException:
            # Its nodes must not take the end of their rows for the end of the training, and export half a model.
            cluster._cluster.stop(grace=0.0)  # noqa: SLF001 - TFoS has no way to end a cluster at once
            raise
        cluster.shutdown(grace_secs=args.grace_secs)
        return self._copyValues(TFModel(self.args))


_NO_INPUTS = (
    "input_mapping is not set, so nothing says which column is which tensor: call setInputMapping({'column': 'tensor'})"
)
_NO_OUTPUTS = (
    "output_mapping is not set, so nothing says which output is which column: call "
    "setOutputMapping({'output': 'column'})"
)


def _selected(dataset: DataFrame, columns: list[str]) -> DataFrame:
    """Select columns; a ConfigError names those that are missing."""
    from pyspark.errors import AnalysisException

    try:
        return dataset.select(columns)
    except AnalysisException:
        select_columns(dataset.columns, columns)
        raise


class TFModel(
    Model,
    TFParams,
    HasInputMapping,
    HasOutputMapping,
    HasBatchSize,
    HasModelDir,
    HasExportDir,
    HasSignatureDefKey,
    HasTagSet,
):
    """Scores a DataFrame in parallel with an exported model.

    `transform` returns the columns that `output_mapping` names, ordered by the names of the outputs: a double, bigint,
    boolean or binary for an output of one value per row, of shape ``(batch,)``, and arrays of them for any other.
    Nothing is scored before the result is used; that names and types fit is checked at once.

    The model is a SavedModel or a Keras file in `export_dir`, or else in `model_dir`, where all executors find it. Of a
    SavedModel it calls the signature `signature_def_key`; by default ``serving_default``, or the only one.

    Parameters
    ----------
    tf_args : dict, argparse.Namespace, Namespace or list
        Arguments, as for `TFEstimator`, whose `fit` makes this model.

    Examples
    --------
    >>> model = TFModel({}).setExportDir("/models/digits").setBatchSize(500)  # doctest: +SKIP
    >>> model = model.setInputMapping({"image": "x"}).setOutputMapping({"digit": "prediction"})  # doctest: +SKIP
    >>> scored = model.transform(test_df)  # doctest: +SKIP
    """

    def __init__(self, tf_args: Arguments) -> None:
        super().__init__()
        self.args = Namespace(tf_args)
        self._setDefault(
            input_mapping={},
            output_mapping={},
            batch_size=100,
            model_dir=None,
            export_dir=None,
            signature_def_key=None,
            tag_set=None,
        )

    def _transform(self, dataset: DataFrame) -> DataFrame:
        args = self.merge_args_params()
        logger.info("scoring with %s", args)
        problems = _unusable(args)
        if problems:
            raise ConfigError(problems)
        from tfos_lab.scoring.predict import score_mapped  # executors, which may import this module, do not have it

        columns = sorted(args.input_mapping)
        rows = _selected(dataset, columns).toDF(*columns)
        option = "export_dir" if args.export_dir else "model_dir"
        source = ModelSource(
            path=model_path(getattr(args, option), dataset.sparkSession),
            signature=args.signature_def_key or "",
            tags=args.tag_set or "",
            option=option,
        )
        return score_mapped(rows, source, args.input_mapping, args.output_mapping, args.batch_size)


def _unusable(args: Namespace) -> list[str]:
    """Return what is wrong with a model's parameters by themselves."""
    problems = []
    if not args.export_dir and not args.model_dir:
        problems.append("neither export_dir nor model_dir is set: name the model's folder with setExportDir(path)")
    if not args.input_mapping:
        problems.append(_NO_INPUTS)
    if not args.output_mapping:
        problems.append(_NO_OUTPUTS)
    columns = list(args.output_mapping.values())
    twice = sorted({column for column in columns if columns.count(column) > 1})
    problems += [f"output_mapping: two outputs are for the column '{column}'" for column in twice]
    if args.batch_size < 1:
        problems.append(f"batch_size={args.batch_size}: at least one row is needed")
    return problems


def single_node_env(args: Namespace | list[str]) -> None:
    """Set the environment of a process that runs TensorFlow by itself: ``sys.argv``, and the GPUs to use.

    Parameters
    ----------
    args : Namespace or list of str
        Arguments, of which ``num_gpus`` counts (1 by default); or a command line.
    """
    argv = args if isinstance(args, list) else getattr(args, "argv", None)
    if argv:
        sys.argv = argv
    util.single_node_env(args.num_gpus if not isinstance(args, list) and "num_gpus" in args else 1)


def get_meta_graph_def(saved_model_dir: str, tag_set: str) -> Any:
    """Return a graph of a SavedModel, from its file.

    Parameters
    ----------
    saved_model_dir : str
        The folder; also with a scheme, such as ``hdfs:///models/digits``.
    tag_set : str
        The graph's tags, separated by commas.

    Returns
    -------
    tensorflow.compat.v1.MetaGraphDef

    Raises
    ------
    RuntimeError
        If the SavedModel has no graph of exactly these tags.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    register_file_systems()
    saved = SavedModel.FromString(tf.io.gfile.GFile(f"{saved_model_dir}/saved_model.pb", "rb").read())
    graphs = {frozenset(graph.meta_info_def.tags): graph for graph in saved.meta_graphs}
    wanted = frozenset(tag_set.split(","))
    if wanted not in graphs:
        known = "; ".join(",".join(sorted(tags)) for tags in graphs)
        raise RuntimeError(f"tag_set='{tag_set}': the SavedModel in {saved_model_dir} has graphs with the tags {known}")
    return graphs[wanted]


def yield_batch(iterable: Iterable[Any], batch_size: int, num_tensors: int = 1) -> Iterator[list[list[Any]]]:
    """Cut rows into batches of columns.

    Parameters
    ----------
    iterable : iterable of sequence
        Rows of ``num_tensors`` values; None ends them.
    batch_size : int
        Rows in a batch; the last may have fewer.
    num_tensors : int
        Values in a row.

    Yields
    ------
    list of list
        A list of values for each column.

    Examples
    --------
    >>> list(yield_batch([(1, "a"), (2, "b"), (3, "c")], 2, num_tensors=2))
    [[[1, 2], ['a', 'b']], [[3], ['c']]]
    """
    columns: list[list[Any]] = [[] for _ in range(num_tensors)]
    for row in iterable:
        if row is None:
            break
        for column, value in zip(columns, row, strict=False):
            column.append(bytes(value) if isinstance(value, bytearray) else value)
        if len(columns[0]) >= batch_size:
            yield columns
            columns = [[] for _ in range(num_tensors)]
    if columns[0]:
        yield columns
