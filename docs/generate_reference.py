"""Write ``docs/reference.md`` from the code: the commands, the environment variables and the configuration.

``make docs`` runs it. A test fails when the page is out of date.
"""

from __future__ import annotations

import re
from collections import Counter
from inspect import cleandoc
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline import settings
from memory_pipeline.cli import cli
from memory_pipeline.configuration import EXAMPLE, model_settings, sections

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import BaseModel

PAGE = Path(__file__).with_name("reference.md")

_HEAD = """\
# Reference

This page is generated from the code. Run `make docs` to write it again; do not edit it by hand.

- [Commands](#commands)
- [Environment variables](#environment-variables)
- [Configuration](#configuration): every section and key of `config/workspaces.yaml`
- [Example configuration](#example-configuration)

"""
_SECTIONS: dict[str, type[BaseModel]] = {
    "defaults": sections.DefaultsSection,
    "workspaces.NAME": sections.WorkspaceSection,
    "workspaces.NAME.agents.NAME": sections.AgentSection,
    "completion": model_settings.TextModelSettings,
    "extraction": model_settings.ExtractionSettings,
    "summaries.GRAIN": model_settings.Summarization,
    "graph": sections.GraphSettings,
    "injection": model_settings.Injection,
    "injection.cross_encoder": model_settings.CrossEncoder,
    "memories": sections.MemoriesSettings,
    "embedding": model_settings.Embedding,
    "embedding of a workspace": sections.EmbeddingKey,
    "budget": model_settings.Budget,
    "retention": sections.RetentionSection,
}
_TYPES = {"integer": "whole number", "string": "text", "boolean": "true or false"}
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}


def page() -> str:
    """Return the text of the page."""
    lines = ["## Commands", "", *_commands(), "## Environment variables", "", *_variables()]
    lines += ["## Configuration", "", *_configuration()]
    lines += ["## Example configuration", "", "`memory-pipeline config --example` prints it.", ""]
    return _HEAD + "\n".join([*lines, "```yaml", EXAMPLE.rstrip(), "```", ""])


def _commands() -> Iterator[str]:
    contexts = list(_walk(click.Context(cli, info_name="memory-pipeline")))
    times = Counter(option for context in contexts for option in _options(context))
    common = [option for option, count in times.items() if count > len(contexts) / 2]
    summaries = [(_link(context), escaped(context.command.get_short_help_str(limit=200))) for context in contexts[1:]]
    yield from _table(("command", "summary"), summaries)
    yield from ("Every command has `--help`. Most have these options:", "")
    yield from _table(("option", "meaning"), [(f"`{name}`", escaped(text)) for name, text in common])
    for context in contexts:
        yield from _command(context, common)


def _link(context: click.Context) -> str:
    path = context.command_path
    return f"[{path.partition(' ')[2]}](#{path.replace(' ', '-')})"


def _options(context: click.Context) -> list[tuple[str, str]]:
    """Return the options of a command but ``--help``, each with its help."""
    records = (option.get_help_record(context) for option in context.command.params)
    return [record for record in records if record]


def _walk(context: click.Context) -> Iterator[click.Context]:
    """Yield a command and all below it, in the order in which help lists them."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield from _walk(click.Context(command, info_name=name, parent=context))


def _command(context: click.Context, common: list[tuple[str, str]]) -> Iterator[str]:
    command = context.command
    yield f"### {context.command_path}"
    yield ""
    yield "```text"
    yield " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield "```"
    yield ""
    yield from _paragraphs(cleandoc(command.help or ""))
    rows = [(f"`{name}`", escaped(text)) for name, text in _options(context) if (name, text) not in common]
    if rows:
        yield from _table(("option", "meaning"), rows)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield help as Markdown; a paragraph that begins with click's backspace mark keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = paragraph.splitlines()
        if lines[0].strip() == "\b":
            yield from ("```text", *dedent("\n".join(lines[1:])).splitlines(), "```", "")
        else:
            yield from (escaped(" ".join(line.strip() for line in lines)), "")


def _variables() -> Iterator[str]:
    """Yield the table in the docstring of ``settings``, whose columns are set apart by spaces."""
    _, heads, rows, _ = re.split(r"^=+ .*=+$", settings.__doc__ or "", flags=re.MULTILINE)
    ruler = next(line for line in (settings.__doc__ or "").splitlines() if line.startswith("=="))
    starts = [match.start() for match in re.finditer(r"=+", ruler)]
    cells: list[list[str]] = []
    for line in rows.strip("\n").splitlines():
        if line[0] != " " and "  " not in line:
            cells.append([line, "", ""])  # a name that is wider than its column has a line of its own
            continue
        parts = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
        if parts[0]:
            cells.append(parts)
        else:
            cells[-1] = [f"{old} {new}".strip() for old, new in zip(cells[-1], parts, strict=True)]
    names = (f"`{name}`" if "`" not in name else name for name, _, _ in cells)
    yield from _table(
        tuple(heads.split()),
        [(plain(name), plain(default), plain(text)) for name, (_, default, text) in zip(names, cells, strict=True)],
    )


def _configuration() -> Iterator[str]:
    yield "A key that is left out is inherited: an agent's from its workspace, a workspace's from `defaults`. A section"
    yield "that names a `model` inherits nothing about how that model is reached."
    yield ""
    shared = _keys(model_settings.TextModelSettings)
    for name, model in _SECTIONS.items():
        yield from (f"### {name}", "")
        rows = _keys(model)
        if issubclass(model, model_settings.TextModelSettings) and rows != shared:
            rows = [row for row in rows if row not in shared]
            yield from ("All keys of [completion](#completion), and these:", "")
        yield from _table(("key", "accepts", "default", "meaning"), rows)


def _keys(model: type[BaseModel]) -> list[tuple[str, ...]]:
    """Return for each key its name, what it accepts, its default and its meaning."""
    meanings = _meanings(model)
    return [
        (f"`{key}`", escaped(_type(schema)), _default(schema), escaped(plain(meanings.get(key, ""))))
        for key, schema in model.model_json_schema()["properties"].items()
    ]


def _meanings(model: type) -> dict[str, str]:
    """Return what the docstrings of a class and of its bases say of their attributes."""
    meanings: dict[str, str] = {}
    for each in reversed(model.__mro__):
        _, found, attributes = (each.__dict__.get("__doc__") or "").partition("Attributes:\n")
        if not found:
            continue
        for names, text in re.findall(r"^ {8}([\w, ]+): (.*(?:\n {12}.*)*)", attributes, re.MULTILINE):
            meaning = re.sub(r"\bNone\b", "`null`", " ".join(text.split()))
            meanings |= dict.fromkeys(names.split(", "), f"{meaning[:1].upper()}{meaning[1:]}")
    return meanings


def _type(schema: dict[str, Any]) -> str:
    """Return what a key accepts: its description where the model has one, else its type and bounds."""
    if "$ref" in schema or (schema.get("type") == "object" and "description" not in schema):
        return "a section"
    if "description" in schema:
        return str(schema["description"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return ", or ".join(_type(each) for each in schema["anyOf"])
    bounds = [f"{word} {schema[key]:,}" for key, word in _BOUNDS.items() if key in schema]
    kind = _TYPES.get(schema["type"], schema["type"])
    return f"{kind}, {' and '.join(bounds)}" if bounds else kind


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    if isinstance(default, dict | list) or "default" not in schema:
        return ""
    return f"`{'null' if default is None else str(default).lower() if isinstance(default, bool) else default}`"


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table without the columns that are empty."""
    columns = [column for column in zip(heads, *rows, strict=True) if any(column[1:])]
    heads, *rows = zip(*columns, strict=True)
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"
    yield ""


def plain(text: str) -> str:
    """Return reStructuredText's code marks as Markdown's."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")


def escaped(text: str) -> str:
    """Return a text in which Markdown finds no tags and no emphasis outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([<*\[])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
