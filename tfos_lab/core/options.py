"""Options: entries of a `TypedDict` that carry their meaning, their type and their check.

Each entry is ``name: Annotated[type, Option(...)]``. Everything that deals with options is derived from the
declaration: the keywords and checks of each call, its signature and help, the attributes of a configuration, the line
of a ``%%tfos`` cell and its completion, the params of Spark ML's stages, and the tables of the documents.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tfos_lab.texts import nearest

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., object])

# Takes the name and the value of an option, returns one sentence per problem.
Check = Callable[[str, Any], Iterable[str]]

#: Who takes an option; ``run`` stands for `tfos_lab.start` and cells, too, and ``fit`` for the params of `TFEstimator`.
Call = Literal["run", "search", "parallel", "run_script", "fit", "train"]
ALL_CALLS: frozenset[str] = frozenset(get_args(Call))


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


@dataclass(frozen=True)
class Option:
    """One option as declared."""

    # Half a sentence for tables; whole sentences for those who want to know more.
    meaning: str
    # The value of an option that is not given.
    default: Any = None
    _: dataclasses.KW_ONLY
    # Under which heading documents list it.
    group: OptionGroup
    details: str = ""
    # Which calls take it; all by default. What none takes, only a configuration has.
    calls: frozenset[str] = ALL_CALLS
    # How documents show the default, if not by its value.
    default_text: str = ""
    # What values it takes; by default, what the annotation says.
    type: OptionType = OptionType.ANYTHING
    choices: tuple[str, ...] = ()
    # What else is wrong with a value; by default, that it is not of its type.
    check: Check | None = None
    # Whether calls also accept None, for the default.
    none_is_default: bool = False
    # What the declaration says besides: the name, the type as in Python, whether None is a value, and the `TypedDict`.
    name: str = ""
    annotation: str = ""
    optional: bool = False
    owner: object = None

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
        check = self.check or (one_of(*self.choices, none=self.optional) if self.choices else _CHECKS.get(self.type))
        return list(check(self.name, value)) if check else []


# ---- reading a declaration ------------------------------------------------------------------------------------------

_TYPES = {int: OptionType.WHOLE, float: OptionType.SECONDS, bool: OptionType.FLAG, list[str]: OptionType.COLUMNS}


@functools.cache
def options_of(owner: type) -> tuple[Option, ...]:
    """Return the options that a `TypedDict` declares, in the order of the declaration."""
    hints = get_type_hints(owner, include_extras=True)
    return tuple(_option_of(owner, name, hints[name]) for name in hints)


def _option_of(owner: type, name: str, hint: Any) -> Option:
    declared = next(one for one in hint.__metadata__ if isinstance(one, Option))
    kinds = get_args(hint.__origin__) if get_origin(hint.__origin__) in (Union, types.UnionType) else (hint.__origin__,)
    plain = [kind for kind in kinds if kind is not types.NoneType]
    choices = declared.choices or tuple(
        word for kind in plain if get_origin(kind) is Literal for word in get_args(kind)
    )
    kind = OptionType.CHOICE if choices else _TYPES.get(plain[0], declared.type)
    return dataclasses.replace(
        declared,
        name=name,
        owner=owner,
        type=declared.type if declared.type is not OptionType.ANYTHING else kind,
        choices=choices,
        optional=types.NoneType in kinds,
        annotation=" | ".join(_as_written(one) for one in kinds),
    )


def _as_written(kind: Any) -> str:
    if kind is types.NoneType:
        return "None"
    if get_origin(kind) is Literal:
        return f"{{{', '.join(map(repr, get_args(kind)))}}}".replace("'", '"')
    return re.sub(r"\b(\w+\.)+", "", str(kind)) if get_origin(kind) else getattr(kind, "__name__", str(kind))


def options_for(owner: type, call: str) -> tuple[Option, ...]:
    """Return those that a call takes."""
    return tuple(one for one in options_of(owner) if call in one.calls)


# All keywords of each function that takes options: what a misspelt one may mean.
_KEYWORDS: dict[str, list[str]] = {}


def given_options(owner: type, call: str, given: Mapping[str, object], *, function: str = "") -> dict[str, Any]:
    """Return the options that a call was given, without those that are None for the default.

    Raises TypeError for one that the call does not take, as Python raises it. ``function`` is its name, where that
    is not the call's.
    """
    function = function or call
    known = {one.name: one for one in options_for(owner, call)}
    for name in given:
        if name not in known:
            meant = nearest(name, _KEYWORDS.get(function, known))
            hint = f". Did you mean {meant!r}?" if meant else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
    return {name: value for name, value in given.items() if value is not None or not known[name].none_is_default}


def part_of(owner: type, values: Mapping[str, object]) -> dict[str, Any]:
    """Return those of the values that are of options of ``owner``, in the order given."""
    names = {one.name for one in options_of(owner)}
    return {name: value for name, value in values.items() if name in names}


def problems_in(owner: type, values: Mapping[str, object]) -> list[str]:
    """Return what is wrong with values of options, each one taken by itself."""
    return [problem for one in options_of(owner) if one.name in values for problem in one.problems(values[one.name])]


# ---- configurations -------------------------------------------------------------------------------------------------


class Settings:
    """The values of options as attributes; see `settings_of`."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

        def __getattr__(self, name: str) -> Any: ...


def settings_of(owner: type) -> Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass with a field for each option of a `TypedDict`, described in its docstring."""

    def decorate(cls: type[T]) -> type[T]:
        hints = inspect.get_annotations(cls)
        for one in options_of(owner):
            hints[one.name] = one.annotation
            default = one.default
            setattr(cls, one.name, field(default_factory=default.copy) if isinstance(default, dict) else default)
        cls.__annotations__ = hints
        _describe_in(cls, options_of(owner))
        return dataclass(frozen=True, kw_only=True)(cls)

    return decorate


# ---- checks ---------------------------------------------------------------------------------------------------------


def whole(at_least: int = 0, *, needs: str = "a whole number is needed", too_small: str = "") -> Check:
    """Require an int (no bool) that is not below a bound."""

    def check(name: str, value: object) -> Iterable[str]:
        if not is_int(value):
            yield f"{name}={value!r}: {needs}"
        elif cast("int", value) < at_least:
            yield f"{name}={value!r}: {too_small or needs}"

    return check


def must(fit: Callable[[Any], bool], needs: str) -> Check:
    """Require a value that fits."""

    def check(name: str, value: object) -> Iterable[str]:
        if not fit(value):
            yield f"{name}={value!r}: {needs}"

    return check


def one_of(*choices: str, none: bool = False) -> Check:
    """Require one of some strings."""

    def check(name: str, value: object) -> Iterable[str]:
        if value not in choices:
            close = nearest(value, choices) if isinstance(value, str) else None
            hint = f"; did you mean {close}?" if close else ""
            yield f"{name}={value!r}: use one of {', '.join([*choices, 'None'] if none else choices)}{hint}"

    return check


def is_int(value: object) -> bool:
    """Whether a value is an int, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is an int or a float, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


_CHECKS: Mapping[OptionType, Check] = {
    OptionType.COLUMNS: must(_are_names, "a list of names is needed"),
    OptionType.WHOLE: whole(),
    OptionType.SECONDS: must(lambda value: is_number(value) and value >= 0, "a number of seconds is needed"),
    OptionType.FLAG: must(lambda value: isinstance(value, bool), "True or False is needed"),
}


# ---- signatures and docstrings --------------------------------------------------------------------------------------


def takes_options(owner: type, call: str) -> Callable[[Function], Function]:
    """Show the options of a call as the keywords of a function that takes them as ``**options``.

    `inspect.signature`, and with it the completion in notebooks, shows each keyword with its default; in the function's
    docstring, the line ``{options}`` is replaced by their descriptions.
    """

    def decorate(function: Function) -> Function:
        options = options_for(owner, call)
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        keywords = [_parameter(one) for one in options]
        function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        _KEYWORDS[function.__name__] = [one.name for one in (*own, *keywords)]
        _describe_in(function, options)
        return function

    return decorate


def _parameter(one: Option) -> inspect.Parameter:
    default = None if one.none_is_default else one.default
    annotation = f"{one.annotation} | None" if one.none_is_default else one.annotation
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _describe_in(target: Callable[..., object], options: Iterable[Option]) -> None:
    if target.__doc__:  # python -OO drops it
        entries = "\n".join(_describe(one) for one in options)
        # Python 3.13 drops the indentation of docstrings.
        line = re.compile(r"^( *)\{options\}$", re.MULTILINE)
        target.__doc__ = line.sub(lambda found: textwrap.indent(entries, found[1]), target.__doc__)


def _describe(one: Option) -> str:
    """Return an option as an entry of a NumPy docstring's section ``Parameters``."""
    sentence = f"{one.meaning[0].upper()}{one.meaning[1:]}. {one.details}".rstrip()
    text = textwrap.fill(sentence, 112, break_on_hyphens=False)
    default = one.default_text or repr(one.default)
    return f"{one.name} : {one.annotation}, default {default}\n{textwrap.indent(text, '    ')}"
