"""ChatGPT: the chosen branch of the tree, and who said what."""

from __future__ import annotations

from pathlib import Path

from memory_pipeline_tests.importers.exports import Read, chatgpt, chatgpt_message, written


def test_the_chosen_branch_is_read_and_the_others_are_counted(tmp_path: Path) -> None:
    talk = chatgpt("Where is Porto?", "In Spain.", "Sure?")
    mapping = talk["mapping"]
    mapping["other"] = {
        "id": "other", "parent": "n0", "children": [],
        "message": chatgpt_message("m9", "In Portugal.", "assistant", 1_700_000_010.0),
    }  # fmt: skip
    talk["current_node"] = "other"
    found = Read(written(tmp_path / "conversations.json", [talk]))
    assert found.said == [("user", None, "Where is Porto?"), ("assistant", None, "In Portugal.")]
    assert found.conversations == ["chatgpt:t1"]
    assert [one.source_id for one in found.messages] == ["m0", "m9"]
    assert {one.source for one in found.messages} == {"import:chatgpt"}
    assert found.times == ["2023-11-14T22:13:20+00:00", "2023-11-14T22:13:30+00:00"]
    assert found.report.skipped["messages of a branch that was not chosen"] == 2


def test_a_cycle_and_a_lost_leaf_end_the_branch(tmp_path: Path) -> None:
    circle = chatgpt("One.", "Two.", identity="circle")
    circle["mapping"]["n0"]["parent"] = "n1"
    lost = chatgpt("Three.", "Four.", identity="lost") | {"current_node": "gone"}
    found = Read(written(tmp_path / "conversations.json", [circle, lost]))
    assert {text for *_, text in found.said} == {"One.", "Two.", "Three.", "Four."}


def test_what_is_nobodys_words_is_left_out_and_tools_are_context(tmp_path: Path) -> None:
    talk = chatgpt("x")
    contents = [
        chatgpt_message("s", "You are ChatGPT.", "system", 1.0),
        chatgpt_message("c", "", "user", None, content={"content_type": "user_editable_context", "user_profile": "A"}),
        chatgpt_message("h", "hidden", "user", None, metadata={"is_visually_hidden_from_conversation": True}),
        chatgpt_message("u", "", "user", 1_700_000_000.0, content={"content_type": "multimodal_text", "parts": [
            {"content_type": "image_asset_pointer", "asset_pointer": "file://1"}, "What is this?"]},
            metadata={"attachments": [
                {"name": "a.pdf", "mime_type": "application/pdf"}, {"name": "b.png", "mime_type": "image/png"}]}),
        chatgpt_message("r", "", "assistant", None, content={"content_type": "thoughts", "thoughts": []}),
        chatgpt_message("p", "", "assistant", 1_700_000_001.0, recipient="python",
                        content={"content_type": "code", "text": "1+1"}),
        chatgpt_message("o", "", "tool", 1_700_000_002.0, content={"content_type": "execution_output", "text": "2"}),
        chatgpt_message("a", "A cat.", "assistant", None),
    ]  # fmt: skip
    talk["mapping"] = {
        f"n{number}": {"parent": f"n{number - 1}" if number else None, "message": one}
        for number, one in enumerate(contents)
    }
    talk["current_node"] = f"n{len(contents) - 1}"
    found = Read(written(tmp_path / "conversations.json", [talk]))
    assert found.said == [
        ("user", None, "[image]\nWhat is this?\n[file: a.pdf]"),
        ("tool", None, "[tool call] python(1+1)"),
        ("tool", None, "2"),
        ("assistant", None, "A cat."),
    ]
    assert found.times[-1] == found.times[-2]  # a message without a time has that of the one before
    assert found.report.skipped["system texts"] == 2
    assert found.report.skipped["custom instructions"] == 1
    assert found.report.ingestion.set_aside == 0
