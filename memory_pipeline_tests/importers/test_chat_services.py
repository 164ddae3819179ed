"""Slack, Discord and Telegram: channels, threads, names, notices and files."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.messages import with_edits
from memory_pipeline.errors import InputError
from memory_pipeline.importers import import_history
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline_tests.importers.exports import Read, admission, imported, written

USERS = [
    {"id": "U1", "name": "anna", "profile": {"display_name": "Anna", "real_name": "Anna Alm"}},
    {"id": "U2", "name": "ben", "profile": {"display_name": "", "real_name": "Ben Bo"}},
    {"id": "U3", "name": "ci", "is_bot": True, "profile": {"real_name": "CI"}},
]


def slack(user: str | None, text: str, ts: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "user": user, "text": text, "ts": ts, **fields}


def slack_folder(folder: Path, *days: list[dict[str, Any]]) -> Path:
    written(folder / "users.json", USERS)
    written(folder / "channels.json", [{"id": "C1", "name": "general", "members": ["U1"]}])
    for number, day in enumerate(days, start=1):
        written(folder / "general" / f"2024-01-0{number}.json", day)
    return folder


def test_slack(tmp_path: Path) -> None:
    days = (
        [
            slack("U1", "Hi <@U2>, see <https://x.org|the plan> &amp; <#C1|general> <!here>", "1704103200.000100",
                  thread_ts="1704103200.000100", reply_count=1, client_msg_id="a"),
            slack("U2", "<@U2> has joined the channel", "1704103201.000100", subtype="channel_join"),
            slack("U3", "Build failed", "1704103202.000100", bot_id="B1", attachments=[{"fallback": "in main"}]),
            slack("U2", "", "1704103203.000100", subtype="file_share",
                  files=[{"name": "a.png", "mimetype": "image/png"}, {"name": "b.pdf", "mimetype": "application/pdf"}]),
        ],
        [slack("U9", "Fine.", "1704189600.000200", thread_ts="1704103200.000100", user_profile={"real_name": "Cleo"})],
    )  # fmt: skip
    found = Read(slack_folder(tmp_path / "export", *days))
    assert found.said == [
        ("user", "Anna", "Hi @Ben Bo, see the plan (https://x.org) & #general @here"),
        ("tool", "CI", "Build failed\nin main"),
        ("user", "Ben Bo", "[image]\n[file: b.pdf]"),
        ("user", "Cleo", "Fine."),
    ]
    assert found.times[0] == "2024-01-01T10:00:00.000100+00:00"
    assert found.conversations == ["slack:C1", "slack:C1:1704103200.000100"]
    assert {one.tags for one in found.messages} == {("general",)}
    assert found.report.skipped["notices of the service"] == 1


def test_a_slack_zip_that_grew_and_a_member_who_was_renamed(tmp_path: Path, root: str) -> None:
    first = slack("U1", "Hello.", "1704103200.000100")
    before = slack_folder(tmp_path / "before", [first])
    assert imported(Lake(root), before).ingestion.accepted == 1
    grown = [first | {"thread_ts": first["ts"]}, slack("U2", "Hi.", "1704103300.000100", thread_ts=first["ts"])]
    path = tmp_path / "after.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("users.json", json.dumps([{"id": "U1", "profile": {"display_name": "Anna A."}}]))
        archive.writestr("channels.json", json.dumps([{"id": "C1", "name": "general"}]))
        archive.writestr("general/2024-01-01.json", json.dumps(grown))
    after = imported(Lake(root), path).ingestion
    assert (after.accepted, after.repeated, after.set_aside) == (1, 1, 0)


def discord(identity: str, text: str, minute: int, **fields: Any) -> dict[str, Any]:
    author = {"id": "1", "name": "anna_a", "nickname": "Anna", "isBot": False}
    at = f"2024-01-01T10:{minute:02}:00.123+01:00"
    return {"id": identity, "type": "Default", "timestamp": at, "content": text, "author": author, **fields}


def test_discord(tmp_path: Path) -> None:
    messages = [
        discord("1", "Hello.", 1),
        discord("2", "Joined the server.", 2, type="GuildMemberJoin"),
        discord("3", "", 3, attachments=[{"fileName": "a.PNG"}, {"fileName": "b.zip"}], stickers=[{"name": "Wave"}]),
        discord("4", "Beep.", 4, type="Reply", author={"id": "9", "name": "bot", "isBot": True}),
        {"id": "5", "type": "Default"},
    ]
    channel = {"id": "77", "type": "GuildTextChat", "name": "general"}
    export = {"guild": {"id": "7", "name": "Home"}, "channel": channel, "messages": messages, "messageCount": 5}
    found = Read(written(tmp_path / "general.json", export))
    assert found.said == [
        ("user", "Anna", "Hello."),
        ("user", "Anna", "[image]\n[file: b.zip]\n[sticker: Wave]"),
        ("tool", "bot", "Beep."),
    ]
    assert (found.conversations, found.times[0]) == (["discord:77"], "2024-01-01T09:01:00.123000+00:00")
    assert found.report.ingestion.set_aside == 1


def test_the_discord_data_package_of_today_and_before(tmp_path: Path) -> None:
    rows = [{"ID": 11, "Timestamp": "2024-01-01 10:00:00", "Contents": "Mine.", "Attachments": "https://x/a.png?x=1"}]
    written(tmp_path / "package" / "messages" / "c5" / "messages.json", rows)
    written(tmp_path / "package" / "messages" / "c5" / "channel.json", {"id": "5", "type": 0, "name": "general"})
    csv = 'ID,Timestamp,Contents,Attachments\n12,2020-01-01 10:00:00.123000+00:00,"Two\nlines, older.",\n'
    written(tmp_path / "package" / "messages" / "c6" / "messages.csv", csv)
    found = Read(tmp_path / "package")
    assert [text for *_, text in found.said] == ["Two\nlines, older.", "Mine.\n[image]"]
    assert found.conversations == ["discord-package:5", "discord-package:6"]
    assert found.times[1] == "2024-01-01T10:00:00+00:00"


def telegram(identity: int, text: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": identity, "type": "message", "date": "2024-01-01T11:00:00", "date_unixtime": str(1704103200 + identity),
        "from": "Anna", "from_id": "user1", "text": text, **fields,
    }  # fmt: skip


CHAT = {
    "name": "Ben", "type": "personal_chat", "id": 42,
    "messages": [
        {"id": 0, "type": "service", "date": "2024-01-01T10:00:00", "actor": "Anna", "action": "phone_call"},
        telegram(1, ["See ", {"type": "link", "text": "https://x.org"}, "."]),
        telegram(2, "I love it.", forwarded_from="Cleo"),
        telegram(3, "", photo="photos/1.jpg"),
        telegram(4, "", media_type="voice_message", file="v.ogg"),
        telegram(5, "", media_type="sticker", sticker_emoji="👍"),
        telegram(6, "Look", file="files/a.pdf", file_name="a.pdf"),
        telegram(7, "", poll={"question": "Pizza?"}),
        {"id": 8, "type": "message"},
    ],
}  # fmt: skip


def test_telegram(tmp_path: Path) -> None:
    found = Read(written(tmp_path / "result.json", CHAT))
    assert [text for *_, text in found.said] == [
        "See https://x.org.", "[forwarded from Cleo]\n> I love it.", "[image]", "[audio]", "[sticker 👍]",
        "Look\n[file: a.pdf]", "[poll: Pizza?]",
    ]  # fmt: skip
    assert (found.conversations, found.times[0]) == (["telegram:42"], "2024-01-01T10:00:01+00:00")
    assert found.report.ingestion.set_aside == 1


def test_telegram_of_all_chats_and_without_zones(tmp_path: Path) -> None:
    bot = {"name": "Helper", "type": "bot_chat", "id": 5, "messages": [telegram(1, "Beep.", from_id="user5")]}
    whole = {"about": "Here is the data", "personal_information": {"user_id": 1}, "profile_pictures": [{"date": "x"}],
             "contacts": {"list": [{"first_name": "Ben"}]}, "chats": {"about": "…", "list": [CHAT, bot]}}  # fmt: skip
    found = Read(written(tmp_path / "a" / "result.json", whole))
    assert found.conversations == ["telegram:42", "telegram:5"]
    assert ("tool", "Anna", "Beep.") in found.said
    [*_] = old = [
        {key: value for key, value in telegram(n, f"Old {n}.").items() if key != "date_unixtime"} for n in (1, 2)
    ]
    path = written(tmp_path / "b" / "result.json", CHAT | {"messages": old})
    with pytest.raises(InputError, match="--timezone"):
        Read(path)
    assert Read(path, timezone="Europe/Berlin").times == ["2024-01-01T10:00:00+00:00"] * 2


EDITED = {
    "slack": lambda folder, text, at: slack_folder(
        folder, [slack("U1", text, "1704103200.000100", **({"edited": {"user": "U1", "ts": f"{at}.0"}} if at else {}))]
    ),
    "discord": lambda folder, text, at: written(
        folder / "general.json",
        {
            "guild": {"id": "7"},
            "channel": {"id": "77", "name": "general"},
            "messages": [
                discord("1", text, 1, timestampEdited=f"{datetime.fromtimestamp(at, UTC).isoformat()}" if at else None)
            ],
        },
    ),
    "telegram": lambda folder, text, at: written(
        folder / "result.json",
        CHAT | {"messages": [telegram(1, text, **({"edited_unixtime": str(at)} if at else {}))]},
    ),
}


@pytest.mark.parametrize("product", EDITED)
def test_a_message_that_was_edited_in_the_product(tmp_path: Path, root: str, product: str) -> None:
    first, second, third = (
        EDITED[product](tmp_path / name, text, at)
        for name, text, at in (
            ("first", "I live in Porto.", 0),
            ("second", "I live in Faro.", 1704110000),
            ("third", "I live in Braga.", 1704120000),
        )
    )
    memory = Memory(root, user_id="anna")
    assert memory.import_history(second).ingestion.accepted == 1
    early = memory.import_history(first).ingestion  # an older export, later
    assert (early.accepted, early.edited, early.repeated, early.set_aside) == (0, 0, 1, 0)
    memory.run()
    later = memory.import_history(third).ingestion
    assert (later.accepted, later.edited, later.repeated, later.set_aside) == (0, 1, 0, 0)
    for path in (first, second, third):  # while the edit is pending, and when it is loaded
        again = memory.import_history(path).ingestion
        assert (again.accepted, again.edited, again.repeated) == (0, 0, 1)
    memory.run()
    for path in (third, second, first):
        assert memory.import_history(path).ingestion.repeated == 1
    hits = memory.search("Where does Anna live?")
    assert any("Braga" in hit.content for hit in hits)
    assert not any("Faro" in hit.content for hit in hits)
    [message] = memory.lake.tables.read(MESSAGES).to_pylist()
    assert [edit["content"] for edit in message["edits"]] == ["I live in Braga."]
    assert message["original"] == "I live in Faro."


def test_two_exports_of_one_chat_in_a_folder(tmp_path: Path) -> None:
    """In either order, the later text counts."""
    for names in (("a", "b"), ("b", "a")):
        folder = tmp_path / "".join(names)
        EDITED["telegram"](folder / names[0], "I live in Porto.", 0)
        EDITED["telegram"](folder / names[1], "I live in Faro.", 1704110000)
        found = Read(folder)
        assert with_edits(found.messages)[0].content == "I live in Faro."
        assert (found.report.ingestion.accepted, found.report.ingestion.set_aside) == (1, 0)


@pytest.mark.parametrize(
    ("product", "me"),
    [("slack", "anna"), ("slack", "U1"), ("telegram", "user1"), ("discord", "1"), ("whatsapp", "ANNA")],
)
def test_the_speaker_who_is_the_user(tmp_path: Path, root: str, product: str, me: str) -> None:
    if product == "slack":
        path = slack_folder(
            tmp_path,
            [slack("U1", "I live in Porto.", "1704103200.000100"), slack("U2", "I sail.", "1704103300.000100")],
        )
    elif product == "telegram":
        said = [telegram(1, "I live in Porto."), telegram(2, "I sail.", **{"from": "Ben Bo", "from_id": "user2"})]
        path = written(tmp_path / "result.json", CHAT | {"messages": said})
    elif product == "discord":
        ben = {"id": "2", "name": "ben", "nickname": "Ben Bo", "isBot": False}
        messages = [discord("1", "I live in Porto.", 1), discord("2", "I sail.", 2, author=ben)]
        path = written(
            tmp_path / "a.json", {"guild": {"id": "7"}, "channel": {"id": "77", "name": "x"}, "messages": messages}
        )
    else:
        path = written(
            tmp_path / "a.txt", "13/01/24, 10:00 - Anna: I live in Porto.\n13/01/24, 10:01 - Ben Bo: I sail.\n"
        )
    options = {"timezone": "UTC"} if product == "whatsapp" else {}
    unknown = Read(path, **options)
    assert [name for _, name, _ in unknown.said] == ["Anna", "Ben Bo"]
    [check] = unknown.report.checks
    assert "--me" in check
    assert "Ben Bo" in check
    found = Read(path, me=me, **options)
    assert [name for _, name, _ in found.said] == [None, "Ben Bo"]
    assert not found.report.checks
    assert "nobody" in next(iter(Read(path, me="Zoe", **options).report.checks))
    memory = Memory(root, user_id="anna")
    memory.import_history(path, me=me, **options)
    facts = {(one.source, one.target) for one in memory.graph.facts()}
    assert ("User", "Porto") in facts


def test_nobody_is_me_in_a_group(tmp_path: Path, root: str) -> None:
    path = slack_folder(tmp_path / "a", [slack("U1", "Hello.", "1704103200.000100")])
    lake = Lake(root)
    with pytest.raises(InputError, match="group"):
        import_history(lake, path, admission(lake), me="Anna", defaults={"users": ["anna", "ben"]})
