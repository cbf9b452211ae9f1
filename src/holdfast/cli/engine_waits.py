"""What a start of a run has waited for, by its engine's own time stamps, goes into its journals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

from holdfast.engines.registry import engine_here, engine_module
from holdfast.errors import HoldfastError
from holdfast.journal.machine_facts import MachineFacts
from holdfast.journal.store import RunFolder


def tell_waits(
    folder: RunFolder, environment: Mapping[str, str], say: Callable[[str, str], None]
) -> threading.Thread | None:
    """In a thread: no start waits for its engine's answer. None: no engine has started this."""
    name = engine_here(environment)
    if not name:
        return None
    told = threading.Thread(
        target=_tell, args=(folder, name, environment, say), name="engine-waits", daemon=True
    )
    told.start()
    return told


def _tell(
    folder: RunFolder, name: str, environment: Mapping[str, str], say: Callable[[str, str], None]
) -> None:
    facts = MachineFacts(folder, partial(say, "warning"))
    try:
        for wait in engine_module(name).waits(environment):
            facts.waited(wait.kind, wait.start_unix_ns, wait.end_unix_ns)
    except HoldfastError as error:
        say("warning", f"How long this start was waited for is not known: {error}")
    finally:
        facts.close()
