"""`holdfast config`: every setting, its value, and where the value came from."""

from __future__ import annotations

import json
import sys

import click

from holdfast.cli.door import say
from holdfast.config import resolve, strange_variables
from holdfast.config.settings import TABLE, Setting
from holdfast.config.sources import Resolved


@click.command()
@click.option(
    "--config", "file", metavar="FILE", help="Read FILE instead of ./holdfast.toml; it must exist."
)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def config(file: str | None, as_json: bool) -> None:
    """Show every setting and where its value came from."""
    resolved = resolve(config_file=file)
    if as_json:
        json.dump({row.name: _entry(row, resolved) for row in TABLE}, sys.stdout, indent=1)
        print()
    else:
        width = max(len(row.name) for row in TABLE)
        rows = [(f"{row.name:{width}} = {_words(row, resolved)}", row, resolved) for row in TABLE]
        middle = max(len(left) for left, _, _ in rows)
        for left, row, _ in rows:
            click.echo(f"{left:{middle}}  # {resolved.origins[row.name].where}")
    for hint in strange_variables():
        say(hint)


def _entry(row: Setting, resolved: Resolved) -> dict[str, object]:
    origin = resolved.origins[row.name]
    value = getattr(resolved.settings, row.name)
    return {"value": value, "source": origin.source.value, "where": origin.where}


def _words(row: Setting, resolved: Resolved) -> str:
    """A value as holdfast.toml would have it, or in words where it depends."""
    value = getattr(resolved.settings, row.name)
    return f"({row.default_words.replace('`', '')})" if value is None else json.dumps(value)
