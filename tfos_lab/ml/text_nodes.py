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
from tfos_lab.ml.text_arguments import make_arguments
from tfos_lab.ml.text_reader import ReadData, RowCache

if TYPE_CHECKING:
    from tfos_lab.compat.TFSparkNode import TFNodeContext
    from tfos_lab.node.context.context import NodeContext

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
