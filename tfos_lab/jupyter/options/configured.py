"""Defaults that an administrator sets with traitlets: ``c.TfosLab.cluster_size = 4`` in a configuration of IPython."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from traitlets import Any as AnyTrait
from traitlets.config import Config, Configurable

from tfos_lab.core.options import Option, OptionType
from tfos_lab.jupyter.options.defaults import ADMIN, DEFAULTS
from tfos_lab.jupyter.options.table import OPTIONS
from tfos_lab.jupyter.options.values import nearest

logger = logging.getLogger(__name__)

# What belongs to one cell, and has no default that fits others.
_OF_ONE_CELL = (OptionType.ROWS, OptionType.SESSION, OptionType.ANYTHING, OptionType.LABEL, OptionType.COLUMNS)

CONFIGURABLE: Mapping[str, Option] = {one.name: one for one in OPTIONS if one.type not in _OF_ONE_CELL}


def _trait(one: Option) -> AnyTrait:
    # An option checks its values better than a trait could: its sentences say what is allowed.
    return AnyTrait(one.default, allow_none=True, help=f"{one.meaning}. {one.details}".rstrip()).tag(config=True)


#: One trait for each option that may have another default, for configuration files and their documentation.
TfosLab: type[Configurable] = type(
    "TfosLab",
    (Configurable,),
    {
        "__doc__": "Defaults of the options of %%tfos cells.",
        "__module__": __name__,
        **{name: _trait(one) for name, one in CONFIGURABLE.items()},
    },
)


def read_configuration(config: Config) -> None:
    """Take over the defaults of IPython's configuration; a wrong one is named in the log, and left out."""
    DEFAULTS.forget(ADMIN)
    given = dict(config["TfosLab"]) if "TfosLab" in config else {}
    for name, value in given.items():
        problems = problems_with(name, value)
        if problems:
            logger.warning("c.TfosLab.%s; it does not count", "; ".join(problems))
        else:
            DEFAULTS.set(ADMIN, {name: value})


def problems_with(name: str, value: object) -> list[str]:
    """Return what is wrong with a default of an option, in sentences that begin with the option's name."""
    known = CONFIGURABLE.get(name)
    if known is None:
        close = nearest(name, CONFIGURABLE)
        return [f"{name}: has no default to set; " + (f"did you mean {close}?" if close else "%tfos config lists all")]
    return known.problems(value)
