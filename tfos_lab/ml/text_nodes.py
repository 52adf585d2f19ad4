"""What runs on the nodes, and in Spark's tasks, for a text estimator: the rows, the user's function, its results."""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.compat.missing import add_advice
from tfos_lab.compat.TFSparkNode import NodeSettings, run_main
from tfos_lab.core.options import is_int
from tfos_lab.core.roles import Role
from tfos_lab.errors import ConfigError, FeedError

if TYPE_CHECKING:
    from tfos_lab.compat.TFSparkNode import TFNodeContext
    from tfos_lab.node.context.context import NodeContext

NORMAL, TFOS = "Normal", "TFoS"
READ_DATA = "_read_data"
SIGNATURE = f"def map_fun(args={{}}, ctx=None, {READ_DATA}=None)"
# The file or folder of a model for which no place was named, below the node's output folder.
_OWN_MODEL = "model"
# Rows that are taken from the feed, and stored, at once.
_CHUNK_ROWS = 64


# ---- the function's arguments ---------------------------------------------------------------------------------------


class Arguments(dict[Any, Any]):
    """A dict whose keys are attributes as well; ``[0]`` is itself, for functions that expect a list of dicts.

    Examples
    --------
    >>> args = Arguments(epochs=5)
    >>> args["epochs"], args.epochs, args[0].epochs
    (5, 5, 5)
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"args has no '{name}'; it has {', '.join(map(str, self))}") from None

    def __missing__(self, key: Any) -> Any:
        if key == 0:
            return self
        raise KeyError(key)


class ArgumentsList(list[Arguments]):
    """Arguments in a list; their keys are its own as well, for functions that expect a dict.

    Examples
    --------
    >>> listed = ArgumentsList([Arguments(epochs=5)])
    >>> listed[0]["epochs"], listed["epochs"], listed.epochs
    (5, 5, 5)
    """

    def __getitem__(self, key: Any) -> Any:
        return self[0][key] if isinstance(key, str) else super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self[0], name)


@dataclass(frozen=True)
class TextCall:
    """The function, and what all its models have in common.

    ``facts`` is what is known of the data: ``feature``, ``label``, ``vocab_size`` and ``embedding_size``; ``settings``
    are the estimator's parameters.
    """

    map_fun: Callable[..., Any]
    facts: Mapping[str, Any]
    settings: Mapping[str, Any]

    def args_for(self, fit_param: Mapping[str, Any], *, in_list: bool) -> Arguments:
        """Return the function's ``args`` for one model; ``in_list``, its dict is in a list as ``params["fitParam"]``.

        Where nothing is known of the data, what the model's dict says counts.
        """
        own = Arguments(fit_param)
        known = {name: value for name, value in self.facts.items() if value is not None or name not in own}
        # The key that programs find in Spark Deep Learning, besides the right one.
        known["vacab_size"] = known.get("vocab_size", own.get("vocab_size"))
        params = Arguments(self.settings, fitParam=ArgumentsList([own]) if in_list else own)
        return Arguments({**own, **known, "params": params})


def name_of(function: Callable[..., Any]) -> str:
    """Return what a function is called in sentences."""
    return getattr(function, "__name__", type(function).__name__)


def takes_rows(map_fun: Callable[..., Any]) -> bool:
    """Whether a function can be called with ``_read_data``."""
    parameters = inspect.signature(map_fun).parameters
    return READ_DATA in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


# ---- all rows, on a node that trains alone --------------------------------------------------------------------------


class ReadData:
    """Reads all rows: ``for batch in _read_data(max_records=64)`` in batches, ``for row in _read_data`` one by one.

    Each loop begins with the first row, whether the one before has come to its end or not. The first pass reads what
    Spark feeds to the node, and keeps it in a file, which further passes read. Several threads may read.
    """

    def __init__(self, context: NodeContext) -> None:
        self._feed = context.data_feed()
        #: Show progress and metrics in the live table; see `NodeContext.report`.
        self.report = context.report
        #: Return Keras callbacks that do.
        self.callbacks = context.callbacks
        self._file = tempfile.TemporaryFile(prefix="tfos-rows-")  # noqa: SIM115 - closed by `close`
        self._complete = False
        self._lock = threading.Lock()

    def __call__(
        self,
        max_records: int = 64,
        consume_threads: int = 1,
        print_consume_time: bool = False,  # noqa: FBT001, FBT002 - Spark Deep Learning's signature
    ) -> Iterator[list[Any]]:
        """Return an iterator over all rows, in lists.

        Parameters
        ----------
        max_records : int
            The most rows in a list. The last one may be shorter; no row is left out.
        consume_threads, print_consume_time
            Not needed here: they said how rows were read from Kafka.
        """
        del consume_threads, print_consume_time
        if not is_int(max_records) or max_records < 1:
            raise ConfigError([f"_read_data(max_records={max_records!r}): a whole number from 1 on is needed"])
        rows = iter(self)
        return iter(lambda: list(islice(rows, max_records)), [])

    def __iter__(self) -> Iterator[Any]:
        rows, place = self._chunk(0)
        while rows:
            yield from rows
            rows, place = self._chunk(place)

    def _chunk(self, place: int) -> tuple[list[Any], int]:
        """Return the rows at a place of the file, none at their end, and the place of those that follow."""
        with self._lock:
            self._file.seek(place)
            try:
                rows: list[Any] = pickle.load(self._file)  # noqa: S301 - this process has written it
            except EOFError:
                rows = [] if self._complete else self._take()
            return rows, self._file.tell()

    def _take(self) -> list[Any]:
        rows: list[Any] = self._feed.next_batch(_CHUNK_ROWS)
        self._complete = not rows
        if rows:
            self._file.write(pickle.dumps(rows, pickle.HIGHEST_PROTOCOL))
        return rows

    def stop(self) -> None:
        """Take no more rows of the feed."""
        if not self._complete:
            self._complete = True
            self._feed.terminate()

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


# ---- training -------------------------------------------------------------------------------------------------------


def run_alone(call: TextCall, fit_param: Mapping[str, Any], native: NodeContext) -> dict[str, Any]:
    """Train one model on all rows, on this node alone."""
    args = call.args_for(fit_param, in_list=False)
    output = None if "model" in args else Path(native.output_dir)
    if output is not None:
        args["model"] = str(output / _OWN_MODEL)
    with contextlib.closing(ReadData(native)) as rows:
        try:
            value = call.map_fun(args=args, ctx=None, _read_data=rows)
        except Exception as error:
            add_advice(error)
            raise
        rows.stop()
    said = said_of(value)
    return said if output is None else {**said, **_saved_in(output, said["model"])}


def _saved_in(output: Path, model: str) -> dict[str, str]:
    """Return where the model is: ``output`` is its path below the folder that is sent to the driver."""
    if model and not Path(model).is_relative_to(output):
        return {}
    found = [Path(model)] if model else sorted(output.glob(f"{_OWN_MODEL}*"))
    return {"model": "", "output": str(found[0].relative_to(output))} if found else {}


def run_together(
    call: TextCall, node: NodeSettings, fit_param: Mapping[str, Any], native: NodeContext
) -> dict[str, Any]:
    """Train one model together with the other nodes of the cluster."""
    said: dict[str, Any] = {}
    tf_config = os.environ.get("TF_CONFIG")

    def main(args: Any, ctx: TFNodeContext) -> None:
        if tf_config is not None and Role.PS not in ctx.cluster_spec and ctx.world_size > 1:
            # A cluster of workers only has none in TensorFlowOnSpark; here they may train in step with one another.
            os.environ["TF_CONFIG"] = tf_config
        more = {READ_DATA: None} if takes_rows(call.map_fun) else {}
        said.update(said_of(call.map_fun(args=args, ctx=ctx, **more)))

    run_main(main, node, call.args_for(fit_param, in_list=True), native)
    return said


def said_of(value: Any) -> dict[str, Any]:
    """Return what a function's result shows of its model: ``metrics``, and ``model``, its path or "".

    Metrics are the numbers of a dict, of a list the last one; those of a Keras history; or a number, as ``value``.

    Examples
    --------
    >>> said_of({"loss": [0.5, 0.25], "model": "/models/a"})
    {'metrics': {'loss': 0.25}, 'model': '/models/a'}
    """
    history = getattr(value, "history", None)
    found = history if isinstance(history, Mapping) else value if isinstance(value, Mapping) else {"value": value}
    numbers = {str(name): _number(one) for name, one in found.items()}
    model = found.get("model")
    return {
        "metrics": {name: number for name, number in numbers.items() if number is not None},
        "model": str(model) if isinstance(model, str | Path) else "",
    }


def _number(value: Any) -> float | None:
    if isinstance(value, list | tuple) and value:
        value = value[-1]
    if isinstance(value, str | bytes):
        return None
    with contextlib.suppress(TypeError, ValueError):
        return float(value)
    return None


# ---- the column of features -----------------------------------------------------------------------------------------


def shape_of(feature: Any) -> tuple[int, ...]:
    """Return ``(words, embedding_size)`` of a matrix, ``(size,)`` of a vector or list, and ``()`` of anything else.

    Raises
    ------
    ValueError
        For a matrix of vectors of several sizes.

    Examples
    --------
    >>> shape_of([[0.1, 0.2], [0.3, 0.4], [0.0, 0.0]])
    (3, 2)
    """
    if hasattr(feature, "numRows"):  # one of spark.ml's matrices
        return int(feature.numRows), int(feature.numCols)
    own = _size_of(feature)
    widths = {_size_of(vector) for vector in feature} if isinstance(feature, list | tuple) else set()
    if len(widths) > 1:
        found = " and ".join(sorted("none" if width is None else str(width) for width in widths))
        raise ValueError(f"a sentence matrix has vectors of {found} values: all need to have one size")
    return tuple(size for size in (own, *widths) if size is not None)


def _size_of(value: Any) -> int | None:
    """Return how many values a list or one of spark.ml's vectors has, or None."""
    size = len(value) if isinstance(value, list | tuple) else getattr(value, "size", None)
    return size if isinstance(size, int) else None


def problem_of(feature: Any, shape: tuple[int, ...], column: str) -> str:
    """Return what is wrong with a feature where the first row's has this shape, in a sentence, or nothing."""
    if feature is None:
        return f"column '{column}' has a null: leave such rows out, as in df.dropna(subset=['{column}'])"
    try:
        found = shape_of(feature)
    except ValueError as error:
        return f"column '{column}': {error}"
    # Lists of words may have any length; matrices go into tensors.
    if found == shape or len(shape) < 2:
        return ""
    one, other = (" × ".join(map(str, each)) or "no matrix" for each in (shape, found))
    what = f"the first row's sentence matrix is {one}, another row's is {other}"
    return f"column '{column}': {what}: pad short sentences with zeros, and cut long ones"


def checked(rows: Iterable[Any], column: str, shape: tuple[int, ...]) -> Iterator[Any]:
    """Pass rows on, and raise at the first feature that does not fit the first row's; runs in Spark's tasks."""
    for row in rows:
        if problem := problem_of(row[column], shape, column):
            raise FeedError(reason=problem)
        yield row
