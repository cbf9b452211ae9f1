"""What a chip's hour costs, as a flag of the commands that tell losses in money."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.cli.moments import number
from holdfast.errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])


def price_option(command: F) -> F:
    """`--price-per-chip-hour MONEY`."""
    return click.option(
        "--price-per-chip-hour",
        metavar="MONEY",
        help="What an hour of a chip costs, in any currency: losses are shown in money, too.",
    )(command)


def price_of(text: str | None) -> float | None:
    """Its value; None: none was given. Raises ConfigurationError for what is no price."""
    if text is None:
        return None
    price = number(text)
    if price is None or price < 0:
        raise ConfigurationError(f"--price-per-chip-hour {text}: give a number, as in 2.5")
    return price
