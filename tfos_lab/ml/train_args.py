"""What functions of users get as ``args`` from a `TFEstimator`: their own arguments, and its params."""

from __future__ import annotations

from collections.abc import KeysView, Mapping
from typing import Any

from tfos_lab.compat.namespace import Namespace
from tfos_lab.ml.param_values import snake_case

# Arguments are there by their own names already; classes for Keras are no arguments.
_NO_ARGUMENTS = ("args", "customObjects")


class TrainArgs(Namespace):
    """Arguments and params, as attributes and as items.

    Each param has its own name and the same in Python's spelling: ``args.batchSize`` is ``args.batch_size``. Where an
    argument and a param have the same name, the param counts, since it is what the cluster does.

    Examples
    --------
    >>> args = TrainArgs.of({"lr": 0.1}, {"batchSize": 32, "weightCol": None})
    >>> args.lr, args["batchSize"], args.batch_size, args.get("decay", 0.0)
    (0.1, 32, 32, 0.0)
    """

    @classmethod
    def of(cls, arguments: Mapping[str, Any], params: Mapping[str, Any]) -> TrainArgs:
        """Return arguments together with params; params without a value are None."""
        known = {name: value for name, value in params.items() if name not in _NO_ARGUMENTS}
        return cls({**arguments, **{snake_case(name): value for name, value in known.items()}, **known})

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def keys(self) -> KeysView[str]:
        """Return the names, so that ``dict(args)`` and ``**args`` work."""
        return vars(self).keys()

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument or param, or a default where there is none of this name."""
        return vars(self).get(name, default)
