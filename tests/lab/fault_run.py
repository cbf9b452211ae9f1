"""One trial of the fault matrix: a run on a lab, brought into a phase, struck, and judged."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab import Lab, LabProcess
from own_process import run_command
from proc import with_marker
from processes import EXIT_DONE, LIMIT_S, expected_digest

from holdfast.journal.attempts import attempts
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunStore

HELD = Path(__file__).with_name("held")
TRAINER = Path(__file__).with_name("held_trainer.py")
TRAIN = 3  # hosts
CONTROLLER, VICTIM, OTHER, SPARE = range(4)
STEPS = 400
FEW, REST_S = 8, 0.5  # after so many steps each one waits, for what is done beside them
LOST_S = 3
SNAPSHOT_EVERY, SAVE_EVERY = 2, 4
POLL_S = 0.003


class Trial:
    """One run. `held`: the host on which the phase can be held."""

    def __init__(self, lab: Lab, phase: str, held: int, *, has_spare: bool) -> None:
        self.lab, self.has_spare = lab, has_spare
        self.agents: dict[int, LabProcess] = {}
        self.done = 0  # steps that all ranks have done
        self.phase, self._held = phase, held
        self._before: dict[int, str] = {}  # what earlier agents of a host have printed
        self._folder = lab.shared / "held"
        self._folder.mkdir()
        self._store = lab.shared / "store"
        self._allow = lab.shared / "allow"
        self.allow(0)

    # --- the run ----------------------------------------------------------------------------

    def start(self, index: int) -> None:
        """The same command on each host; what ran there before has ended."""
        if index in self.agents:
            self._before[index] = self._before.get(index, "") + self.agents[index].text + "\n"
        words = ["--hosts", TRAIN, "--spares", int(self.has_spare), "--host-index", index]
        words += ["--name", "r", "--host-lost", LOST_S, "--store", self._store]
        words += ["--save-every", SAVE_EVERY, "--snapshot-every", SNAPSHOT_EVERY]
        paths = [str(HELD), os.environ.get("PYTHONPATH", "")]
        env = {
            "HELD": self._folder,
            "HELD_PHASE": self.phase if index == self._held else "none",
            "HELD_COMPILES": "yes" if self.phase == "compile" else "",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "ALLOW": self._allow,
            "HOLDFAST_SCRATCH": self.lab.own / "scratch",
            "HOLDFAST_NOTICE": "off",
        }
        run = [sys.executable, "-m", "holdfast.cli.main", "run", *words]
        host = self.lab.hosts[index]
        self.agents[index] = host.start([*run, "--", sys.executable, TRAINER, STEPS], env=env)

    def start_all(self, but: tuple[int, ...] = ()) -> None:
        """The first one has the controller."""
        self.start(CONTROLLER)
        self.saw(CONTROLLER, "This is host 0")
        for host in self.lab.hosts[1:]:
            if host.index not in but:
                self.start(host.index)

    def allow(self, step: int) -> None:
        """Steps up to that may begin."""
        draft = self._allow.with_suffix(".new")
        draft.write_text(str(step))
        draft.replace(self._allow)

    def step(self) -> None:
        """One more, of all ranks; over as soon as somebody is held in it."""
        self.done += 1
        self.allow(self.done)
        for rank in range(TRAIN):
            mark = rf"\[{rank}\] did {self.done}$"
            self.until(lambda mark=mark, rank=rank: self.is_held or self._printed(rank, mark))

    def kill_rank(self, index: int) -> None:
        """The newest on that host, so that the run begins another attempt."""
        pid = re.findall(r"\[\d\] pid (\d+)$", self.agents[index].text, re.MULTILINE)[-1]
        self.lab.hosts[index].kill(int(pid), signal.SIGKILL)

    # --- what is seen of it -----------------------------------------------------------------

    def saw(self, index: int, pattern: str, after: str = "") -> None:
        """Wait until that host's agent has printed that, and those words before it."""
        agent = self.agents[index]
        self.until(lambda: re.search(f"(?s){after}.*{pattern}", agent.text))

    def ended(self, index: int, code: int) -> None:
        """Wait for an agent's end."""
        self.until(lambda: self.agents[index].code() is not None)
        assert self.agents[index].code() == code, f"host {index}, not {code}:\n{self.told}"

    def until(self, holds: Callable[[], object]) -> None:
        """Wait for what processes do."""
        end = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < end, f"it never came to this:\n{self.told}"
            time.sleep(POLL_S)

    def _printed(self, index: int, pattern: str) -> bool:
        return any(re.search(pattern, line) for line in self.agents[index].lines)

    def _saved(self) -> list[int]:
        """Steps that are durable."""
        names = [path.parent.name for path in self._store.glob("r/ckpt/*/manifest.json")]
        return sorted(int(name.split("-")[1]) for name in names)

    @property
    def told(self) -> str:
        """All that was printed; of steps in a row the first."""
        said = "\n".join(
            f"--- host {index}\n{self._before.get(index, '')}{agent.text}"
            for index, agent in sorted(self.agents.items())
        )
        return re.sub(r"(?m)^(\[\d\] did \d+)(?:\n\[\d\] did \d+)+$", r"\1 …", said)

    # --- a phase ----------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether somebody has come to the phase."""
        return (self._folder / "at").exists()

    def arm(self) -> None:
        """Who comes to the phase from now on is held there."""
        (self._folder / "armed").touch()

    def let_go(self) -> None:
        """Whoever is held goes on."""
        (self._folder / "go").touch()

    def train_until_safe(self) -> None:
        """Until a set is durable, and one is in memory on two hosts each.

        A few steps will do, unless the first order came too late for them.
        """
        while not self._is_safe:
            assert self.done < STEPS // 2, f"nothing is saved:\n{self.told}"
            self.step()
            end = time.monotonic() + REST_S * (self.done >= FEW)
            while not self._is_safe and time.monotonic() < end:
                time.sleep(POLL_S)

    @property
    def _is_safe(self) -> bool:
        said = "is in memory on two hosts each"
        return bool(self._saved()) and any(self._printed(index, said) for index in self.agents)

    def train_until_held(self) -> None:
        """In a step, or in what comes of one."""
        while not self.is_held:
            assert self.done < STEPS // 2, f"nobody comes to that phase:\n{self.told}"
            self.step()

    # --- what must hold ---------------------------------------------------------------------

    def survives(self) -> int:
        """The newest step that can be had without the victim, by what lies there; 0: none.

        In the store, or in the memory of the other hosts: of each rank one has its part.
        """
        held: dict[tuple[int, int], set[int]] = {}
        for host in self.lab.hosts:
            if host.index != VICTIM:
                for path in host.root.glob("dev/shm/holdfast-*/*/ram/*/manifest.json"):
                    with contextlib.suppress(OSError):  # it is gone
                        attempt, step, ranks = part_of(path.read_text())
                        held.setdefault((attempt, step), set()).update(ranks)
        whole = [step for (_, step), ranks in held.items() if ranks == set(range(TRAIN))]
        return max([0, *whole, *self._saved()])

    def trained(self) -> None:
        """Each rank ended with what a run that nothing happened to ends with."""
        finals = dict(re.findall(r"\[(\d)\] final (\w+)$", self.told, re.MULTILINE))
        assert finals == {str(rank): expected_digest(STEPS) for rank in range(TRAIN)}, self.told

    def judge(self, kept: int, *, losses: int, others: tuple[str, ...] = ()) -> None:
        """The books sum up, and each attempt that ended was ended by what was done here.

        `kept`: what was there when the victim was struck; `losses`: so many attempts it has ended,
        and for one of these causes others.
        """
        folder = RunStore.at(self._store).get("r")
        recorded = load_run(folder.path)
        account = recorded.account()
        assert sum(account.kinds.values()) == account.elapsed
        assert account.steps_kept == STEPS
        assert not recorded.notes()
        records = attempts(folder).records
        causes = {one.attempt: one.end.cause for one in records if not one.end.done}
        lost = [attempt for attempt, cause in causes.items() if cause == "host_lost"]
        print(f"{causes} lost {account.lost_steps} kept {kept} done {self.done}")
        assert len(lost) == losses, self.told
        assert sorted(causes[one] for one in causes if one not in lost) == sorted(others), self.told
        assert all(one.resume_step >= kept for one in records if one.attempt > max(lost, default=0))
        code, report = run_command("report", "r", "--json", "--store", self._store)
        assert code == EXIT_DONE
        hosts: list[dict[str, Any]] = json.loads(report)["hosts"]
        assert all(attempt in hosts[VICTIM]["incidents"] for attempt in lost), hosts

    def nothing_left(self) -> None:
        """No process of the run, and no buffer of it in any host's memory."""
        self.until(lambda: not with_marker(f"HELD={self._folder}"))
        for host in self.lab.hosts:
            if host.is_on:
                left = [str(path) for path in host.root.glob("dev/shm/**/*") if path.is_file()]
                assert left == [], f"on host {host.index}:\n{self.told}"


def part_of(manifest: str) -> tuple[int, int, list[int]]:
    """Which part of which set a manifest in a host's memory is of."""
    attempt, step, here = (
        re.search(rf'"{name}":(\d+|\[[\d,]*\])', manifest)[1]
        for name in ("attempt", "step", "here")
    )
    return int(attempt), int(step), json.loads(here)
