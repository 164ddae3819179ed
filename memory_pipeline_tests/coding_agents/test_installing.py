"""The plugin of coding agents: what is written to the user's files, and that it can be taken back."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from memory_pipeline.coding_agents import installing
from memory_pipeline.coding_agents.events import EVENTS
from memory_pipeline.coding_agents.installing import apply, installation, removal
from memory_pipeline.coding_agents.plugin import HOOK_MODULE, CodingAgent, Target
from memory_pipeline.errors import ConfigurationError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

CLAUDE, CODEX, CURSOR = CodingAgent.CLAUDE_CODE, CodingAgent.CODEX, CodingAgent.CURSOR
TARGET = Target("/data/my lake", "acme", "coding", "anna o'hara")
OTHERS = {"hooks": [{"type": "command", "command": "notify-send done"}]}
CONFIGURATION = """\
# my settings
model = "gpt-5"

[mcp_servers.other]
command = "other"  # keep
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def texts_in(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def install(agent: CodingAgent, home: Path, target: Target = TARGET) -> None:
    apply(agent, installation(agent, target, home), home)


def undo(agent: CodingAgent, home: Path) -> None:
    apply(agent, removal(agent, home), home, is_removal=True)


def commands_in(hooks: Mapping[str, Any]) -> set[str]:
    entries = [one for groups in hooks.values() for group in groups for one in group.get("hooks", [group])]
    return {one["command"] for one in entries}


def codex(home: Path, hooks: str | None = None, configuration: str | None = None) -> tuple[Path, Path]:
    folder = home / ".codex"
    folder.mkdir()
    for name, text in (("hooks.json", hooks), ("config.toml", configuration)):
        if text is not None:
            (folder / name).write_text(text)
    return folder / "hooks.json", folder / "config.toml"


@pytest.mark.parametrize(
    ("agent", "folder", "manifest", "servers", "hooks"),
    [
        (CLAUDE, ".claude/skills/memory-pipeline", ".claude-plugin/plugin.json", ".mcp.json", "hooks/hooks.json"),
        (CURSOR, ".cursor/plugins/local/memory-pipeline", ".cursor-plugin/plugin.json", "mcp.json", "hooks/hooks.json"),
    ],
)
def test_a_plugin_is_a_folder_in_the_form_that_the_agent_reads(
    home: Path, agent: CodingAgent, folder: str, manifest: str, servers: str, hooks: str
) -> None:
    install(agent, home)
    plugin = home / folder
    described = json.loads((plugin / manifest).read_text())
    assert described["name"] == "memory-pipeline"
    assert {"version", "description"} <= described.keys()
    [server] = json.loads((plugin / servers).read_text())["mcpServers"].values()
    assert server["args"][-2:] == ["--user", "anna o'hara"]
    found = json.loads((plugin / hooks).read_text())
    assert {EVENTS[name] for name in found["hooks"]} == set(EVENTS.values())
    [command] = commands_in(found["hooks"])
    arguments = shlex.split(command)
    assert arguments[:4] == [sys.executable, "-P", "-m", HOOK_MODULE]
    assert arguments[4:] == [
        "--root",
        "/data/my lake",
        "--workspace",
        "acme",
        "--agent",
        "coding",
        "--user",
        "anna o'hara",
    ]
    _, front, body = (plugin / "skills/memory-pipeline/SKILL.md").read_text().split("---\n", 2)
    skill = yaml.safe_load(front)
    assert (skill["name"], body.strip() != "") == ("memory-pipeline", True)
    assert len(skill["description"]) <= 1_024
    if agent is CURSOR:
        assert found["version"] == 1
        assert yaml.safe_load((plugin / "rules/memory.mdc").read_text().split("---\n")[1])["alwaysApply"] is True
    undo(agent, home)
    assert texts_in(home) == {}
    assert not plugin.exists()


def test_codex_gets_hooks_and_a_server_beside_those_of_the_user(home: Path) -> None:
    before = {"hooks": {"Stop": [OTHERS], "PreToolUse": [{"matcher": "Bash", **OTHERS}]}, "description": "mine"}
    hooks, configuration = codex(home, json.dumps(before), CONFIGURATION)
    old = texts_in(home)
    install(CODEX, home)
    found = json.loads(hooks.read_text())
    assert found.keys() == {"hooks", "description"}  # Codex refuses a file with others
    assert set(found["hooks"]) == {"SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "PreToolUse"}
    assert found["hooks"]["Stop"][0] == OTHERS
    assert len(found["hooks"]["Stop"]) == 2
    assert configuration.read_text().startswith(CONFIGURATION)
    servers = tomllib.loads(configuration.read_text())["mcp_servers"]
    assert servers == {"other": {"command": "other"}, "memory": TARGET.server(CODEX)}
    assert (home / ".agents/skills/memory-pipeline/SKILL.md").is_file()
    undo(CODEX, home)
    assert texts_in(home) == old


SERVED = Target("", "acme", "coding", "anna", "https://memory.example.org/", needs_token=True)


def test_a_service_at_an_address_has_its_token_from_the_environment(home: Path) -> None:
    _, configuration = codex(home, None, CONFIGURATION)
    for agent in CodingAgent:
        install(agent, home, SERVED)
    text = "".join(one.decode() for one in texts_in(home).values())
    assert "--root" not in text
    own = {"X-Memory-Client": "memory-pipeline", "X-Memory-User": "anna"}
    url = "https://memory.example.org/mcp"
    for path, variable in (
        (".claude/skills/memory-pipeline/.mcp.json", "${MEMORY_PIPELINE_TOKEN}"),
        (".cursor/plugins/local/memory-pipeline/mcp.json", "${env:MEMORY_PIPELINE_TOKEN}"),
    ):
        server = json.loads((home / path).read_text())["mcpServers"]["memory"]
        assert server == {"type": "http", "url": url, "headers": {**own, "Authorization": f"Bearer {variable}"}}
    assert tomllib.loads(configuration.read_text())["mcp_servers"]["memory"] == {
        "url": url, "bearer_token_env_var": "MEMORY_PIPELINE_TOKEN", "http_headers": own,
    }  # fmt: skip
    [command] = commands_in(json.loads((home / ".codex/hooks.json").read_text())["hooks"])
    assert shlex.split(command)[4:] == ["--url", "https://memory.example.org/", "--user", "anna"]
    install(CODEX, home)  # back to the lake of this machine
    assert tomllib.loads(configuration.read_text())["mcp_servers"]["memory"] == TARGET.server(CODEX)
    for agent in CodingAgent:
        undo(agent, home)
    assert texts_in(home) == {".codex/config.toml": CONFIGURATION.encode()}


def test_a_second_installation_changes_only_what_is_other(home: Path) -> None:
    hooks, configuration = codex(home, None, CONFIGURATION)
    install(CODEX, home)
    assert installation(CODEX, TARGET, home) == []
    install(CODEX, home, Target("/data/lake", "acme", "coding"))
    assert [len(groups) for groups in json.loads(hooks.read_text())["hooks"].values()] == [1, 1, 1, 1]
    assert "anna" not in hooks.read_text() + configuration.read_text()
    undo(CODEX, home)
    assert texts_in(home) == {".codex/config.toml": CONFIGURATION.encode()}


def test_what_the_user_changed_since_stays(home: Path) -> None:
    hooks, configuration = codex(home, None, CONFIGURATION)
    install(CODEX, home)
    changed = json.loads(hooks.read_text())
    changed["hooks"]["Stop"].append(OTHERS)
    hooks.write_text(json.dumps(changed))
    configuration.write_text(configuration.read_text() + '[profiles.fast]\nmodel = "mini"\n')
    install(CODEX, home, Target("/data/other", "acme", "coding"))  # keeps both, and so does the backup
    undo(CODEX, home)
    assert json.loads(hooks.read_text()) == {"hooks": {"Stop": [OTHERS]}}
    assert tomllib.loads(configuration.read_text()) == {
        **tomllib.loads(CONFIGURATION), "profiles": {"fast": {"model": "mini"}},
    }  # fmt: skip


REWRITTEN = """\
[mcp_servers.other]
command = "echo"
args = ["[mcp_servers.memory]"]

# of the plugin
[mcp_servers.memory]
command = "python"
args = ["-m", "memory_pipeline.cli"]  # and

[mcp_servers.memory.tools.search_memories]
approval_mode = "approve"

# mine

[features]
memories = true
"""


def test_the_server_is_found_after_codex_has_written_the_file_anew(home: Path) -> None:
    """Codex moves comments and adds tables."""
    hooks, configuration = codex(home)
    install(CODEX, home)
    configuration.write_text(REWRITTEN)
    undo(CODEX, home)
    left = configuration.read_text()
    assert tomllib.loads(left) == {
        "mcp_servers": {"other": {"command": "echo", "args": ["[mcp_servers.memory]"]}},
        "features": {"memories": True},
    }
    assert "# mine\n\n[features]" in left
    assert not hooks.exists()


def test_the_users_entries_stay_if_the_backup_is_lost(home: Path) -> None:
    hooks, configuration = codex(home, json.dumps({"hooks": {"Stop": [OTHERS]}}), CONFIGURATION)
    install(CODEX, home)
    (home / ".local/state/memory-pipeline/install/codex/record.json").write_text("{")
    undo(CODEX, home)
    assert json.loads(hooks.read_text()) == {"hooks": {"Stop": [OTHERS]}}
    assert tomllib.loads(configuration.read_text()) == tomllib.loads(CONFIGURATION)


@pytest.mark.parametrize(
    ("hooks", "configuration"),
    [
        ("{", None),
        ("[]", None),
        ('{"hooks": []}', None),
        ('{"hooks": {"Stop": {}}}', None),
        ('{"hooks": {"Stop": [5]}}', None),
        (None, "model = "),
        (None, '[mcp_servers.memory]\ncommand = "mine"'),
        (None, "mcp_servers = {}"),
        (None, 'mcp_servers = { memory = { command = "python", args = ["-m", "memory_pipeline.cli"] } }'),
        (None, "mcp_servers = 5"),
    ],
)
def test_nothing_is_written_if_a_file_is_damaged_or_taken(
    home: Path, hooks: str | None, configuration: str | None
) -> None:
    codex(home, hooks, configuration)
    old = texts_in(home)
    with pytest.raises(InputError, match=r"\.codex"):
        install(CODEX, home)
    assert texts_in(home) == old


def test_a_folder_of_others_is_not_overwritten(home: Path) -> None:
    mine = home / ".claude/skills/memory-pipeline/skills/memory-pipeline/SKILL.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(InputError, match="remove it first"):
        install(CLAUDE, home)
    assert texts_in(home) == {str(mine.relative_to(home)): b"mine"}


def test_links_and_rights_of_files_stay(home: Path) -> None:
    hooks, configuration = codex(home, None, CONFIGURATION)
    kept = home / "dotfiles.toml"
    configuration.replace(kept)
    configuration.symlink_to(kept)
    kept.chmod(0o600)
    install(CODEX, home)
    assert configuration.is_symlink()
    assert (kept.stat().st_mode & 0o777, "memory" in kept.read_text()) == (0o600, True)
    undo(CODEX, home)
    assert (configuration.is_symlink(), kept.read_text()) == (True, CONFIGURATION)
    assert not hooks.exists()


@pytest.mark.parametrize("place", range(6))
def test_an_installation_that_was_killed_can_be_undone_and_repeated(
    home: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    codex(home, json.dumps({"hooks": {"Stop": [OTHERS]}}), CONFIGURATION)
    old, write, count = texts_in(home), installing._write, 0

    def killed(path: Path, text: str) -> None:
        nonlocal count
        if count == place:
            raise KeyboardInterrupt
        count += 1
        write(path, text)

    with monkeypatch.context() as patched:
        patched.setattr(installing, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            install(CODEX, home)
    undo(CODEX, home)
    assert texts_in(home) == old
    install(CODEX, home)
    undo(CODEX, home)
    assert texts_in(home) == old


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_cannot_be_written_is_named(home: Path) -> None:
    (home / ".claude").mkdir(mode=0o500)
    with pytest.raises(ConfigurationError, match="--undo"):
        install(CLAUDE, home)


def run(home: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(home)}
    command = [sys.executable, "-m", "memory_pipeline.cli", "install", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=False)


def test_the_command_shows_asks_and_undoes(home: Path) -> None:
    options = ("codex", "--root", str(home / "lake"), "--user", "anna")
    shown = run(home, *options, "--dry-run")
    assert "+[mcp_servers.memory]" in shown.stdout
    assert texts_in(home) == {}
    assert run(home, *options, given="n\n").returncode == 1
    assert texts_in(home) == {}
    assert run(home, *options, given="y\n").returncode == 0
    assert ".codex/hooks.json" in texts_in(home)
    assert run(home, *options, "--yes").stdout == "nothing to change\n"
    assert run(home, "codex", "--undo", "--yes").returncode == 0
    assert texts_in(home) == {}
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex/hooks.json").write_text("{")
    broken = run(home, *options, "--yes")
    assert broken.returncode == 2
    assert "not valid JSON" in broken.stderr
