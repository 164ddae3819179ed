"""Who inherits what: from the defaults to a workspace to an agent, and at each level from `completion` to a task.

A task is extraction, the summaries of one grain, or injection. At each level `completion` is applied, then the task's
own section; a later one wins key by key, `parameters` and `price` as a whole. One thing is kept apart, so that no
prompt is sent with another provider's key or to another provider's address: **what is said about a model goes with that
model**.

- A section that names a `model` says all about it: of :data:`ABOUT_A_MODEL` it inherits nothing, even if the model is
  the one that it would inherit, since it must not depend on others where its key is sent.
- A section that names another `api_base` does not inherit the `api_key`.
- A task that has a model or an address of its own takes nothing of :data:`ABOUT_A_MODEL` from a later `completion` that
  names no model, but for an `api_key` of the same provider at the same address. One that names a model takes its place.

The keys of `memories` are inherited one by one; what of them a model does, that of `completion` or of `injection` does.
The predicates of `graph` are inherited one by one: a lower level says of a predicate what it says, and of all others
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory_pipeline.configuration.checks import DETERMINISTIC
from memory_pipeline.configuration.sections import given
from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain

if TYPE_CHECKING:
    from memory_pipeline.configuration.sections import Graph, Level

Keys = Mapping[str, object]

#: The keys that hold for one model and are not handed on to another.
ABOUT_A_MODEL = (
    "api_base",
    "api_key",
    "price",
    "parameters",
    "context_tokens",
    "max_output_tokens",
    "answer_format",
)


@dataclass(frozen=True, slots=True)
class Inherited:
    """What holds at one level: the keys that were given, of `completion` and of each task; the predicates declared."""

    completion: Keys = field(default_factory=dict)
    extraction: Keys = field(default_factory=dict)
    summaries: Mapping[Grain, Keys] = field(default_factory=lambda: {grain: {} for grain in SUMMARY_GRAINS})
    injection: Keys = field(default_factory=dict)
    memories: Keys = field(default_factory=dict)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)

    def at(self, level: Level) -> Inherited:
        """Return what holds at the next level, where `level` is said."""
        section = given(level.completion)
        completion = _joined(self.completion, section)

        def task(inherited: Keys, own: Keys) -> Keys:
            return _joined(self._shared(inherited, section, completion), own)

        return Inherited(
            completion=completion,
            extraction=task(self.extraction, given(level.extraction)),
            summaries={
                grain: task(keys, given(getattr(level.summaries, grain.value)))
                for grain, keys in self.summaries.items()
            },
            injection=task(self.injection, given(level.injection)),
            memories={**self.memories, **given(level.memories)},
            vocabulary=_declared(self.vocabulary, level.graph) if given(level.graph) else self.vocabulary,
        )

    def _shared(self, task: Keys, section: Keys, completion: Keys) -> Keys:
        """Return what a task has after a level's `completion` section, which made `completion` of what was before."""
        is_same = _model(task) == _model(self.completion) and _address(task) == _address(self.completion)
        if "model" in section or is_same:
            return _joined(task, section)
        usable = _without(section, ABOUT_A_MODEL)
        if "api_key" in section and _provider(task) == _provider(completion) and _address(task) == _address(completion):
            usable["api_key"] = section["api_key"]
        return {**task, **usable}


def _declared(inherited: Vocabulary, graph: Graph) -> Vocabulary:
    """Return what a level makes of the predicates that it inherits; none of its own is in both lists."""
    single, multi = frozenset(graph.single_valued), frozenset(graph.multi_valued)
    return Vocabulary(inherited.single - multi | single, inherited.multi - single | multi)


def _joined(inherited: Keys, section: Keys) -> Keys:
    """Return what a section makes of what it inherits."""
    if "model" in section:
        inherited = _without(inherited, ABOUT_A_MODEL)
    elif "api_base" in section and _address(section) != _address(inherited):
        inherited = _without(inherited, ("api_key",))
    return {**inherited, **section}


def _without(keys: Keys, names: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name, value in keys.items() if name not in names}


def _model(keys: Keys) -> object:
    return keys.get("model", DETERMINISTIC)


def _provider(keys: Keys) -> str:
    return str(_model(keys)).partition("/")[0]


def _address(keys: Keys) -> object:
    return keys.get("api_base")
