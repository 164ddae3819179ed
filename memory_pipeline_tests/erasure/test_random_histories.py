"""After random histories with erasures, a lake equals one that never knew the erased."""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.lake import Lake
from memory_pipeline_tests.building import ACME, NOW, START, conversation
from memory_pipeline_tests.effort import IS_THOROUGH, examples
from memory_pipeline_tests.erasure.lakes import SALES, assert_verified, done, edit, kept
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.erasure.lakes import Record

NAMES, PLACES = ("Anna", "Dora", "Milo", None), ("Porto", "Berlin", "Oslo")
SUBJECTS = (
    Subject.agent(SALES),
    Subject.user("acme", "u-17"),
    Subject.user("acme", "u-18", agent_id="support"),
    Subject.person("acme", ["Anna", "u-17"]),
    Subject.conversation(ACME, "c1"),
    Subject.conversation(SALES, "c2"),
)
#: The time of all runs and erasures: all quarters with records have ended, and in the thorough run the year.
AT = NOW if IS_THOROUGH else datetime(2024, 4, 2, 12, tzinfo=UTC)
#: What differs between lakes with and without an erasure.
OF_ERASURE = ("tables/tombstones", "tables/ledger")


def records(lake: Lake, chance: random.Random, count: int) -> Iterator[Record]:
    """Yield random messages, edits and events of a few days, agents, users and conversations."""
    for number in range(count):
        at = datetime(2024, 1, 15, tzinfo=UTC) + timedelta(
            hours=chance.choice([8, 9, 32, 33, 200, 800]), minutes=number
        )
        name, place, scope = chance.choice(NAMES), chance.choice(PLACES), chance.choice([ACME, SALES])
        when = f"{at:%Y-%m-%dT%H:%M}"
        kind = chance.random()
        if kind < 0.15:
            yield edit(name or "Bob", place, when)
        elif kind < 0.3:
            yield done("REMEMBER", when, content=f"{name or 'Bob'} keeps key {number} in {place}.", scope=scope)
        else:
            texts = chance.sample(
                [
                    f"I moved to {place}.",
                    f"{name} likes tea.",
                    f"My brother lives in {place}.",
                    "Always answer in French.",
                ],
                2,
            )
            talk = conversation(
                *texts, at=when, scope=scope, conversation_id=chance.choice(["c1", "c2", f"c{number}"]), name=name
            )
            for message in talk["messages"]:
                message["id"] += f"-{chance.getrandbits(40):x}"
            if chance.random() < 0.4:
                talk["user_id"] = chance.choice(["u-17", "u-18"])
            yield from read_messages(talk, Admission(START, AT, lake.calendar), lake.new_scope).messages


def append(lake: Lake, listed: list[Record]) -> None:
    """Write records to the journal, as writers do: a file is of one scope."""
    for scope in sorted({record.scope for record in listed}, key=str):
        lake.new_scope(*scope.ids)
        lake.journal.append([record for record in listed if record.scope == scope])


@pytest.mark.parametrize("seed", range(examples(1)))
def test_a_lake_with_erasures_equals_one_that_never_knew_the_erased(tmp_path: Path, models: Models, seed: int) -> None:
    chance, lake = random.Random(seed), Lake(str(tmp_path / "lake"))
    lake.ensure()
    # The keys of users' scopes depend on a secret of the lake.
    never = Lake(str(shutil.copytree(tmp_path / "lake", tmp_path / "never")))
    written: list[Record] = []
    receipts = []
    for subject in chance.sample(SUBJECTS, 3):
        for is_loaded in (True, False):
            new = list(records(lake, chance, 6))
            written += new
            append(lake, new)
            if is_loaded:
                kept(lake, models, AT)
        receipts.append(forget(lake, models, subject, AT))
    kept(lake, models, AT)
    append(never, lake.tombstones.forgotten().filter(written))
    kept(never, models, AT)
    left, right = ({k: v for k, v in lake_digest(each).items() if k not in OF_ERASURE} for each in (lake, never))
    assert differing(left, right) == []
    for receipt in receipts:
        assert_verified(lake, receipt)
