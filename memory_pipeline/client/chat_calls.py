"""The calls of chat clients: where a client has them, and which argument has the messages."""

from __future__ import annotations

import inspect
from copy import copy
from functools import wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: The calls of clients, by the object that has them.
_CALLS: Final = {
    "chat.completions": ("create", "parse"),
    "beta.chat.completions": ("create", "parse"),
    "responses": ("create", "parse"),
    "messages": ("create", "parse", "stream"),
    "beta.messages": ("create", "parse", "stream"),
}
#: The calls of LiteLLM's Router.
_OF_ROUTER: Final = ("completion", "acompletion")
#: Methods that return another client.
_COPIES: Final = ("copy", "with_options")


class Argument(NamedTuple):
    """The argument of a function that has the messages: its name, and its position if it has one."""

    name: str
    position: int | None

    def messages(self, args: Sequence[Any], options: Mapping[str, Any]) -> list[Any]:
        """Return the messages of a call; none if there are none."""
        given = self._given(args, options)
        if isinstance(given, str):
            return [{"role": "user", "content": given}] if given else []
        return list(given) if isinstance(given, list | tuple) else []

    def replaced(self, args: tuple[Any, ...], options: dict[str, Any], prompt: list[Any]) -> tuple[Any, Any]:
        """Return the arguments of a call with other messages."""
        new = prompt[0]["content"] if isinstance(self._given(args, options), str) else prompt
        if self.name in options or self.position is None:
            return args, {**options, self.name: new}
        return (*args[: self.position], new, *args[self.position + 1 :]), options

    def _given(self, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        if self.position is not None and self.name not in options and self.position < len(args):
            return args[self.position]
        return options.get(self.name)


def argument_of(function: Any) -> Argument | None:
    """Return the argument that has the messages; None if the function has none."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    # Functions of embeddings have an input too.
    name = "input" if "input" in parameters and "previous_response_id" in parameters else "messages"
    if name not in parameters:
        takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        return Argument(name, None) if takes_any and not parameters.keys() & {"input", "prompt"} else None
    is_keyword = parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    return Argument(name, None if is_keyword else list(parameters).index(name))


def with_calls(client: Any, around: Callable[[Any], Any]) -> Any:
    """Return a copy of a client in which `around` replaces each call; None if it has no such calls.

    The copy has the same class. So have its parts, so that their other methods, such as ``stream`` and
    ``with_raw_response``, use the replaced calls.

    Raises:
        TypeError: the client cannot be copied.
        AttributeError: its attributes cannot be set.
    """
    new = _copy_of(client)
    found = False
    for path, names in _CALLS.items():
        try:
            target = attrgetter(path)(client)
        except AttributeError:
            continue
        methods = {name: getattr(target, name) for name in names if callable(getattr(target, name, None))}
        if not methods:
            continue
        owner, found = new, True
        for name in path.split("."):
            setattr(owner, name, _copy_of(getattr(owner, name)))
            owner = getattr(owner, name)
        for name, method in methods.items():
            setattr(owner, name, around(method))
    if all(callable(getattr(client, name, None)) for name in _OF_ROUTER):
        for name in _OF_ROUTER:
            setattr(new, name, around(getattr(client, name)))
        found = True
    for name in _COPIES:
        if found and callable(method := getattr(client, name, None)):
            setattr(new, name, _copying(method, around))
    return new if found else None


def _copying(method: Callable[..., Any], around: Callable[[Any], Any]) -> Callable[..., Any]:
    @wraps(method)
    def copied(*args: Any, **options: Any) -> Any:
        return with_calls(method(*args, **options), around)

    return copied


def _copy_of(value: Any) -> Any:
    """Return a shallow copy of a client or a part of it, without its cached views, which call the original."""
    new = copy(value)
    for name in [name for name in vars(new) if name.startswith("with_")]:
        delattr(new, name)
    return new
