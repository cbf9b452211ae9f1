"""With and without Holdfast, side by side; both judged by the same ledger."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text


def side_by_side(console: Console, holdfast: list[str], folder: Path, save_every: int) -> None:
    """Print the table, and in words what was lost and what was not."""
    held = _result([*holdfast, "report", "demo", "--json"])
    plain = _result([*holdfast, "report", "--json", "--history", str(folder / "plain.jsonl")])

    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("the same three faults")
    table.add_column("with Holdfast", justify="right", style="bold")
    table.add_column("plain loop", justify="right")
    for words, cell in ROWS:
        table.add_row(words, cell(held), cell(plain))
    console.print(table)
    console.print(Text(in_words(held, plain, save_every), "dim"), width=min(console.width, 100))
    console.print()


def in_words(held, plain, save_every: int) -> str:
    """What is lost without Holdfast, and what is not."""
    return (
        f"Both save every {save_every} steps, both are started again, and both end with the same "
        "model: the run as such is lost by neither. A death without warning costs both the steps "
        "since the last checkpoint. A death with a warning costs Holdfast no step, and the plain "
        f"loop the same again: {plain['lost_steps']} steps trained twice against "
        f"{held['lost_steps']}. A step here takes milliseconds; where an interval is half an hour "
        "on a thousand chips, that is the bill. And by itself the plain loop would not have known: "
        "its column is Holdfast's ledger, reading its log."
    )


def _result(command: list[str]):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def _lost(number: int):
    def cell(result) -> str:
        disruptions = result["disruptions"]
        return f"{disruptions[number]['lost_steps']} steps" if number < len(disruptions) else "—"

    return cell


ROWS = (
    ("wall time, asked for to done", lambda r: f"{r['elapsed_s']:.1f} s"),
    ("lost to the maintenance notice", _lost(0)),
    ("lost to the SIGKILL", _lost(1)),
    ("lost to the crash", _lost(2)),
    ("steps trained twice", lambda r: f"{r['lost_steps']}"),
    ("goodput (kept steps / wall time)", lambda r: f"{r['goodput']:.1%}"),
)
