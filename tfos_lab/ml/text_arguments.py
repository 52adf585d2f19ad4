"""What a text estimator's function gets as ``args``: dicts whose keys can be read as attributes, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
