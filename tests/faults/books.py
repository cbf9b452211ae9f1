"""What must hold after every fault: nobody is left, no step counts twice, the story is true."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from processes import EXIT_DONE, FAR, House, Process, expected_digest, said_by

from holdfast.core.ledger.account import Account
from holdfast.journal.attempts import AttemptRecord, attempts
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunFolder, RunStore

FAULTY = Path(__file__).with_name("faulty.py")
STEPS = 10
BEFORE = 7  # steps that are done when the fault happens


class Books:
    """Starts a faulty run of STEPS steps, and looks at what became of it."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.until = STEPS

    @property
    def folder(self) -> RunFolder:
        return RunStore(self.house.store).get("r")

    def start(
        self,
        fault: str,
        ranks: int,
        *options: object,
        at: int = BEFORE + 1,
        steps: int = STEPS,
        once: bool = True,
        before: tuple[object, ...] = (),
        **env: object,
    ) -> Process:
        """`holdfast run` on the faulty trainer; the last rank is the one with the fault.

        Steps up to BEFORE may begin. `before` is a command that starts it all.
        """
        self.until = steps
        house = self.house
        house.allow(BEFORE)
        if once:
            env["FAULT_ONCE"] = house.folder / "once"
        supervisor = (sys.executable, "-m", "holdfast.cli.main", "run", "--name", "r")
        return house.start(
            *before,
            *supervisor,
            *("--ranks", ranks, "--save-every", FAR, *options),
            *("--", sys.executable, FAULTY, steps),
            FAULT=fault,
            FAULT_AT=at,
            FAULT_RANK=ranks - 1,
            ALLOW=house.allow_file,
            **env,
        )

    def reached(self, run: Process, ranks: int) -> None:
        """All ranks have done BEFORE steps; a few before that one is saved."""
        for rank in range(ranks):
            run.saw(rf"{said_by(rank, ranks)}did {BEFORE}$")
        self.house.eventually(lambda: self.house.saved_step() > 0)  # it may come from memory

    def go_on(self) -> None:
        """All steps may begin."""
        self.house.allow(FAR)

    # --- what must hold ---------------------------------------------------------------------

    def nobody_left(self) -> None:
        """No process of the run lives, whoever its parent is."""
        mark = f"HOLDFAST_RUN_ID={self.folder.identity.run_id}".encode()
        left = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in environ.read_bytes():
                    left.append(environ.parent.name)
        assert left == [], "processes were left behind"

    def trained(self, out: str, ranks: int) -> None:
        """Every rank ended with what a run that nothing happened to ends with."""
        finals = [
            found[0]
            for rank in range(ranks)
            if (found := re.findall(rf"{said_by(rank, ranks)}final (\w+)$", out, re.MULTILINE))
        ]
        assert finals == [expected_digest(self.until)] * ranks, out

    def ends(self, run: Process, ranks: int) -> None:
        """It comes to its end by itself."""
        out = run.wait(EXIT_DONE)
        self.nobody_left()
        self.trained(out, ranks)

    def finishes(self, ranks: int) -> str:
        """Started again without a fault it goes on from what is saved, and comes to its end."""
        until = max(STEPS, self.house.saved_step() + 5)
        again = self.start("exception", ranks, at=0, steps=until)
        # Whatever ran before it has ended by then, and does no more step.
        again.saw(rf"{said_by(0, ranks)}from")
        self.go_on()
        out = again.wait(EXIT_DONE)
        self.nobody_left()
        self.trained(out, ranks)
        return out

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """All attempts; each has an end."""
        records = attempts(self.folder).records
        assert all(record.end for record in records)
        return records

    def account(self, disruptions: int, done: int | None = None) -> Account:
        """The whole time line: each step kept once, each disruption with its attempt.

        `done`: steps that the disrupted attempts completed; what of them was not saved is lost.
        """
        account = load_run(self.folder.path).account()
        assert sum(account.kinds.values()) == account.elapsed
        assert account.steps_kept == self.until
        assert len(account.disruptions) == disruptions == len(self.attempts()) - 1
        if done is not None:
            resumed = self.attempts()[-1].resume_step
            assert (account.lost_steps, resumed) == (done - resumed, resumed)
        return account

    def incident(self, attempt: int = 0) -> dict[str, Any]:
        """The story of one disruption, which agrees with the attempt's record."""
        (path,) = self.folder.incidents_dir(attempt).glob("*.json")
        story = json.loads(path.read_text())
        end = self.attempts()[attempt].end
        assert (story["attempt"], story["cause"]) == (attempt, end.cause)
        assert story["words"] == end.words
        return story
