"""Options: fields of a dataclass that carry their meaning, their type and their check.

`option` declares such a field. Everything that deals with options is derived from the declaration: the checks, the
signature and the help of `tfos_lab.run`, the options of a ``%%tfos`` cell, their completion, and the tables of the
documents.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar, cast

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., object])

# Takes the name and the value of an option, returns one sentence per problem.
Check = Callable[[str, Any], Iterable[str]]

_METADATA_KEY = "option"


class OptionType(StrEnum):
    """What values an option takes; the text is the type's name in documents and messages."""

    WHOLE = "whole number"
    SECONDS = "seconds"
    FLAG = "flag"
    CHOICE = "choice"
    LABEL = "name"
    PATH = "folder"
    COLUMNS = "list of names"
    ENVIRONMENT = "dict"
    GPUS = "whole number, dict or `all`"
    ROWS = "DataFrame or RDD"
    SESSION = "SparkSession"
    ANYTHING = "anything"


class OptionGroup(StrEnum):
    """Under which heading documents list an option; in the order of the headings."""

    CLUSTER = "The cluster"
    ROWS = "Rows"
    CELL = "The cell"
    OUTPUT = "Output and TensorBoard"
    FAILURE = "Time and failure"


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option as declared.

    Attributes
    ----------
    keyword : str
        Name of the field, which is the keyword in Python.
    owner : type
        The dataclass that declares the field.
    name : str
        Name in a ``%%tfos`` cell: the keyword without its unit, unless the declaration says otherwise.
    type, choices : OptionType, tuple of str
        What values it takes; `choices` if it takes one of a few strings.
    group : OptionGroup
        Under which heading documents list it.
    meaning, details : str
        Half a sentence for tables; whole sentences for those who want to know more.
    default : object
        The value of an option that is not given.
    default_text : str
        How documents show the default, if not by its value.
    optional : bool
        Whether None is a value.
    none_is_default : bool
        Whether `tfos_lab.run` also accepts None, for the default.
    """

    keyword: str
    owner: type
    name: str
    type: OptionType
    group: OptionGroup
    meaning: str
    details: str = ""
    default: Any
    default_text: str = ""
    annotation: str = ""
    choices: tuple[str, ...] = ()
    optional: bool = False
    none_is_default: bool = False
    check: Check

    @property
    def type_text(self) -> str:
        """The type as documents show it: its name, or the choices."""
        return " | ".join(self.choices) or str(self.type)

    @property
    def shown_default(self) -> str:
        """The default as documents show it."""
        if self.default_text:
            return self.default_text
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, float):
            return f"{self.default:g}"
        return str(self.default) if self.default or self.default == 0 else "none"

    def problems(self, value: object) -> list[str]:
        """Return what is wrong with a value."""
        if value is None and self.optional:
            return []
        return list(self.check(self.keyword, value))


# ---- declaring ------------------------------------------------------------------------------------------------------


def accept(_name: str, _value: object) -> Iterable[str]:
    """Accept every value."""
    return ()


def option(
    default: T,
    type: OptionType,  # noqa: A002 - the word for it
    meaning: str,
    *,
    group: OptionGroup,
    name: str = "",
    details: str = "",
    default_text: str = "",
    choices: tuple[str, ...] = (),
    optional: bool = False,
    none_is_default: bool = False,
    check: Check | None = None,
) -> T:
    """Declare a field of a dataclass as an option; see `Option` for the parameters.

    Returns
    -------
    dataclasses.Field
        Typed as the default, so that type checkers compare that with the field's annotation.
    """
    declared = {
        "name": name,
        "type": type,
        "group": group,
        "meaning": meaning,
        "details": details,
        "default_text": default_text,
        "choices": choices,
        "optional": optional,
        "none_is_default": none_is_default,
        "check": check or (one_of(*choices, none=optional) if choices else accept),
    }
    metadata = {_METADATA_KEY: declared}
    if isinstance(default, dict):
        return cast("T", field(default_factory=default.copy, metadata=metadata))
    return field(default=default, metadata=metadata)


def options_of(owner: type) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in the order of its fields."""
    return tuple(
        _option_of(owner, declared) for declared in dataclasses.fields(owner) if _METADATA_KEY in declared.metadata
    )


def _option_of(owner: type, declared: dataclasses.Field[Any]) -> Option:
    facts = declared.metadata[_METADATA_KEY]
    factory = declared.default_factory
    return Option(
        **{**facts, "name": facts["name"] or declared.name.removesuffix("_s")},
        keyword=declared.name,
        owner=owner,
        default=factory() if callable(factory) else declared.default,
        annotation=str(declared.type),
    )


def problems_in(owner: type, values: Mapping[str, object]) -> list[str]:
    """Return what is wrong with values of a dataclass's options, each one taken by itself."""
    options = [one for one in options_of(owner) if one.keyword in values]
    return [problem for one in options for problem in one.problems(values[one.keyword])]


# ---- checks ---------------------------------------------------------------------------------------------------------


def whole(at_least: int = 0, *, needs: str = "a whole number is needed", too_small: str = "") -> Check:
    """Require an int (no bool) that is not below a bound."""

    def check(name: str, value: object) -> Iterable[str]:
        if not is_int(value):
            yield f"{name}={value!r}: {needs}"
        elif cast("int", value) < at_least:
            yield f"{name}={value!r}: {too_small or needs}"

    return check


def seconds(name: str, value: object) -> Iterable[str]:
    """Require a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        yield f"{name}={value!r}: a number of seconds is needed"


def one_of(*choices: str, none: bool = False) -> Check:
    """Require one of some strings."""

    def check(name: str, value: object) -> Iterable[str]:
        if value not in choices:
            yield f"{name}={value!r}: use one of {', '.join([*choices, 'None'] if none else choices)}"

    return check


def is_int(value: object) -> bool:
    """Whether a value is an int, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


# ---- signatures and docstrings --------------------------------------------------------------------------------------


def documented(owner: type[T]) -> type[T]:
    """Replace the line ``{options}`` in a dataclass's docstring by the descriptions of its options."""
    _describe_in(owner, owner)
    return owner


def takes_options(owner: type) -> Callable[[Function], Function]:
    """Show the options of a dataclass as the keywords of a function that takes them as ``**options``.

    `inspect.signature`, and with it the completion in notebooks, shows each keyword with its default; in the function's
    docstring, the line ``{options}`` is replaced by their descriptions.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        keywords = [_parameter(one) for one in options_of(owner)]
        function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        _describe_in(function, owner)
        return function

    return decorate


def _parameter(one: Option) -> inspect.Parameter:
    default = None if one.none_is_default else one.default
    annotation = f"{one.annotation} | None" if one.none_is_default else one.annotation
    return inspect.Parameter(one.keyword, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _describe_in(target: Callable[..., object], owner: type) -> None:
    if target.__doc__:  # python -OO drops it
        entries = "\n".join(_describe(one) for one in options_of(owner))
        # Python 3.13 drops the indentation of docstrings.
        line = re.compile(r"^( *)\{options\}$", re.MULTILINE)
        target.__doc__ = line.sub(lambda found: textwrap.indent(entries, found[1]), target.__doc__)


def _describe(one: Option) -> str:
    """Return an option as an entry of a NumPy docstring's section ``Parameters``."""
    sentence = f"{one.meaning[0].upper()}{one.meaning[1:]}. {one.details}".rstrip()
    text = textwrap.fill(sentence, 112, break_on_hyphens=False)
    default = one.default_text or repr(one.default)
    return f"{one.keyword} : {one.annotation}, default {default}\n{textwrap.indent(text, '    ')}"


def resolve_options(owner: type, given: dict[str, object], *, function: str) -> dict[str, object]:
    """Return the given options without those that are None for the default.

    Raises
    ------
    TypeError
        For an option that does not exist, as Python does.
    """
    known = {one.keyword: one for one in options_of(owner)}
    for keyword in given:
        if keyword not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {keyword!r}")
    return {
        keyword: value for keyword, value in given.items() if value is not None or not known[keyword].none_is_default
    }
