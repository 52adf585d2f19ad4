"""How an ordinary model is declared: once, with how it is fed, what it is compared by, and its row of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KERAS, TF_KERAS = "keras", "tf_keras"
BOTH = (KERAS, TF_KERAS)


@dataclass(frozen=True)
class Ordinary:
    """A model that users build.

    Attributes
    ----------
    name : str
        That of its function.
    kind, words : str
        Its part of the page, and how its row begins.
    build : callable
        Makes the compiled model, given the Keras.
    features, label, weight : names of columns
        As for ``ctx.dataset``.
    change : callable or None
        Makes ``(x, y, w)`` of ``(x, y, w)``, as a user's ``map`` does.
    weighs : bool
        Whether it makes the weights of rows.
    fit : dict
        What ``fit`` is called with beside the dataset and the number of epochs.
    validates : bool
        Whether ``fit`` has some rows as ``validation_data``, as arrays.
    repeat : bool
        Whether the dataset is repeated, as for ``steps_per_epoch``.
    accumulates : int
        How many steps an update takes.
    train : callable or None
        A loop of one's own instead of ``fit``: ``train(keras, model, dataset, strategy, epochs)``.
    keras : tuple of str
        For which Keras it is.
    needs : str
        What that Keras has to have, such as ``"optimizers.Muon"``.
    since : (int, int)
        The first version in which Keras itself trains it, where that is not the oldest of the matrix.
    tolerance : float
        How much weights and reported numbers may differ from those of one process.
    by_chance : bool
        Whether it draws random numbers for rows: then only the losses are compared, and the nodes with each other.
    not_exact : dict of str to str
        Why it is not as in one process, by Keras; "" stands for no reason, and exactness.
    short : bool
        Whether the short legs of ``make matrix`` train it.
    """

    name: str
    kind: str
    words: str
    build: Callable[[Any], Any]
    features: Sequence[str] = ("x",)
    label: str | Sequence[str] | Mapping[str, str] = "y"
    weight: str | None = None
    change: Callable[..., Any] | None = None
    weighs: bool = False
    fit: Mapping[str, Any] = field(default_factory=dict)
    validates: bool = False
    repeat: bool = False
    accumulates: int = 1
    train: Callable[..., Any] | None = None
    keras: tuple[str, ...] = BOTH
    needs: str = ""
    since: tuple[int, int] = (0, 0)
    tolerance: float = 1e-5
    by_chance: bool = False
    not_exact: Mapping[str, str] = field(default_factory=dict)
    short: bool = False


ORDINARY: dict[str, Ordinary] = {}
_kind: list[str] = [""]


def kind(heading: str) -> None:
    """Begin a part of the page."""
    _kind[0] = heading


def ordinary(words: str, **fields: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Declare a model by the function that builds it."""

    def declare(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        why = fields.pop("not_exact", {})
        why = dict.fromkeys(fields.get("keras", BOTH), why) if isinstance(why, str) else why
        name = build.__name__
        assert name not in ORDINARY, name
        ORDINARY[name] = Ordinary(name, _kind[0], words, build, not_exact=why, **fields)
        return build

    return declare
