"""Commands that a method of the library declares: its signature and docstring give the options and the help."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import Day, Json, Time, common, echo, scope_options
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from memory_pipeline.cli.common import AgentMemory
    from memory_pipeline.parameters import Parameter


class Outcome(click.Choice[str]):
    """Whether an experience ended well."""

    def __init__(self) -> None:
        super().__init__(["succeeded", "failed"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a boolean."""
        return value if isinstance(value, bool) else super().convert(value, param, ctx) == "succeeded"


#: Options whose names are not those of their parameters.
_FLAGS = {
    "configuration": "--config", "conversation_id": "--conversation", "first": "--from", "is_estimate": "--estimate",
    "is_point_in_time": "--point-in-time/--lasting", "last": "--to", "maximum_days_ago": "--max-days-ago",
    "memory_class": "--class", "minimum_days_ago": "--min-days-ago", "minimum_importance": "--min-importance",
    "minimum_score": "--min-score", "outcome_success": "--outcome", "session_id": "--session", "sources": "--source",
    "tags": "--tag", "user_id": "--preferences-of",
}  # fmt: skip
#: The help of options that mean the same in all commands.
_HELP = {
    "now": "Use this time instead of the current one, e.g. 2025-01-31T12:00Z.",
    "editor": "Editor of the change.",
    "reason": "Reason, shown by `explain`.",
    "limit": "Maximum number of results.",
}
#: The option of a preference's user. The option --user names the user whose memory it is.
OWNER = "owner"
#: Parameters that options for all commands have the names of, with those that they have here.
_OTHERS = {"user_id": OWNER, "agent": "other_agent"}
_METAVARS = {"answer": "MODEL", "at": "TIME", "budget": "TOKENS", "judge": "MODEL", "now": "TIME"}
_TYPES: Mapping[str, click.ParamType[Any]] = {"outcome_success": Outcome(), "since": Day(), "until": Day()}
_KINDS: Mapping[str, Any] = {
    "integer": click.INT, "number": click.FLOAT, "boolean": click.BOOL, "time": Time(), "json": Json(),
    "file": click.Path(path_type=Path, dir_okay=False), "string": click.STRING,
}  # fmt: skip


class VerbCommand(click.Command):
    """A command with the parameters of a function as its options and, without help of its own, the docstring.

    It is a function of the command line, of which each parameter in the docstring is an option; or a method of the
    library, named as ``package.module:Class.method``. This is imported when it is needed, since that takes long. An
    option that is not given is no argument of the call.
    """

    def __init__(
        self,
        *args: Any,
        method: str | Callable[..., None],
        arguments: Collection[str] = (),
        without: Collection[str] = (),
        defaults: Mapping[str, object] = MappingProxyType({}),
        **attributes: Any,
    ) -> None:
        """`arguments` are optional and have no flag, those in `without` are left out; `defaults` replace others."""
        self._method, self._arguments, self._without, self._defaults = method, arguments, without, defaults
        super().__init__(*args, **attributes)

    @property
    def help(self) -> str | None:
        """The help of the command, or of the method."""
        return self._help if isinstance(self._help, str) else _help_of(self._method)

    @help.setter  # noqa: A003  # as in the base class
    def help(self, text: str | None) -> None:
        self._help = text

    @property
    def params(self) -> list[click.Parameter]:
        """The parameters of the method, and of the command."""
        if self._own[: len(self._derived)] != self._derived:
            self._own[:0] = self._derived
        return self._own

    @params.setter
    def params(self, own: list[click.Parameter]) -> None:
        self._own = own

    @cached_property
    def _derived(self) -> list[click.Parameter]:
        from memory_pipeline.parameters import parameters_of

        known = [*parameters_of(_resolved(self._method), only_described=not isinstance(self._method, str))]
        found = [one for one in known if one.name not in self._without]
        names = {one.name for one in known}
        given = [replace(one, default=self._defaults.get(one.name, one.default)) for one in found]
        options: list[click.Parameter] = [
            _argument(one) if self._is_argument(one) else _option(one, names) for one in given
        ]
        if isinstance(self._method, str):
            for one in options:
                one.name = _OTHERS.get(one.name or "", one.name)
        return options

    def _is_argument(self, parameter: Parameter) -> bool:
        return parameter.is_required or parameter.name in self._arguments

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command with what is given."""
        missing = {one.name for one in self._derived if ctx.params[one.name or ""] in (None, ())}
        ctx.params = {name: value for name, value in ctx.params.items() if name not in missing}
        return super().invoke(ctx)


def command(
    group: click.Group, options: Callable[[Any], Any] = common, *, name: str | None = None, **attributes: Any
) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a command of a function; see :class:`VerbCommand`, which takes the `attributes`."""

    def declared(function: Callable[..., None]) -> click.Command:
        return group.command(name, cls=VerbCommand, method=function, help=_help_of(function), **attributes)(
            options(function)
        )

    return declared


def verb(
    group: click.Group,
    method: str,
    opened: Callable[[AgentMemory], Any],
    shows: Callable[[Any], Iterable[str]],
    *,
    options: Callable[[Any], Any] = scope_options,
    record: Callable[[Any], object] = lambda found: found,
    note: Callable[[Any], str] = lambda _: "",
    unknown: str = "",
    name: str | None = None,
    **attributes: Any,
) -> None:
    """Add a command that calls a method of the opened object, and prints what it returns.

    Args:
        group: the commands of which it becomes one.
        method: see :class:`VerbCommand`.
        opened: returns the object.
        shows: returns the lines for people.
        options: adds the options that name the memory.
        record: returns what is printed as JSON.
        note: returns a text for standard error, such as that of :func:`nothing`.
        unknown: the error of an empty result, with the arguments in braces.
        name: by default that of the method.
        attributes: the others of :class:`VerbCommand`.
    """
    called = method.rpartition(".")[2]

    def command(agent: AgentMemory, as_json: bool, **given: Any) -> None:
        given |= {name: given.pop(other) for name, other in _OTHERS.items() if other in given}
        found = getattr(opened(agent), called)(**given)
        if unknown and not found:
            raise InputError(unknown.format_map({argument: shown(value) for argument, value in given.items()}))
        echo(record(found), shows(found), as_json=as_json, note=note(found))

    group.command(name or called, cls=VerbCommand, method=method, **attributes)(options(common(command)))


def nothing(text: str) -> Callable[[Any], str]:
    """Return a note for an empty result."""
    return lambda found: "" if found else text


def identified(memory_id: str) -> dict[str, object]:
    """Return the record of what was written."""
    return {"id": memory_id}


def written(memory_id: str) -> list[str]:
    """Return the line of what was written."""
    return [f"written: {memory_id}"]


def _resolved(method: str | Callable[..., object]) -> Any:
    return resolve_name(f"memory_pipeline.{method}") if isinstance(method, str) else method


def _help_of(method: str | Callable[..., object]) -> str:
    if not isinstance(method, str):
        return (inspect.getdoc(method) or "").partition("\nArgs:\n")[0]
    from memory_pipeline.parameters import prose_of

    return re.sub(r"^Return ", "Show ", re.sub(r"; (return|[Nn]one) [^.]*(?=\.)", "", prose_of(_resolved(method))))


def _argument(parameter: Parameter) -> click.Argument:
    name, is_required = parameter.name, parameter.is_required
    metavar = name.removesuffix("_id").upper() if name.endswith("_id") or name in _OTHERS else None
    text = _sentence(parameter.description) or None
    return click.Argument([name], type=_KINDS[parameter.kind], required=is_required, metavar=metavar, help=text)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _option(parameter: Parameter, names: Collection[str]) -> click.Option:
    name, default = parameter.name, parameter.default
    flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
    if name == "source" and "metadata" in names:  # a filter; --source names sources of hits
        flag = "--from-source"
    kind = _TYPES.get(name) or (click.Choice(parameter.choices) if parameter.choices else _KINDS[parameter.kind])
    if parameter.kind == "integer" and (parameter.least or parameter.most):
        kind = click.IntRange(parameter.least, parameter.most or None)
    described = f"{parameter.description} May be repeated." if parameter.is_list else parameter.description
    is_flag = parameter.kind == "boolean" and (default is False or "/" in flag)
    return click.Option(
        [flag, name],
        type=None if is_flag else kind,
        is_flag=is_flag,
        multiple=parameter.is_list,
        default=default if default != () else None,
        show_default=not is_flag and default not in (None, ()),
        metavar=_METAVARS.get(name) or {"time": "DATE", "json": "JSON"}.get(parameter.kind),
        help=_HELP.get(name) or _sentence(described),
    )
