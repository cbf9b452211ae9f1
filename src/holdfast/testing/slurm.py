"""An emulator of Slurm's `scontrol`, as far as one job, its node and reservations go.

It prints what `scontrol --oneliner show` of Slurm 22.05 prints of them, which was compared with the
real one. Faults and delays are the program's: it fails, hangs, and prints too much or nonsense.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from holdfast.testing.scripted import EmulatorError, ScriptedEmulator

JOB = "7"
NODE = "n1"
GIANT_BYTES = 16 << 20
SCRIPT = """#!/bin/sh
echo "$*" >> '{folder}/calls'
[ "$TZ" = UTC ] || exit 9
[ ! -e '{folder}/fault' ] || . '{folder}/fault'
case "$*" in
  "--oneliner show job {job}") cat '{folder}/job' ;;
  "--oneliner show node {node}") cat '{folder}/node' ;;
  "--oneliner show reservation") cat '{folder}/reservation' ;;
  "show hostnames "*) printf '%s\\n' "$3" | sed 's/,/\\n/g' ;;
  *) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
esac
"""
FAULTS = {
    "fail": "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1",
    "hang": "exec sleep 3600",
    "giant": f"exec head -c {GIANT_BYTES} /dev/zero",
    "html": "echo '<!DOCTYPE html>'; exit 0",
}


class SlurmEmulator(ScriptedEmulator):
    """A program in a folder, `path`, to be run instead of `scontrol`."""

    name: ClassVar[str] = "emulator of scontrol"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder, self.path = folder, folder / "scontrol"
        self._reservations: dict[str, str] = {}
        self.path.write_text(SCRIPT.format(folder=folder, job=JOB, node=NODE))
        self.path.chmod(0o755)
        self.verb_end("3600")
        self.verb_state("MIXED")
        self._write("reservation", "No reservations in the system")

    @property
    def calls(self) -> list[str]:
        """The arguments of each call so far."""
        log = self._folder / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def verb_end(self, seconds: str, preempted: str = "") -> None:
        """Let the job end so much later, or `unlimited`; because it is `preempted`."""
        end = "Unknown" if seconds == "unlimited" else self._date(float(seconds))
        limit = "UNLIMITED" if seconds == "unlimited" else "01:00:00"
        preempt, start = self._date(0) if preempted else "None", self._date(-6)
        self._write(
            "job",
            f"JobId={JOB} JobName=a job UserId=root(0) JobState=RUNNING Reason=None "
            f"RunTime=00:00:06 TimeLimit={limit} TimeMin=N/A StartTime={start} EndTime={end} "
            f"Deadline=N/A PreemptTime={preempt} Partition=p NodeList={NODE} BatchHost={NODE}",
        )

    def verb_state(self, state: str, reason: str = "") -> None:
        """Give the node a state, such as MIXED+DRAIN."""
        why = f" Reason={reason} [root@{self._date(0)}]" if reason else ""
        self._write("node", f"NodeName={NODE} Arch=x86_64 State={state} OS=Linux 6.1 #1 SMP{why}")

    def verb_reserve(
        self, name: str, start_s: str, end_s: str, nodes: str = NODE, flags: str = "MAINT"
    ) -> None:
        """Reserve nodes, with commas between them, from then till then."""
        self._reservations[name] = (
            f"ReservationName={name} StartTime={self._date(float(start_s))} "
            f"EndTime={self._date(float(end_s))} Duration=01:00:00 Nodes={nodes} NodeCnt=1 "
            f"Flags={flags},SPEC_NODES TRES=cpu=4 Users=root State=INACTIVE"
        )
        self._write("reservation", "\n".join(self._reservations.values()))

    def verb_release(self, name: str) -> None:
        """Delete a reservation."""
        del self._reservations[name]
        left = "\n".join(self._reservations.values())
        self._write("reservation", left or "No reservations in the system")

    def verb_fail(self, how: str) -> None:
        """Answer with a fault of `FAULTS` until `recover`."""
        if how not in FAULTS:
            raise EmulatorError(f"{how!r} is no fault; {', '.join(FAULTS)} are")
        self._write("fault", FAULTS[how])

    def verb_recover(self) -> None:
        """Answer as one should."""
        (self._folder / "fault").unlink(missing_ok=True)

    def _write(self, name: str, text: str) -> None:
        new = self._folder / f"{name}.new"
        new.write_text(f"{text}\n")
        new.rename(self._folder / name)

    def _date(self, from_now_s: float) -> str:
        at = datetime.fromtimestamp(self.calendar() + from_now_s, UTC)
        return at.strftime("%Y-%m-%dT%H:%M:%S")
