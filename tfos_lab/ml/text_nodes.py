"""What runs on the nodes for a text estimator: calls the user's function, and keeps what it says of its model."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.compat.main_function import NodeSettings, run_main
from tfos_lab.compat.missing import add_advice
from tfos_lab.core.roles import Role
from tfos_lab.ml.text_reader import ReadData, RowCache

if TYPE_CHECKING:
    from tfos_lab.compat.TFSparkNode import TFNodeContext
    from tfos_lab.node.context.context import NodeContext


# ---- arguments of the function ---------------------------------------------------------------------------------------


class Arguments(dict[Any, Any]):
    """A dict whose keys are attributes as well.

    Examples
    --------
    >>> args = Arguments(epochs=5)
    >>> args["epochs"] == args.epochs
    True
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"args has no '{name}'; it has {', '.join(map(str, self))}") from None


class FitParam(Arguments):
    """The parameters of one model; ``[0]`` is itself, for functions that expect a list.

    Examples
    --------
    >>> FitParam(epochs=5)[0].epochs
    5
    """

    def __missing__(self, key: Any) -> Any:
        if key == 0:
            return self
        raise KeyError(key)


class FitParamList(list[FitParam]):
    """The parameters of one model, in a list; their keys are its own as well, for functions that expect a dict.

    Examples
    --------
    >>> listed = FitParamList([FitParam(epochs=5)])
    >>> listed[0]["epochs"] == listed["epochs"] == listed.epochs
    True
    """

    def __getitem__(self, key: Any) -> Any:
        return self[0][key] if isinstance(key, str) else super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self[0], name)


def make_arguments(
    facts: Mapping[str, Any], settings: Mapping[str, Any], fit_param: Mapping[str, Any], *, in_list: bool
) -> Arguments:
    """Return a function's ``args``.

    Parameters
    ----------
    facts : mapping
        What is known of the data: ``feature``, ``label``, ``vocab_size`` and ``embedding_size``. Where it is None, a
        key of ``fit_param`` of that name counts.
    settings : mapping
        The estimator's parameters.
    fit_param : mapping
        Those of this model, which become keys of the result, and ``params["fitParam"]``.
    in_list : bool
        Whether ``params["fitParam"]`` is a list with this one dict, or the dict itself.
    """
    own = FitParam(fit_param)
    known = {name: value for name, value in facts.items() if value is not None or name not in own}
    # The key that programs find in Spark Deep Learning, besides the right one.
    known["vacab_size"] = known.get("vocab_size", own.get("vocab_size"))
    params = Arguments(settings, fitParam=FitParamList([own]) if in_list else own)
    return Arguments({**own, **known, "params": params})


READ_DATA = "_read_data"
# The file or folder of a model for which no place was named, below the node's output folder.
_OWN_MODEL = "model"


@dataclass(frozen=True)
class TextCall:
    """The function, and what all its models have in common; see `make_arguments`."""

    map_fun: Callable[..., Any]
    facts: Mapping[str, Any]
    settings: Mapping[str, Any]


def run_alone(call: TextCall, fit_param: Mapping[str, Any], native: NodeContext) -> dict[str, Any]:
    """Train one model on all rows, on this node by itself."""
    args = make_arguments(call.facts, call.settings, fit_param, in_list=False)
    output = None if "model" in args else Path(native.output_dir)
    if output is not None:
        args["model"] = str(output / _OWN_MODEL)
    cache = RowCache(native.data_feed())
    try:
        value = call.map_fun(args=args, ctx=None, _read_data=ReadData(cache, native))
        cache.stop()
    except Exception as error:
        add_advice(error)
        raise
    finally:
        cache.close()
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

    run_main(main, node, make_arguments(call.facts, call.settings, fit_param, in_list=True), native)
    return said


def takes_rows(map_fun: Callable[..., Any]) -> bool:
    """Whether a function can be called with ``_read_data``."""
    parameters = inspect.signature(map_fun).parameters
    return READ_DATA in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def said_of(value: Any) -> dict[str, Any]:
    """Return what a function says of its model by what it returns: ``metrics``, and ``model``, its path or "".

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
