"""Options that are seconds."""

from __future__ import annotations

from typing import Any

import click

LONGEST_S = 1e9  # 31 years: what is longer is not valid


class Seconds(click.FloatRange):
    """Seconds from `least` to `most`; `nan`, `inf` and what is far too long are none."""

    def __init__(self, least: float = 0, most: float | None = None) -> None:
        super().__init__(least, most)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """As click has it, to which `nan` is in every range."""
        found: float = super().convert(value, param, ctx)
        if not found <= LONGEST_S:
            self.fail(f"{value} is not a valid number of seconds", param, ctx)
        return found
