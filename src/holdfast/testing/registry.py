"""Which emulators there are, and what each is told when a rehearsal wants an event of it."""

from __future__ import annotations

import importlib
from typing import NamedTuple, cast

from holdfast.testing.emulator import Emulator


class Row(NamedTuple):
    """One emulator: its module and class, and its verbs (`Emulator.do`) for each kind of event.

    `dated`: for maintenance that begins at `{at}`, a date and time with its zone; empty: this
    service names no dates, or the emulator cannot be told one.
    """

    module: str
    emulator: str
    maintenance: str
    preemption: str
    dated: str = ""

    def start(self) -> Emulator:
        """The emulator itself, on a free port of the loopback."""
        module = importlib.import_module(f"holdfast.testing.{self.module}")
        return cast("Emulator", getattr(module, self.emulator)())


# One line a service, by the name of the source of notices that asks it.
EMULATORS: dict[str, Row] = {
    "gce": Row("gce", "GceEmulator", "maintenance-event", "preempted", "upcoming {at}"),
}
