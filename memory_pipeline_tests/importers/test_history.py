"""Any export: recognised, repeated, damaged or hostile; and the command line."""

from __future__ import annotations

import json
import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError
from memory_pipeline.importers import FORMATS
from memory_pipeline.lake import Lake
from memory_pipeline_tests.building import NOW
from memory_pipeline_tests.importers.exports import Read, as_lines, chatgpt, imported, written
from memory_pipeline_tests.invoking import call, read

HELLO = {"role": "user", "content": "Hello.", "timestamp": "2024-01-01T10:00Z"}


def test_a_later_export_adds_only_what_is_new(tmp_path: Path, root: str) -> None:
    first = written(tmp_path / "one.json", [chatgpt("Hello.", "Hi.")])
    later = written(tmp_path / "two.json", [chatgpt("Hello.", "Hi.", "Bye."), chatgpt("New.", identity="t2")])
    assert imported(Lake(root), first).ingestion.accepted == 2
    again = imported(Lake(root), first).ingestion
    assert (again.accepted, again.repeated) == (0, 2)
    more = imported(Lake(root), later).ingestion
    assert (more.accepted, more.repeated, more.set_aside) == (2, 2, 0)


def test_what_is_known_is_compared_by_its_text_alone(
    tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that is repeated costs less than the first: no stored message is read as a whole."""
    path = written(tmp_path / "one.json", [chatgpt("I moved to Porto.", "Nice.", identity=f"t{n}") for n in range(3)])
    memory = Memory(root, user_id="anna")
    assert memory.import_history(path).ingestion.accepted == 6

    def refused(*_: object) -> None:
        raise AssertionError("a stored message was read")

    for state in ("pending", "loaded"):
        with monkeypatch.context() as patched:
            patched.setattr("memory_pipeline.lake.journal.Journal.parsed", refused)
            patched.setattr("memory_pipeline.writer.known_messages.landed_messages", refused)
            assert memory.import_history(path).ingestion.repeated == 6, state
        memory.run()


def test_a_zip_and_a_folder_of_several_formats(tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    written(
        folder / "messages.jsonl", as_lines({"role": "user", "content": "Hello.", "timestamp": "2024-01-01T10:00Z"})
    )
    written(folder / "photo.jpg", b"\xff\xd8\xff")
    with zipfile.ZipFile(folder / "chatgpt.zip", "w") as archive:
        archive.writestr("../../conversations.json", json.dumps([chatgpt("From a zip.")]))
        archive.writestr("chat.html", "<html>")
    found = Read(folder)
    assert {text for *_, text in found.said} == {"Hello.", "From a zip."}
    assert found.report.files == {"chatgpt": 1, "messages": 1}
    assert found.report.unread == {"its format is not known": 1}
    assert found.report.unknown == ["photo.jpg"]
    assert not list(tmp_path.rglob("conversations.json"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_encodings_and_line_ends(tmp_path: Path, encoding: str) -> None:
    lines = '{"role": "user", "content": "Olá.", "timestamp": "2024-01-01T10:00:00Z"}\r\n' * 2
    path = written(tmp_path / "messages.jsonl", lines.encode(encoding))
    assert {text for *_, text in Read(path).said} == {"Olá."}


def test_bad_records_do_not_stop_the_rest(tmp_path: Path, root: str) -> None:
    broken = chatgpt("a", identity="broken")
    broken["mapping"]["n0"]["message"]["author"] = None
    deep = "[" * 5_000 + "]" * 5_000
    good = [json.dumps(chatgpt(f"Good {number}.", identity=f"g{number}")) for number in range(3)]
    text = ",".join(
        [good[0], '{"a": nope, "b": "]}"}', good[1], f'{{"deep": {deep}}}', "7", json.dumps(broken), good[2]]
    )
    result = imported(Lake(root), written(tmp_path / "conversations.json", f"[{text}]")).ingestion
    assert result.accepted == 3
    assert result.set_aside == 4
    assert len(Lake(root).journal.quarantined()) == 4
    assert {one.where.rpartition(", ")[2] for one in result.rejections} == {"item 2", "item 4", "item 5", "message n0"}


def test_a_file_that_was_cut_off_is_read_to_its_end(tmp_path: Path) -> None:
    whole = json.dumps([chatgpt("One.", identity="a"), chatgpt("Two.", identity="b")])
    found = Read(written(tmp_path / "conversations.json", whole[:-20]))
    assert [text for *_, text in found.said] == ["One."]
    assert found.report.ingestion.set_aside >= 1


def test_odd_ids_names_and_broken_unicode(tmp_path: Path) -> None:
    talk = chatgpt("Broken \ud83d half", identity="id\n\x00" + "x" * 500)
    talk["mapping"]["n0"]["message"]["id"] = "m\x07" * 300
    found = Read(written(tmp_path / "conversations.json", [talk]))
    assert [text for *_, text in found.said] == ["Broken � half"]
    assert found.report.ingestion.set_aside == 0


def test_links_bombs_and_encrypted_entries_are_not_read(tmp_path: Path) -> None:
    secret = written(tmp_path / "secret" / "messages.jsonl", as_lines(*[{"role": "user", "content": "Secret."}] * 2))
    folder = tmp_path / "export"
    written(folder / "conversations.json", [chatgpt("Hello.")])
    (folder / "link.jsonl").symlink_to(secret)
    (folder / "linked").symlink_to(secret.parent)
    os.mkfifo(folder / "pipe.jsonl")
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", "[" + " " * 12_000_000 + "]")
    written(folder / "broken.zip", b"PK\x03\x04 no archive")
    found = Read(folder)
    assert [text for *_, text in found.said] == ["Hello."]
    assert found.report.unread["it is a symbolic link"] == 2
    assert found.report.unread.total() == 5


def test_a_damaged_entry_of_an_archive_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/conversations.json", json.dumps([chatgpt("Damaged " + "x" * 100_000 + ".", identity="a")]))
        archive.writestr("b/conversations.json", json.dumps([chatgpt("Whole.", identity="b")]))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"x" * 100, b"y" * 100, 1))
    found = Read(path)
    assert [text for *_, text in found.said] == ["Whole."]
    assert found.report.ingestion.set_aside == 1


def test_what_is_in_no_known_format_is_an_error_that_names_the_formats(tmp_path: Path) -> None:
    for content in ("{}", "[]", "hello", b"\x00\x01\x02", "[[[[", '{"a": 1}'):
        with pytest.raises(InputError, match="chatgpt"):
            Read(written(tmp_path / "file.json", content))
    with pytest.raises(InputError, match="does not exist"):
        Read(tmp_path / "missing.zip")
    with pytest.raises(InputError, match="expected chatgpt"):
        Read(written(tmp_path / "a.json", [chatgpt("Hello.")]), format="nonsense")


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """A list of 40 MB is read with a few megabytes, apart from the batch that is being written."""
    path = tmp_path / "conversations.json"
    with path.open("w") as file:
        file.write("[")
        for number in range(200):
            file.write(json.dumps(chatgpt("x" * 100_000, "y" * 100_000, identity=f"t{number}")))
            file.write("," if number < 199 else "]")
    from memory_pipeline.importers.chatgpt import CHATGPT
    from memory_pipeline.importers.files import export_at
    from memory_pipeline.importers.reading import Notes

    [file_read] = export_at(path).files.values()
    tracemalloc.start()
    count = sum(1 for _ in CHATGPT.items(file_read, Notes()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200
    assert peak < 12_000_000


def test_the_command_shows_imports_and_withdraws(tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    path = str(written(tmp_path / "conversations.json", [chatgpt("I moved to Porto.", "Nice.")]))
    shown = call("import", path, "--user", "anna", "--dry-run").stdout
    assert "I moved to Porto." in shown
    assert "nothing was written" in shown
    assert not Path(root).exists()
    [report] = read("import", path, "--user", "anna").values()
    assert (report["ingestion"]["accepted"], report["files"]) == (2, {"chatgpt": 1})
    assert report["first"].startswith("2023-11-14")
    text = call("import", path, "--user", "anna").stdout
    assert "0 new messages" in text
    assert "2 already known" in text
    memory = Memory(root, user_id="anna")
    memory.run()
    [hit, *_] = memory.search("Where does Anna live? Porto")
    assert "Porto" in hit.content
    assert memory.rollback(source="import:chatgpt")
    assert not [hit for hit in memory.search("Porto") if "Porto" in hit.content]


def test_help_names_all_formats() -> None:
    shown = call("import", "--help").stdout
    assert [one.name for one in FORMATS if f" {one.name}" not in shown] == []


def test_a_record_is_read_alike_in_a_list_in_lines_and_alone(tmp_path: Path) -> None:
    talk: dict[str, Any] = chatgpt("Hello.")
    contents = {
        "list.json": json.dumps([talk]),
        "lines.jsonl": as_lines(talk),
        "alone.json": json.dumps(talk, indent=1),
    }
    said = [Read(written(tmp_path / name, content)).said for name, content in contents.items()]
    assert said == [[("user", None, "Hello.")]] * 3


def test_an_import_in_python(tmp_path: Path, root: str) -> None:
    memory = Memory(root, user_id="anna")
    path = written(tmp_path / "conversations.json", [chatgpt("I moved to Porto.")])
    assert memory.import_history(path, now=NOW).ingestion.accepted == 1
    assert memory.search("Porto")[0].content == "User: I moved to Porto."
    [message] = memory.conversations.get("chatgpt:t1")
    assert message.sent_at.year == 2023
