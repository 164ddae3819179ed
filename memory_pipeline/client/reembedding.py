"""Change the embedder of a lake: build the other index, then name the embedder in the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_pipeline.configuration import Configuration
from memory_pipeline.configuration.changes import with_embedding
from memory_pipeline.errors import InputError
from memory_pipeline.lake.lake import CONFIGURATION, configuration_in
from memory_pipeline.models.factory import configured_models, reading_embedder
from memory_pipeline.steps.reembed import drop_index, is_named, reembed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.reembed import Reembedding

#: Settings that belong to a model, and not to its provider.
_OF_MODEL = ("model", "dimension", "price", "context_tokens")


def change_embedder(
    lake: Lake,
    clock: Callable[[], datetime],
    to: str | None = None,
    *,
    dimension: int | None = None,
    configuration: Path | None = None,
    switches: bool = True,
    accepts_missing: bool = False,
) -> Iterator[Reembedding]:
    """Build the index of a model beside the one in use, and then use it. Yield the progress, at last the result.

    The last step writes the lake's configuration, in one request. Before, readers and runs use the other embedder.

    Args:
        lake: it must exist.
        clock: returns the current time, UTC.
        to: the model, as in the configuration. The settings are those of an earlier index of this model, or else those
            of the present embedder if the provider is the same.
        dimension: length of the vectors; required for a hosted model that the lake does not know.
        configuration: a file in place of `to`, that becomes the lake's configuration; its embedder is meant.
        switches: whether the embedder is used once its index is complete.
        accepts_missing: see :func:`~memory_pipeline.steps.reembed.reembed`.

    Raises:
        InputError: not exactly one of `to` and `configuration` is given.
        ConfigurationError: the settings are invalid, or the configuration cannot be changed.
        LakeError: there is no lake, or the embedder failed.
    """
    if (to is None) == (configuration is None):
        raise InputError("give --to MODEL, or --config FILE with the new embedder")
    settings = None if to is None else _settings(lake, to, dimension)

    def text() -> str:
        if configuration is not None:
            configuration_in(configuration)
            return configuration.read_text("utf-8")
        return with_embedding((lake.storage.read(CONFIGURATION) or b"").decode(), settings or {})

    source = lake.storage.locate(CONFIGURATION) if configuration is None else str(configuration)
    wanted = Configuration.parse(text(), source)
    chosen = wanted.embedding.model_dump(mode="json", exclude_unset=True)
    models = configured_models(wanted, lake.calls, lake.calendar.timezone, clock)
    last: Reembedding | None = None
    for last in reembed(lake, models.embedder, models.store, chosen, accepts_missing=accepts_missing):
        if not last.is_complete:
            yield last
    if switches:
        present = lake.configuration().embedding
        before = lake.indices.find(reading_embedder(lake.configuration(), clock))
        if before is not None:
            before.describe({"settings": present.model_dump(mode="json", exclude_unset=True)})
        lake.storage.write(CONFIGURATION, text().encode())
        # What runs have added meanwhile. They use the new embedder from now on.
        list(reembed(lake, models.embedder, models.store, chosen, accepts_missing=True))
    if last is not None:
        yield last


def drop_embedder(lake: Lake, clock: Callable[[], datetime], name: str) -> list[str]:
    """Delete the index of an embedder that is not in use; see :func:`~memory_pipeline.steps.reembed.drop_index`."""
    return drop_index(lake, name, reading_embedder(lake.configuration(), clock))


def _settings(lake: Lake, model: str, dimension: int | None) -> dict[str, Any]:
    present = lake.configuration().embedding
    known = [present.model_dump(mode="json", exclude_unset=True)]
    known += [index.settings for index in lake.indices.all() if index.settings and is_named(index, model)]
    for settings in known:
        if settings.get("model", present.model) == model and dimension in (None, settings.get("dimension")):
            return {"model": model, **settings}
    settings = {}
    if model.partition("/")[0] == present.provider:
        settings = {name: value for name, value in known[0].items() if name not in _OF_MODEL}
    return {"model": model, **settings} | ({} if dimension is None else {"dimension": dimension})
