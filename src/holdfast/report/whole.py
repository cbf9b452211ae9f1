"""Tables on a terminal that is narrower than they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import ConsoleDimensions
from rich.measure import Measurement

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MOST_COLUMNS = 1000


def print_whole(console: Console, table: Table) -> None:
    """Print a table of which no cell is cut: a narrower terminal folds its lines."""
    before = console.size
    room = console.options.update(max_width=MOST_COLUMNS)
    wanted = Measurement.get(console, room, table).maximum
    console.size = ConsoleDimensions(max(before.width, wanted), before.height)
    console.print(table, highlight=False)
    console.size = before
