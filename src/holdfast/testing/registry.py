"""Which emulators there are, and what each is told when a rehearsal wants an event of it."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

from holdfast.testing.scripted import ScriptedEmulator


class EmulatorRow(NamedTuple):
    """One emulator: its module and class, and its verbs (`Emulator.do`) for each kind of event.

    `dated`: for maintenance with a date, `{at}` (date and time with its zone) or `{in}` (seconds
    from now); empty: the service names none. `setup`: what it is told at its start, so that this
    host may ask it. `variables`: what the source needs in its environment to find itself.
    `option`: of the source, from what the emulator says of itself. `in_folder`: it is made of
    files, in a folder that it is given. `extra`: of this package, which its module needs.
    """

    module: str
    emulator: str
    maintenance: str
    preemption: str
    dated: str = ""
    setup: str = ""
    variables: Mapping[str, str] = {}
    option: str = "{it.url}"
    in_folder: bool = False
    extra: str = ""

    def start(self, folder: Path) -> ScriptedEmulator:
        """The emulator itself, on a free port of the loopback, or in `folder`.

        Raises ImportError without the extra that it needs.
        """
        module = importlib.import_module(f"holdfast.testing.{self.module}")
        emulator = cast(
            "ScriptedEmulator", getattr(module, self.emulator)(*([folder] * self.in_folder))
        )
        if self.setup:
            emulator.do(*shlex.split(self.setup))
        return emulator

    def option_of(self, emulator: ScriptedEmulator) -> str:
        """What is written behind the source's name, to have it ask this emulator."""
        return self.option.format(it=emulator)


# By the name of the source of notices that asks it.
EMULATORS: dict[str, EmulatorRow] = {
    "aws": EmulatorRow(
        "aws",
        "AwsEmulator",
        maintenance="scheduled system-reboot 600",
        preemption="spot terminate 120",
        dated="scheduled system-reboot {in}",
    ),
    "azure": EmulatorRow(
        "azure",
        "AzureEmulator",
        maintenance="event Reboot 900",
        preemption="event Preempt 30",
        dated="event Reboot {in}",
    ),
    "gce": EmulatorRow(
        "gce",
        "GceEmulator",
        maintenance="maintenance-event",
        preemption="preempted",
        dated="upcoming {at}",
    ),
    "kubernetes": EmulatorRow(
        "kubernetes",
        "KubernetesEmulator",
        maintenance="taint cloud.google.com/impending-node-termination",
        preemption="delete-pod 30",
        setup="rotate ''",
        variables={"POD_NAMESPACE": "ml", "POD_NAME": "trainer-0"},
    ),
    # A reservation is asked for every fifth time, so the controller is asked five times a second.
    "slurm": EmulatorRow(
        "slurm",
        "SlurmEmulator",
        maintenance="reserve maintenance 60 9999999",
        preemption="end 30 preempted",
        dated="reserve maintenance {in} 9999999",
        setup="end unlimited",
        variables={"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"},
        option="{it.path}@0.2",
        in_folder=True,
    ),
    "tpu": EmulatorRow(
        "tpu",
        "TpuEmulator",
        maintenance="window lm {at}",
        preemption="preempt lm",
        dated="window lm {at}",
        setup="node projects/p/locations/z/nodes/lm",
        option="projects/p/locations/z/nodes/lm@{it.endpoint}",
        extra="gcp",
    ),
}
