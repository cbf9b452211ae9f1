"""Where a command finds its run: the options that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.config import run_store
from holdfast.journal.store import RunFolder, RunStore

F = TypeVar("F", bound=Callable[..., Any])


def store_option(command: F) -> F:
    """`--store PLACE`."""
    return click.option("--store", metavar="PLACE", help="Where runs live.")(command)


def accept_option(command: F) -> F:
    """`--accept-stored`."""
    words = "Use what the store says of machines and jobs, though this host has not agreed to it."
    return click.option("--accept-stored", is_flag=True, help=words)(command)


def open_run(name: str, store: str | None) -> RunFolder:
    """The run of that name; raises UnknownRun, StoreUnavailable or ConfigurationError."""
    return RunStore.at(run_store(store)).get(name)
