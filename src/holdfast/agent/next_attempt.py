"""The attempt that will follow on the one that runs: its interpreters, prepared and woken ahead.

The controller says what is wanted (`core.hosts.standby`). Interpreters are prepared once an attempt
is well on its way. They are woken as soon as it is certain that the attempt is over and another
follows at once: they run the script while the old ranks die, the set to restore is chosen and the
attempt is put on record. Where the user wants it hot, they are woken as soon as they are ready, and
wait at the gate for however long it takes.
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
from holdfast.core import actions as act
from holdfast.core.hosts.standby import StandbyOrder, may_run_beside
from holdfast.journal import gate
from holdfast.standby.devices import opened_by

# (outputs, scratch folder of the attempt, its number, its gate) -> what to start
Commands = Callable[[Sequence[RankOutput], Path, int, Path | None], list[RankCommand]]


class NextAttempt:
    """For the loop's thread alone."""

    def __init__(
        self,
        standbys: Standbys,
        scratch: Path,
        commands: Commands,
        *,
        ranks: int,
        is_hot: bool,
        say: Callable[[str], None],
    ) -> None:
        self._standbys = standbys
        self._scratch = scratch
        self._commands = commands
        self._ranks = ranks
        self._wants_hot = is_hot
        self._say = say
        self._number = 0
        self._wanted = StandbyOrder.AS_IS
        self._restores = False  # the ranks begin with what we choose, by all that is known
        self._device = ""  # that they have open: it cannot be shared
        self._changes = (0, 0)  # (attempt, how often what waited for the next was made anew)

    def stand_by(self, action: act.StandBy) -> None:
        """What is wanted from now on."""
        self._number, self._wanted = action.attempt, action.wanted
        if action.wanted is StandbyOrder.WOKEN:
            self._wake_now()

    def turn(self, pids: Sequence[int]) -> None:
        """What is due; `pids`: of the ranks that run."""
        self._standbys.look()
        if self._wanted is StandbyOrder.NONE:
            self._standbys.drop()
        elif self._wanted is StandbyOrder.READY:
            self._prepare(pids)
            self._heat(pids)

    def _prepare(self, pids: Sequence[int]) -> None:
        paths = [imports_path(self._scratch, rank) for rank in range(self._ranks)]
        if not self._standbys.are_wanted or not all(path.exists() for path in paths):
            return
        self._restores = all(_restores(path) for path in paths)
        self._device = _device_of(pids)
        number, place = self._number, self._scratch / "attempt-to-be"
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
            may_run, why = may_run_beside(self._device, self._restores)
            if may_run:
                self._wake(hot=True)
            else:
                self._wants_hot = False
                self._say(f"No hot standby: {why}; standbys only import ahead")

    def _note_change(self, path: str) -> None:
        """A script that writes what it imports would have them made anew for ever."""
        attempt, before = self._changes
        times = before + 1 if attempt == self._number else 1
        self._changes = (self._number, times)
        if times == TRIES:
            self._wants_hot = False
            self._say(f"No hot standby any more: {path} changes again and again")

    def _wake_now(self) -> None:
        """The attempt's processes have just been told to end."""
        prepared = self._standbys.prepared
        if prepared is None:
            return
        if prepared.ahead is not None:
            prepared.ahead.check()
        elif self._standbys.lost_ahead < TRIES and len(prepared.standbys) == len(prepared.outputs):
            # Beside ranks that hold a device, or whose script has files of its own, nothing runs.
            may_run, _ = may_run_beside(self._device, self._restores)
            self._wake(held=not may_run)

    def has_ended(self) -> None:
        """Nothing of the attempt's processes is left."""
        prepared = self._standbys.prepared
        if prepared is not None and prepared.ahead is not None:
            prepared.ahead.free()

    def _wake(self, *, held: bool = False, hot: bool = False) -> None:
        number = self._number
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
        learned = json.loads(imports.read_bytes())
        return isinstance(learned, dict) and learned.get("restores") is True
    return False


def _device_of(pids: Sequence[int]) -> str:
    for pid in pids:
        with contextlib.suppress(OSError):
            if device := opened_by(str(pid)):
                return device
    return ""
