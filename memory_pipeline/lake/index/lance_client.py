"""Import lancedb without its REST client, which takes two thirds of the time and speaks to LanceDB Cloud alone.

lancedb imports the client's classes to name them in signatures. Here they are stand-ins; the client is imported when
one is used, for instance by a program that is connected to LanceDB Cloud as well.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_CLIENT: Final = "lance_namespace_urllib3_client"


class _StandIn(type):
    """The type of the stand-ins: classes that become those of the client when they are called or asked."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _meant(cls)(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):  # Python and typing look for these to describe a class
            raise AttributeError(name)
        return getattr(_meant(cls), name)

    def __instancecheck__(cls, one: object) -> bool:
        return _CLIENT in sys.modules and isinstance(one, _meant(cls))


def _meant(cls: type) -> Any:
    return getattr(import_module(cls.__module__), cls.__name__)


class _StandIns(MetaPathFinder, Loader):
    """Finds modules of the client that have a stand-in of any name."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:  # noqa: ARG002  # the protocol
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == _CLIENT else None

    def exec_module(self, module: ModuleType) -> None:
        def make(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return _StandIn(name, (), {"__module__": module.__name__})

        module.__dict__["__getattr__"] = make


@contextmanager
def without_rest_client() -> Iterator[None]:
    """Import lancedb inside."""
    if _CLIENT in sys.modules or "lancedb" in sys.modules:
        yield
        return
    finder = _StandIns()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == _CLIENT]:
            del sys.modules[name]
