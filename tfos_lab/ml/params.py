"""What our Spark ML stages have in common: declared params with setters and getters, and what they hold beside these.

A stage declares its params as `Declaration` values, by the decorator `declares`. Programs of users import this module
on executors, too.
"""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pyspark.ml.param import Param, Params

from tfos_lab.errors import ConfigError, ParamError
from tfos_lab.ml.param_values import Convert

AnyStage = TypeVar("AnyStage", bound="type[Stage]")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """A param as declared, by a name in Spark ML's way, such as ``batchSize``.

    ``convert`` takes the name and a value; it returns the value to keep, or raises a `ParamError`. None is a value of
    ``optional`` params; others without a default have none until they are set, and setting None removes what was set.
    """

    name: str
    doc: str
    convert: Convert
    default: Any = None
    optional: bool = False

    @property
    def setter(self) -> str:
        """The name of the method that sets it."""
        return f"set{self.name[0].upper()}{self.name[1:]}"

    def accept(self, value: Any) -> Any:
        """Return the value to keep; raises a `ParamError` for what is no value of this param."""
        return None if value is None and self.optional else self.convert(self.name, value)


class Stage(Params):
    """A stage of a Spark ML pipeline whose params are declared by `declares`.

    Parameters
    ----------
    **params
        Values of params, by name.
    """

    declared: ClassVar[dict[str, Declaration]] = {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **params: Any) -> None:
        super().__init__()
        known = [each for each in self.declared.values() if each.optional or each.default is not None]
        self._setDefault(**{each.name: each.default for each in known})
        self.setParams(**params)

    def setParams(self, **params: Any) -> Self:
        """Set params by their names.

        Raises
        ------
        ParamError
            With every value that its param cannot have.
        TypeError
            For a name that is no param of this stage.
        """
        for name in params:
            if name not in self.declared:
                raise TypeError(self._unknown(name))
        problems: list[str] = []
        for name, value in params.items():
            try:
                self._set(**{name: value})
            except ParamError as error:
                problems += error.problems
        if problems:
            raise ParamError(problems)
        return self

    def _unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name, self.declared, 1) or difflib.get_close_matches(
            name.replace("_", "").lower(), self.declared, 1, 0.5
        )
        hint = f"did you mean {close[0]}?" if close else "see explainParams()"
        return f"{type(self).__name__} has no param {name!r}; {hint}"

    def set(self, param: Param[Any], value: Any) -> None:
        """Set a param of this stage."""
        self._shouldOwn(param)
        self._set(**{param.name: value})

    def _set(self, **kwargs: Any) -> Self:
        """Set params, as Spark's own methods do when they copy stages; None removes what was set."""
        for name, value in kwargs.items():
            declared = self.declared[name]
            if value is None and not declared.optional:
                self.clear(self.getParam(name))
            else:
                self._paramMap[self.getParam(name)] = declared.accept(value)
        return self

    def value_of(self, name: str) -> Any:
        """Return a param's value or default, or None if it has neither."""
        return self.getOrDefault(name) if self.isDefined(name) else None

    def all_values(self) -> dict[str, Any]:
        """Return the values of all params by name, None for those that have neither a value nor a default."""
        return {name: self.value_of(name) for name in self.declared}


def declares(*declarations: Declaration) -> Callable[[AnyStage], AnyStage]:
    """Give a stage its params, with a setter and a getter for each, and show them in its signature and docstring."""

    def decorate(stage: AnyStage) -> AnyStage:
        stage.declared = {**stage.declared, **{each.name: each for each in declarations}}
        for each in declarations:
            _add(stage, each)
        _show(stage, declarations)
        return stage

    return decorate


def _add(stage: type[Stage], declared: Declaration) -> None:
    name, title = declared.name, declared.setter[3:]

    def set_value(self: Stage, value: Any) -> Stage:
        return self._set(**{name: value})

    def get_value(self: Stage) -> Any:
        if not self.isDefined(name):
            raise ConfigError([f"{name} is not set, and has no default: call {declared.setter}(...) first"])
        return self.getOrDefault(name)

    _attach(stage, set_value, f"set{title}", f"Set ``{name}``, and return this stage. {declared.doc}.")
    _attach(stage, get_value, f"get{title}", f"Return ``{name}``, or its default. {declared.doc}.")
    param = Param(Params._dummy(), name, declared.doc, declared.accept)  # noqa: SLF001 - as Spark does
    setattr(stage, name, param)


def _attach(stage: type[Stage], function: Callable[..., Any], name: str, doc: str) -> None:
    function.__name__, function.__qualname__, function.__doc__ = name, f"{stage.__name__}.{name}", doc
    function.__module__ = stage.__module__
    setattr(stage, name, function)


def _show(stage: type[Stage], declarations: Iterable[Declaration]) -> None:
    signature = inspect.signature(stage.__init__)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    declarations = [each for each in declarations if each.name not in signature.parameters]
    keyword = inspect.Parameter.KEYWORD_ONLY
    params = [inspect.Parameter(each.name, keyword, default=each.default) for each in declarations]
    stage.__init__.__signature__ = signature.replace(parameters=[*own, *params])  # type: ignore[attr-defined]
    if stage.__doc__:  # python -OO drops it
        entries = []
        for each in declarations:
            text = textwrap.fill(f"{each.doc}.", 112, break_on_hyphens=False)
            entries.append(f"{each.name} : default {each.default!r}\n{textwrap.indent(text, '    ')}")
        stage.__doc__ = stage.__doc__.replace("    {params}", textwrap.indent("\n".join(entries), "    "))
