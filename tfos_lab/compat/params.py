"""The parameters of `pipeline`'s stages: a mix-in for each, with its setter and getter, as Spark ML has them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self, TypeVar

from tfos_lab.compat.namespace import Namespace
from tfos_lab.compat.spark_ml import Param, Params, TypeConverters
from tfos_lab.errors import ConfigError

Stage = TypeVar("Stage", bound=Params)
T = TypeVar("T")


class TFTypeConverters:
    """Converters for types of parameters that Spark has none for."""

    @staticmethod
    def toDict(value: Any) -> dict[Any, Any]:
        """Return a dict as it is; a TypeError for anything else."""
        if isinstance(value, dict):
            return value
        raise TypeError(f"{value!r:.60} is a {type(value).__name__}, not a dict")


def _param(name: str, doc: str, converter: Callable[[Any], T]) -> Param[T]:
    return Param(Params._dummy(), name, doc, converter)  # noqa: SLF001 - Spark has no other way


def _setter(name: str, title: str) -> Callable[[Stage, Any], Stage]:
    def set_value(self: Stage, value: Any) -> Stage:
        return self._set(**{name: value})

    _name(set_value, f"set{title}", f"Set ``{name}``, and return this stage.")
    return set_value


def _getter(name: str, title: str) -> Callable[[Params], Any]:
    def get_value(self: Params) -> Any:
        return self.getOrDefault(name)

    _name(get_value, f"get{title}", f"Return ``{name}``, or its default.")
    return get_value


def _name(function: Callable[..., Any], name: str, doc: str) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc


class HasBatchSize(Params):
    """``batch_size``: rows in a batch."""

    batch_size = _param("batch_size", "Number of rows in a batch", TypeConverters.toInt)
    setBatchSize = _setter("batch_size", "BatchSize")
    getBatchSize = _getter("batch_size", "BatchSize")


class HasClusterSize(Params):
    """``cluster_size``: nodes in all."""

    cluster_size = _param("cluster_size", "Number of nodes in the cluster", TypeConverters.toInt)
    setClusterSize = _setter("cluster_size", "ClusterSize")
    getClusterSize = _getter("cluster_size", "ClusterSize")


class HasEpochs(Params):
    """``epochs``: how often the rows are fed."""

    epochs = _param("epochs", "Number of times that all rows are fed", TypeConverters.toInt)
    setEpochs = _setter("epochs", "Epochs")
    getEpochs = _getter("epochs", "Epochs")


class HasGraceSecs(Params):
    """``grace_secs``: seconds that nodes have after the last row, to export a model, say."""

    grace_secs = _param("grace_secs", "Seconds that nodes have for their last work after feeding", TypeConverters.toInt)
    setGraceSecs = _setter("grace_secs", "GraceSecs")
    getGraceSecs = _getter("grace_secs", "GraceSecs")


class HasInputMapping(Params):
    """``input_mapping``: column → tensor."""

    input_mapping = _param("input_mapping", "Which column is which input tensor", TFTypeConverters.toDict)
    setInputMapping = _setter("input_mapping", "InputMapping")
    getInputMapping = _getter("input_mapping", "InputMapping")


class HasInputMode(Params):
    """``input_mode``: how nodes get their rows; a pipeline's are those of a DataFrame, so there is one mode only."""

    input_mode = _param("input_mode", "How nodes get their rows (1: from Spark)", TypeConverters.toInt)
    getInputMode = _getter("input_mode", "InputMode")

    def setInputMode(self, value: int) -> Self:
        """Set ``input_mode``, and return this stage; a ConfigError for ``InputMode.TENSORFLOW``."""
        if value == 0:
            raise ConfigError(["input_mode=InputMode.TENSORFLOW: a pipeline feeds a DataFrame; use InputMode.SPARK"])
        return self._set(input_mode=value)


class HasMasterNode(Params):
    """``master_node``: what the leading worker's job is called."""

    master_node = _param("master_node", "Job name of the leading worker", TypeConverters.toString)
    setMasterNode = _setter("master_node", "MasterNode")
    getMasterNode = _getter("master_node", "MasterNode")


class HasModelDir(Params):
    """``model_dir``: where checkpoints are."""

    model_dir = _param("model_dir", "Folder of the model's checkpoints", TypeConverters.toString)
    setModelDir = _setter("model_dir", "ModelDir")
    getModelDir = _getter("model_dir", "ModelDir")


class HasNumPS(Params):
    """``num_ps`` and ``driver_ps_nodes``: how many parameter servers there are, and whether on the driver's machine."""

    num_ps = _param("num_ps", "Number of parameter servers among the nodes", TypeConverters.toInt)
    driver_ps_nodes = _param("driver_ps_nodes", "Run parameter servers on the driver", TypeConverters.toBoolean)
    setNumPS = _setter("num_ps", "NumPS")
    getNumPS = _getter("num_ps", "NumPS")
    setDriverPSNodes = _setter("driver_ps_nodes", "DriverPSNodes")
    getDriverPSNodes = _getter("driver_ps_nodes", "DriverPSNodes")


class HasOutputMapping(Params):
    """``output_mapping``: tensor → column."""

    output_mapping = _param("output_mapping", "Which output tensor is which column", TFTypeConverters.toDict)
    setOutputMapping = _setter("output_mapping", "OutputMapping")
    getOutputMapping = _getter("output_mapping", "OutputMapping")


class HasProtocol(Params):
    """``protocol``: how TensorFlow's nodes talk to one another."""

    protocol = _param("protocol", "TensorFlow's network protocol", TypeConverters.toString)
    setProtocol = _setter("protocol", "Protocol")
    getProtocol = _getter("protocol", "Protocol")


class HasReaders(Params):
    """``readers``: threads that read, in programs that have them."""

    readers = _param("readers", "Number of reading threads", TypeConverters.toInt)
    setReaders = _setter("readers", "Readers")
    getReaders = _getter("readers", "Readers")


class HasSteps(Params):
    """``steps``: the most steps to train."""

    steps = _param("steps", "Most steps to train", TypeConverters.toInt)
    setSteps = _setter("steps", "Steps")
    getSteps = _getter("steps", "Steps")


class HasTensorboard(Params):
    """``tensorboard``: whether TensorBoard runs beside the training."""

    tensorboard = _param("tensorboard", "Run TensorBoard", TypeConverters.toBoolean)
    setTensorboard = _setter("tensorboard", "Tensorboard")
    getTensorboard = _getter("tensorboard", "Tensorboard")


class HasTFRecordDir(Params):
    """``tfrecord_dir``: where a program keeps rows as TFRecord files."""

    tfrecord_dir = _param("tfrecord_dir", "Folder for rows as TFRecord files", TypeConverters.toString)
    setTFRecordDir = _setter("tfrecord_dir", "TFRecordDir")
    getTFRecordDir = _getter("tfrecord_dir", "TFRecordDir")


class HasExportDir(Params):
    """``export_dir``: where the exported model is."""

    export_dir = _param("export_dir", "Folder of the exported SavedModel", TypeConverters.toString)
    setExportDir = _setter("export_dir", "ExportDir")
    getExportDir = _getter("export_dir", "ExportDir")


class HasSignatureDefKey(Params):
    """``signature_def_key``: which signature of a SavedModel to call."""

    signature_def_key = _param("signature_def_key", "Name of a SavedModel's signature", TypeConverters.toString)
    setSignatureDefKey = _setter("signature_def_key", "SignatureDefKey")
    getSignatureDefKey = _getter("signature_def_key", "SignatureDefKey")

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(signature_def_key=None)


class HasTagSet(Params):
    """``tag_set``: which graph of a SavedModel to load."""

    tag_set = _param("tag_set", "Tags of a SavedModel's graph, separated by commas", TypeConverters.toString)
    setTagSet = _setter("tag_set", "TagSet")
    getTagSet = _getter("tag_set", "TagSet")


class TFParams(Params):
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
