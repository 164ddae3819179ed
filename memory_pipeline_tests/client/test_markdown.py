"""A memory as a folder of Markdown: what people edit becomes changes of the memory."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.identity import digest
from memory_pipeline_tests.invoking import call, read

START = datetime(2025, 1, 6, 9, tzinfo=UTC)
NOW = "2025-06-01T00:00+00:00"


@pytest.fixture
def memory(root: str) -> Memory:
    memory = Memory(root, user_id="anna")
    memory.add(
        ["I live in Berlin.\n\n# No heading\n- 09:00 no message", "I like tea."], conversation_id="talk", now=START
    )
    memory.add("My cat is called Miso.", now=START + timedelta(days=1))
    memory.remember("Prefers short answers.\n---\nAlways.", "preference", tags=["style"], now=START)
    memory.run(now=NOW)
    return memory


@pytest.fixture
def folder(memory: Memory, tmp_path: Path) -> Path:
    exported(memory, tmp_path / "notes")
    return tmp_path / "notes"


def exported(memory: Memory, folder: Path) -> dict[str, int]:
    ids = ["--root", memory.lake.storage.uri, "--user", "anna", "--now", NOW]
    files: dict[str, int] = read("export", "--markdown", str(folder), *ids)["files"]
    return files


def imported(memory: Memory, folder: Path, *more: str) -> dict[str, list[str]]:
    ids = ["--root", memory.lake.storage.uri, "--user", "anna", "--now", NOW, "--editor", "Zoe"]
    found: dict[str, list[str]] = json.loads(call("import", str(folder), *ids, *more, "--json").stdout)
    return found


def contents(memory: Memory) -> set[str]:
    return {one.content for one in Memory(memory.lake.storage.uri, user_id="anna").reader.memories.list(now=NOW)}


def file_with(folder: Path, text: str) -> Path:
    return next(one for one in sorted(folder.rglob("*.md")) if text in one.read_text("utf-8"))


def nothing(found: dict[str, list[str]]) -> bool:
    return not any(found.values())


def test_an_unedited_folder_changes_nothing(memory: Memory, folder: Path) -> None:
    assert {one.relative_to(folder).parts[0] for one in folder.rglob("*.md")} == {"memories", "days", "months"}
    before = contents(memory)
    assert nothing(imported(memory, folder))
    assert contents(memory) == before
    texts = {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    exported(memory, folder)
    assert {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()} == texts


def test_an_edited_memory_gets_a_version_by_the_editor(memory: Memory, folder: Path) -> None:
    file = file_with(folder / "memories", "short answers")
    file.write_text(file.read_text().replace("short answers", "long answers").replace('["style"]', '["tone"]'))
    assert not nothing(imported(memory, folder, "--dry-run"))
    assert "Prefers short answers.\n---\nAlways." in contents(memory)
    [identifier] = imported(memory, folder)["updated"]
    newest = Memory(memory.lake.storage.uri, user_id="anna").history(identifier)[-1]
    assert (newest.content, newest.editor, newest.tags) == ("Prefers long answers.\n---\nAlways.", "Zoe", ("tone",))
    assert nothing(imported(memory, folder))
    assert exported(memory, folder)["memories"] == len(contents(memory))


def test_new_and_deleted_files_are_memories_that_begin_and_end(memory: Memory, folder: Path) -> None:
    (folder / "memories" / "new.md").write_text("Works from home on Fridays.\n")
    file_with(folder / "memories", "short answers").unlink()
    done = imported(memory, folder)
    assert done["remembered"] == ["memories/new.md"]
    assert len(done["forgotten"]) == 1
    assert "Works from home on Fridays." in contents(memory)
    assert not (folder / "memories" / "new.md").exists()
    assert file_with(folder / "memories", "Works from home on Fridays.").name.startswith("works-from-home")
    assert nothing(imported(memory, folder))
    assert "Prefers short answers.\n---\nAlways." not in contents(memory)


def test_an_edited_day_corrects_its_messages(memory: Memory, folder: Path) -> None:
    file = file_with(folder / "days", "Miso")
    file.write_text(file.read_text().replace("Miso", "Momo"))
    assert len(imported(memory, folder)["corrected"]) == 1
    again = Memory(memory.lake.storage.uri, user_id="anna")
    assert any("Momo" in hit.content for hit in again.search("cat"))
    assert not any("Miso" in hit.content for hit in again.search("cat"))
    assert [one.editor for one in again.corrections()] == ["Zoe"]
    assert "Momo" in file.read_text()
    assert nothing(imported(memory, folder))


def test_lines_of_a_message_that_are_deleted_withdraw_it(memory: Memory, folder: Path) -> None:
    file = file_with(folder / "days", "I like tea.")
    lines = file.read_text()
    start = re.search(r"- \d\d:\d\d [^\n]*\n\n  I like tea\.\n", lines)
    assert start is not None
    file.write_text(lines.replace(start[0], ""))
    assert len(imported(memory, folder)["corrected"]) == 1
    again = Memory(memory.lake.storage.uri, user_id="anna")
    assert not any("tea" in hit.content for hit in again.search("tea"))
    assert any("Berlin" in hit.content for hit in again.search("Berlin"))


def test_what_cannot_be_applied_says_why_and_the_rest_is(memory: Memory, folder: Path) -> None:
    month = file_with(folder / "months", "Berlin")
    month.write_text(month.read_text().replace("Berlin", "Bonn"))
    stale = file_with(folder / "memories", "short answers")
    stale.write_text(stale.read_text().replace("short", "long"))
    [one] = [one for one in memory.reader.memories.list(now=NOW) if "short answers" in one.content]
    memory.writer.update(one.id, "Prefers answers in French.", now=NOW)
    (folder / "memories" / "bad.md").write_text("---\nkind: fact\n---\n\nText.\n")
    (folder / "memories" / "good.md").write_text("Owns a bicycle.\n")
    (folder / "memories" / "latin.md").write_bytes("Mag Käse.".encode("latin-1"))
    (folder / "memories" / "linked.md").symlink_to(folder / "memories" / "good.md")
    done = imported(memory, folder)
    assert done["remembered"] == ["memories/good.md"]
    assert len(done["refused"]) == 5
    assert "Prefers answers in French." in contents(memory)
    assert "Bonn" in month.read_text(), "what was refused is not lost"
    assert "has edits that are not imported" in str(
        call("export", "--markdown", str(folder), "--root", memory.lake.storage.uri, "--user", "anna").exception
    )


def test_a_folder_of_others_is_not_overwritten(memory: Memory, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.md").write_text("x")
    ids = ["--root", memory.lake.storage.uri, "--user"]
    assert "has other files" in str(call("export", "--markdown", str(other), *ids, "anna").exception)
    assert "has the memory of default/default/user:anna" in str(
        call("export", "--markdown", str(folder), *ids, "ben").exception
    )
    assert "--editor is needed" in str(call("import", str(folder), *ids, "anna").exception)


def test_a_forged_manifest_leads_nowhere(memory: Memory, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("A secret.")
    file = folder / ".memory-pipeline.json"
    manifest = json.loads(file.read_text())
    manifest["files"]["memories/../../secret.md"] = digest("")
    file.write_text(json.dumps(manifest))
    assert call("import", str(folder), "--root", memory.lake.storage.uri, "--user", "anna", "--editor", "Zoe").exit_code
    assert not any("secret" in content for content in contents(memory))
    assert (tmp_path / "secret.md").exists()


def test_a_link_in_the_folder_is_not_followed(memory: Memory, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("Mine.")
    memory.add("I bought a boat.", now=START + timedelta(days=5))
    (folder / "days" / "2025-01-11.md").symlink_to(tmp_path / "other.md")
    found = call("export", "--markdown", str(folder), "--root", memory.lake.storage.uri, "--user", "anna").exception
    assert "symbolic link" in str(found)
    assert (tmp_path / "other.md").read_text() == "Mine."


def test_line_ends_and_marks_of_editors_are_no_edits(memory: Memory, folder: Path, tmp_path: Path) -> None:
    memory.add("I have\r\ntwo bikes.\rAnd a car.", now=START + timedelta(days=6))
    exported(memory, folder)
    assert nothing(imported(memory, folder))
    for file in folder.rglob("*.md"):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert nothing(imported(memory, folder))
