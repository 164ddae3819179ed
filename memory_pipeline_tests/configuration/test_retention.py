"""Retention in the configuration: plans, overrides and contradictions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.configuration import Configuration, parse_retention
from memory_pipeline.configuration.sections import RetentionSection
from memory_pipeline.domain.retention import PLANS, Retention, RetentionClass
from memory_pipeline.errors import ConfigurationError
from memory_pipeline_tests.effort import examples

WORKING = ("conversations", "facts", "preferences")
SUMMARIES = ("daily", "weekly", "monthly", "quarterly", "yearly")


def section(keys: dict[str, str]) -> str:
    return f"{{retention: {{{', '.join(f'{key}: {text}' for key, text in keys.items())}}}}}"


def kept(text: str, workspace_id: str = "acme") -> dict[str, str]:
    """Return the retention of a workspace."""
    return Configuration.parse(text, "file").retention(workspace_id).describe()


def refused(text: str) -> list[str]:
    """Return the lines of the error."""
    with pytest.raises(ConfigurationError) as refusal:
        Configuration.parse(text, "file")
    return str(refusal.value).splitlines()


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_is_named_in_the_defaults_or_in_a_workspace(plan: str) -> None:
    assert kept(f"defaults: {{retention: {{plan: {plan}}}}}") == PLANS[plan].describe()
    text = f"workspaces: {{acme: {{retention: {{plan: {plan}}}}}}}"
    assert kept(text) == PLANS[plan].describe()
    assert kept(text, "other") == PLANS["forever"].describe()


def test_every_plan_and_class_has_a_key() -> None:
    assert set(RetentionSection.model_fields) == {"plan", "working", *RetentionClass}


@pytest.mark.parametrize("name", RetentionClass)
def test_each_class_has_a_duration_of_its_own(name: str) -> None:
    # Summaries outlive their sources, so the sources of a day are kept for an hour here.
    everything = {**dict.fromkeys(WORKING, "1h"), **dict.fromkeys(SUMMARIES, "2h"), "graph": "2h"}
    everything[name] = "1h" if name == "daily" else "2h"
    for coarser in SUMMARIES[SUMMARIES.index(name) + 1 :] if name in SUMMARIES else ():
        everything[coarser] = "3h"
    assert kept(f"defaults: {section(everything)}") == everything


def test_working_is_the_default_of_its_classes() -> None:
    free = PLANS["free"].describe()
    assert kept("defaults: {retention: {plan: free, working: 5d}}") == free | dict.fromkeys(WORKING, "5d")
    for order in ("working: 5d, facts: 1y", "facts: 1y, working: 5d"):
        said = kept(f"defaults: {{retention: {{plan: free, {order}}}}}")
        assert said == free | {"conversations": "5d", "facts": "1y", "preferences": "5d"}


def test_a_workspace_overrides_the_defaults_key_by_key() -> None:
    defaults = "defaults: {retention: {plan: free, facts: 1y, daily: 40d}}\n"
    inherited = PLANS["free"].describe() | {"facts": "1y", "daily": "40d"}
    assert kept(defaults) == inherited
    assert kept(defaults + "workspaces: {acme: {retention: }}") == inherited
    assert kept(defaults + "workspaces: {acme: {retention: {conversations: 40d}}}") == inherited | {
        "conversations": "40d"
    }
    # "working" includes facts.
    assert kept(defaults + "workspaces: {acme: {retention: {working: 1h}}}") == inherited | dict.fromkeys(WORKING, "1h")


def test_a_workspace_that_names_a_plan_inherits_nothing() -> None:
    defaults = "defaults: {retention: {plan: free, facts: 1y, graph: 2y}}\n"
    assert kept(defaults + "workspaces: {acme: {retention: {plan: pro, yearly: forever}}}") == {
        **PLANS["pro"].describe(),
        "yearly": "forever",
    }


def test_retentions_lists_all_workspaces() -> None:
    text = "defaults: {retention: {plan: free}}\nworkspaces: {a: {}, b: {retention: {plan: pro}}}"
    assert Configuration.parse(text, "file").retentions() == {"": PLANS["free"], "a": PLANS["free"], "b": PLANS["pro"]}
    assert Configuration.parse("", "file").retentions() == {"": PLANS["forever"]}


def test_contradictions_are_reported_at_the_level_that_set_them() -> None:
    text = """
defaults:
  retention:
    plan: free
    facts: 1y
workspaces:
  a:
    retention:
      working: 60d
  b:
    retention:
      weekly: 7w
      daily: 50d
      quarterly: 5mo
  c:
    retention: {plan: pro, daily: 60d}
"""
    reason = "{} may expire before its sources, {}; expected {} to be kept for at least {}, or {} for at most {}"
    assert refused(text) == [
        "file, line 9: workspaces.a.retention.working: "
        + reason.format("daily 30d", "conversations 60d", "daily", "60d", "conversations", "30d"),
        "file, line 12: workspaces.b.retention.weekly: "
        + reason.format("weekly 7w", "daily 50d", "weekly", "50d", "daily", "7w"),
        "file, line 14: workspaces.b.retention.quarterly: "
        + reason.format("quarterly 5mo", "monthly 6mo", "quarterly", "6mo", "monthly", "5mo"),
    ]


def test_contradictions_in_the_defaults_are_reported_once() -> None:
    text = """
defaults:
  retention: {plan: free, yearly: 1y, conversations: forever}
  previews: true
workspaces:
  a: {retention: {weekly: 5w}}
  b: {retention: {plan: free, weekly: 2w}}
"""
    places = [line.split(" may expire before ")[0] for line in refused(text)]
    assert places == ["file, line 7: workspaces.b.retention.weekly: weekly 2w"]
    text = text.replace("yearly: 1y", "yearly: 11mo")
    places = [line.split(" may expire before ")[0] for line in refused(text)]
    assert places == [
        "file, line 3: defaults.retention.yearly: yearly 11mo",
        "file, line 7: workspaces.b.retention.weekly: weekly 2w",
    ]


_terms = st.sampled_from(["1h", "48h", "30d", "6w", "6mo", "4q", "1y", "2y", "forever"])
_sections = st.fixed_dictionaries(
    {},
    optional={
        "plan": st.sampled_from(list(PLANS)),
        "working": _terms,
        **{kept.value: _terms for kept in RetentionClass},
    },
)


@settings(max_examples=examples(150), deadline=None)
@given(_sections, _sections)
def test_every_section_is_accepted_or_rejected_with_its_key(
    defaults: dict[str, str], workspace: dict[str, str]
) -> None:
    text = f"defaults: {section(defaults)}\nworkspaces: {{acme: {section(workspace)}}}"
    try:
        said = kept(text)
    except ConfigurationError as error:
        for line in str(error).splitlines():
            place, keys = ("defaults", defaults) if "defaults.retention." in line else ("workspaces.acme", workspace)
            key = line.partition(f"{place}.retention.")[2].partition(":")[0]
            assert key in keys
        return
    for name, text in said.items():
        own = workspace.get(name) or (workspace.get("working") if name in WORKING else None)
        assert own is None or text == own


# --- previews --------------------------------------------------------------------------------------------------------


def test_previews_are_on_by_default() -> None:
    text = "defaults: {previews: NO}\nworkspaces: {a: {previews: YES}, b: {budget: {usd_per_month: 1}}}"
    for default, own in ((True, False), (False, True)):
        said = Configuration.parse(text.replace("NO", str(default).lower()).replace("YES", str(own).lower()), "file")
        assert [said.previews(workspace_id) for workspace_id in ("a", "b", "other")] == [own, default, default]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pro", PLANS["pro"].describe()),
        ("{plan: pro, daily: 150d}", PLANS["pro"].describe() | {"daily": "150d"}),
        ("plan: free\nworking: 5d\n", PLANS["free"].describe() | dict.fromkeys(WORKING, "5d")),
        ("{yearly: 3y}", PLANS["free"].describe() | {"yearly": "3y"}),
        ("", PLANS["free"].describe()),
    ],
)
def test_a_section_alone_is_that_of_a_workspace(text: str, expected: dict[str, str]) -> None:
    assert parse_retention(text, "file", PLANS["free"]).describe() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "file: plan: 'nonsense' is not accepted; expected free"),
        ("{plan: free,\n daily: 1d}", "file, line 2: daily: daily 1d may expire before"),
        ("{dayly: 1d}", "file.*dayly"),
        ("[1]", "file"),
        ("{daily: 1d", "file.*not YAML"),
        ("{daily: 5d, daily: 6d}", "file.*daily"),
    ],
)
def test_an_invalid_section_alone_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_retention(text, "file", Retention())


def test_a_class_is_archived_after_its_own_duration_or_that_of_the_plan() -> None:
    free = PLANS["free"].describe()
    text = "defaults: {retention: {plan: free, daily: archive}}"
    assert kept(text) == free | {"daily": "30d archive"}
    assert kept("defaults: {retention: {plan: free, daily: 35d archive}}") == free | {"daily": "35d archive"}
    archived = Configuration.parse(text, "file").retention("acme").archived
    assert archived == {RetentionClass.DAILY}
    # The defaults are inherited. A duration alone deletes, and a plan replaces everything.
    workspace = "\nworkspaces: {acme: {retention: {%s}}}"
    assert kept(text + workspace % "weekly: 7w") == free | {"daily": "30d archive", "weekly": "7w"}
    assert kept(text + workspace % "daily: 31d") == free | {"daily": "31d"}
    assert kept(text + workspace % "plan: free") == free
    assert kept("defaults: {retention: {plan: free, working: archive, facts: 3d}}") == free | {
        "conversations": "48h archive", "preferences": "48h archive", "facts": "3d"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("daily: archive", "retention.daily: archive needs a duration"),
        ("working: archive", "retention.working: archive needs a duration"),
        ("plan: free, graph: archive", "retention.graph"),
        ("plan: free, daily: forever archive", "30d archive"),
        ("plan: free, daily: archive 30d", "30d archive"),
        ("plan: free, daily: 30d  archive", "30d archive"),
    ],
)
def test_an_archive_without_a_duration_is_refused(keys: str, said: str) -> None:
    assert said in " ".join(refused(f"defaults: {{retention: {{{keys}}}}}"))
