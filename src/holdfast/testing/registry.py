"""Which emulators there are, and what each is told when a rehearsal wants an event of it."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Mapping
from typing import NamedTuple, cast

from holdfast.testing.emulator import Emulator


class Row(NamedTuple):
    """One emulator: its module and class, and its verbs (`Emulator.do`) for each kind of event.

    `dated`: for maintenance with a date, `{at}` (date and time with its zone) or `{in}` (seconds
    from now); empty: the service names none. `setup`: what it is told at its start, so that this
    host may ask it. `variables`: what the source needs in its environment to find itself.
    """

    module: str
    emulator: str
    maintenance: str
    preemption: str
    dated: str = ""
    setup: str = ""
    variables: Mapping[str, str] = {}

    def start(self) -> Emulator:
        """The emulator itself, on a free port of the loopback."""
        module = importlib.import_module(f"holdfast.testing.{self.module}")
        emulator = cast("Emulator", getattr(module, self.emulator)())
        if self.setup:
            emulator.do(*shlex.split(self.setup))
        return emulator


# By the name of the source of notices that asks it.
EMULATORS: dict[str, Row] = {
    "aws": Row(
        "aws",
        "AwsEmulator",
        maintenance="scheduled system-reboot 600",
        preemption="spot terminate 120",
        dated="scheduled system-reboot {in}",
    ),
    "azure": Row(
        "azure",
        "AzureEmulator",
        maintenance="event Reboot 900",
        preemption="event Preempt 30",
        dated="event Reboot {in}",
    ),
    "gce": Row(
        "gce",
        "GceEmulator",
        maintenance="maintenance-event",
        preemption="preempted",
        dated="upcoming {at}",
    ),
    "kubernetes": Row(
        "kubernetes",
        "KubernetesEmulator",
        maintenance="taint cloud.google.com/impending-node-termination",
        preemption="delete-pod 30",
        setup="rotate ''",
        variables={"POD_NAMESPACE": "ml", "POD_NAME": "trainer-0"},
    ),
}
