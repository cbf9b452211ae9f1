"""The reference is complete and in step with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import holdfast
from holdfast.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def commands(group: click.Group, path: str) -> list[tuple[str, click.Command]]:
    """All commands below a group, with their paths."""
    context = click.Context(group)
    found: list[tuple[str, click.Command]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{path} {name} cannot be loaded"
        found.append((f"{path} {name}", command))
        if isinstance(command, click.Group):
            found += commands(command, f"{path} {name}")
    return found


@pytest.mark.contract("docs: generated pages")
def test_generated_pages_are_in_step_with_the_code() -> None:
    check = [sys.executable, ROOT / "docs" / "generate.py", "--check"]
    result = subprocess.run(check, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_exported_name_is_documented() -> None:
    headings = re.findall(r"^## hf\.(\w+)$", (REFERENCE / "api.md").read_text(), re.M)
    assert sorted(headings) == sorted(holdfast.__all__)


def test_every_exported_name_has_a_docstring_of_its_own() -> None:
    bare = [name for name in holdfast.__all__ if not getattr(holdfast, name).__doc__]
    assert bare == []


def test_every_command_and_flag_is_documented_with_a_help_text() -> None:
    sections = (REFERENCE / "cli.md").read_text().split("\n## ")
    by_path = {text.split("\n", 1)[0]: text for text in sections}
    for path, command in commands(cli, "holdfast"):
        assert command.help, path
        assert path in by_path, path
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.help, f"{path} {parameter.opts[0]} has no help text"
                assert all(flag in by_path[path] for flag in parameter.opts), parameter.opts


def test_the_top_level_help_says_what_each_commands_help_says() -> None:
    for path, command in commands(cli, "holdfast"):
        name = path.removeprefix("holdfast ")
        if name in COMMANDS:
            assert command.get_short_help_str(limit=200) == COMMANDS[name]
