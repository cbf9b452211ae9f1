"""Where a command finds its run: the options that all of them share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.config import run_store
from holdfast.core.durations import seconds_in_words
from holdfast.errors import StoreUnavailable
from holdfast.journal.store import RunFolder, RunStore

LOOK_S = 1.0

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


def known_run(store: RunStore, name: str, wait_s: float, say: Callable[[str], None]) -> RunFolder:
    """A run that somebody has begun, perhaps in a store that is mounted a moment later.

    Raises StoreUnavailable when it is not there for so long.
    """
    give_up_s = time.monotonic() + wait_s
    is_said = False
    while True:
        try:
            folder = store.get_again(name)
            folder.complete()
        except StoreUnavailable as error:
            if time.monotonic() >= give_up_s:
                raise
            if not is_said:
                say(f"{error}; waiting up to {seconds_in_words(wait_s)} for it")
            is_said = True
            time.sleep(LOOK_S)
        else:
            return folder
