"""Read the files in `deploy/`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
#: Compose's interpolation: `${NAME:-default}`; `$$` is a dollar sign.
_PLACE = re.compile(r"\$(?:\$|\{(?P<name>\w+):(?P<kind>[-?])(?P<rest>[^}]*)\})")


class _UniqueKeys(yaml.SafeLoader):
    """Rejects repeated keys of a mapping. PyYAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise yaml.YAMLError(f"{doubled} stand twice, {node.start_mark}")
        return super().construct_mapping(node, deep)


def text_of(name: str) -> str:
    """Return a file of `deploy/`."""
    return (DEPLOY / name).read_text(encoding="utf-8")


def read_yaml(name: str) -> dict[str, Any]:
    """Return a YAML file of `deploy/`."""
    value = yaml.load(text_of(name), _UniqueKeys)
    assert isinstance(value, dict)
    return value


def read_variables(name: str) -> dict[str, str]:
    """Return the variables of an env file."""
    lines = [line for line in text_of(name).splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def compose(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return compose.yaml with these variables interpolated. No variable is required: profiles need others."""
    filled: dict[str, Any] = _filled(read_yaml("compose.yaml"), variables)
    return {key: value for key, value in filled.items() if not key.startswith("x-")}


def strings(value: Any) -> Iterator[str]:
    """Yield every text in a document, except keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def variables_of(value: Any) -> set[str]:
    """Return the variables that a Dagster configuration reads with `{env: NAME}`."""
    if isinstance(value, dict):
        if set(value) == {"env"} and isinstance(value["env"], str):
            return {value["env"]}
        return set().union(*map(variables_of, value.values()))
    if isinstance(value, list):
        return set().union(*map(variables_of, value))
    return set()


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, variables) for inner in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        if match["name"] is None:
            return "$"
        found = variables.get(match["name"], "")
        assert match["kind"] == "-", match[0]
        return found or match["rest"]

    return _PLACE.sub(fill, value)
