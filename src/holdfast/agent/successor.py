"""The attempt that will follow on the one that runs: when it is prepared, and when it is woken.

Interpreters are prepared once an attempt is well on its way. They are woken as soon as it is
certain that the attempt is over and another follows at once: they run the script while the old
ranks die, the set to restore is chosen and the attempt is put on record. Where the user wants it
hot, they are woken as soon as they are ready, and wait at the gate for however long it takes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.agent.launch import attempt_folder, imports_path
from holdfast.agent.output import RankOutput
from holdfast.agent.standbys import TRIES, Standbys
from holdfast.agent.tree import RankCommand
from holdfast.core.run.machine import RunMachine, State
from holdfast.journal import gate
from holdfast.journal.clocks import now_ns
from holdfast.standby.devices import opened_by

STEPS_BEFORE_STANDBYS = 2  # the first has all its imports behind it, the second is undisturbed

# (outputs, scratch folder of the attempt, its number, its gate) -> what to start
Commands = Callable[[Sequence[RankOutput], Path, int, Path | None], list[RankCommand]]


class Successor:
    """For the loop's thread alone."""

    def __init__(
        self,
        machine: RunMachine,
        standbys: Standbys,
        scratch: Path,
        commands: Commands,
        *,
        ranks: int,
        is_hot: bool,
        say: Callable[[str], None],
    ) -> None:
        self._machine = machine
        self._standbys = standbys
        self._scratch = scratch
        self._commands = commands
        self._ranks = ranks
        self._wants_hot = is_hot
        self._say = say
        self._restores = False  # the ranks begin with what we choose, by all that is known
        self._device = ""  # that they have open: it cannot be shared
        self._changes = (0, 0)  # (attempt, how often what waited for the next was made anew)

    def turn(self, pids: Sequence[int]) -> None:
        """What is due; `pids`: of the ranks that run."""
        machine, standbys = self._machine, self._standbys
        standbys.look()
        if machine.stop is not None or machine.state in (State.KEEPING, State.OVER):
            standbys.drop()
        elif machine.state is State.RUNNING and self._is_well_on():
            self._prepare(pids)
            self._heat(pids)

    def _is_well_on(self) -> bool:
        first = self._machine.resume.step + STEPS_BEFORE_STANDBYS
        return self._machine.saving.slowest_step >= first

    def _prepare(self, pids: Sequence[int]) -> None:
        paths = [imports_path(self._scratch, rank) for rank in range(self._ranks)]
        if not self._standbys.are_wanted or not all(path.exists() for path in paths):
            return
        self._restores = all(_restores(path) for path in paths)
        self._device = _device_of(pids)
        number, place = self._machine.attempt + 1, self._scratch / "attempt-to-be"
        self._standbys.prepare(lambda outputs: self._commands(outputs, place, number, None))

    def _heat(self, pids: Sequence[int]) -> None:
        """Wake them all, if that is wanted and can be; and anew where their files have changed."""
        prepared = self._standbys.prepared
        if not self._wants_hot or prepared is None:
            return
        if prepared.ahead is not None:
            if prepared.ahead.changed:
                self._note_change(prepared.ahead.changed)
                self._standbys.give_up(f"{prepared.ahead.changed} has changed")
        elif self._standbys.lost_ahead:
            self._wants_hot = False
        elif prepared.is_ready:
            self._device = _device_of(pids)
            if why := self._cold_reason():
                self._wants_hot = False
                self._say(f"No hot standby: {why}; standbys only import ahead")
            else:
                self._wake(hot=True)

    def _note_change(self, path: str) -> None:
        """A script that writes what it imports would have them made anew for ever."""
        attempt, before = self._changes
        times = before + 1 if attempt == self._machine.attempt else 1
        self._changes = (self._machine.attempt, times)
        if times == TRIES:
            self._wants_hot = False
            self._say(f"No hot standby any more: {path} changes again and again")

    def _cold_reason(self) -> str:
        """Why no second set of ranks may run the script beside the first; empty: it may."""
        if self._device:
            return f"the ranks have {self._device} open, which cannot be shared"
        if not self._restores:
            return "the script does not begin with run.restore()"
        return ""

    def is_ending(self) -> None:
        """The attempt's processes have just been told to end."""
        prepared = self._standbys.prepared
        if prepared is None or not self._machine.restarts_at_once(now_ns()):
            return
        if prepared.ahead is not None:
            prepared.ahead.check()
        elif self._standbys.lost_ahead < TRIES and len(prepared.standbys) == len(prepared.outputs):
            # Beside ranks that hold a device, or whose script has files of its own, nothing runs.
            self._wake(held=bool(self._cold_reason()))

    def has_ended(self) -> None:
        """Nothing of the attempt's processes is left."""
        prepared = self._standbys.prepared
        if prepared is not None and prepared.ahead is not None:
            prepared.ahead.free()

    def _wake(self, *, held: bool = False, hot: bool = False) -> None:
        number = self._machine.attempt + 1
        folder = attempt_folder(self._scratch, number)
        path = folder / gate.NAME
        self._standbys.wake(
            number,
            folder,
            lambda outputs: self._commands(outputs, folder, number, path),
            held=held,
            hot=hot,
        )


def _restores(imports: Path) -> bool:
    """Whether the rank that has left this list began with what was chosen for it."""
    with contextlib.suppress(OSError, ValueError):
        told = json.loads(imports.read_bytes())
        return isinstance(told, dict) and told.get("restores") is True
    return False


def _device_of(pids: Sequence[int]) -> str:
    for pid in pids:
        with contextlib.suppress(OSError):
            if device := opened_by(str(pid)):
                return device
    return ""
