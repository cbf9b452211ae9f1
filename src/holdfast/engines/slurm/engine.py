"""Slurm, as the programs `sbatch`, `scontrol`, `squeue` and `scancel` reach it from here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.core.hosts.engine import EngineWait, Submission
from holdfast.engines.protocol import EngineError, Ordered, OrderStanding
from holdfast.engines.slurm.plain_words import failure_in_words
from holdfast.engines.slurm.script import (
    Grace,
    batch_script,
    check_options,
    overriding,
    program_words,
)
from holdfast.engines.slurm.standing import (
    HAS_NODES,
    OVER,
    check_fits,
    chosen,
    field,
    grace_of,
    is_of,
    job_of,
    job_standing,
    partitions,
    queue_wait,
    record_of,
)
from holdfast.errors import ConfigurationError, HoldfastError

LIMIT_S = 60.0
PROGRAMS = ("sbatch", "scontrol", "squeue", "scancel")
NO_CONFIGURATION = "Could not establish a configuration source"
UNKNOWN_JOB = "Invalid job id"
_JOB = re.compile(r"\d{1,12}")
_NO_RIGHT = re.compile("invalid user id|access/permission denied|not permitted", re.IGNORECASE)
# A job that is submitted from within another one must not take that one's size over.
_OF_THIS_JOB = ("SLURM_", "SLURMD_", "SRUN_")
# Variables by which squeue, scancel and scontrol pass over jobs that they are asked of by number.
_FILTERS = ("SQUEUE_", "SCANCEL_", "SCONTROL_")
_OF_THE_CLUSTER = ("SLURM_CONF", "SLURM_CLUSTERS")
_DEFAULTS = {"partition": "SBATCH_PARTITION", "time": "SBATCH_TIMELIMIT"}


class SlurmCluster:
    """One cluster. `environment`: of the caller, which the job gets too, as with sbatch."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    def check(self, submission: Submission) -> None:
        """Raises ConfigurationError for what it can never start, EngineError if it is not there."""
        check_options(submission)
        missing = [name for name in PROGRAMS if self._where(name) is None]
        if missing:
            raise ConfigurationError(
                f"no Slurm is installed here ({missing[0]} is not in PATH): submit where sbatch "
                "works, such as on a login node"
            )
        wanted = self._with_defaults(submission)
        check_options(wanted)
        check_fits(wanted, chosen(wanted, partitions(self._partitions())))
        folder = submission.option("output")
        if folder and not Path(folder).is_dir():
            raise ConfigurationError(
                f"--option output={folder}: there is no such folder, and Slurm makes none; make it"
            )

    def preview(self, submission: Submission) -> str:
        """The batch script; where no Slurm is, without what it would say."""
        check_options(submission)
        try:
            grace = self._grace(submission)
        except HoldfastError:
            grace = grace_of(submission, (), "")
        return batch_script(submission, grace, self._program(submission))

    def submit(self, submission: Submission) -> Ordered:
        """By `sbatch`."""
        script = batch_script(submission, self._grace(submission), self._program(submission))
        others = overriding(script)
        own = {
            name: value
            for name, value in self._environment.items()
            if name in _OF_THE_CLUSTER or not (name.startswith(_OF_THIS_JOB) or name in others)
        }
        said = self._told(["sbatch", "--parsable"], own, script).strip()
        job, _, cluster = said.splitlines()[-1].partition(";") if said else ("", "", "")
        if not _JOB.fullmatch(job):
            raise EngineError(f"sbatch says {said[:60]!r} instead of a job's number")
        words = f"job {job} of Slurm" + (f" (cluster {cluster})" if cluster else "")
        return Ordered(submission, job, words, time.time_ns())

    def find(self, run_id: str) -> str:
        """By the job's comment, whoever has submitted it."""
        job = job_of(self.ask("squeue", "--all", "--noheader", "--format=%i|%k"), run_id)
        return f"job {job} of Slurm" if job else ""

    def standing(self, ordered: Ordered) -> OrderStanding:
        """Of `scontrol show job`, which forgets a job some minutes after its end (MinJobAge)."""
        try:
            job = self._its_own(ordered)
        except EngineError as error:
            if UNKNOWN_JOB not in str(error):
                raise
            return OrderStanding("over: Slurm does not tell of it any more", (), is_over=True)
        names, nodes = self._nodes(job)
        return job_standing(job, names, nodes, ordered.submission.all_hosts)

    def replace(self, ordered: Ordered, host: str, reason: str) -> str:
        """Drain the node: the run leaves it once it sees that, and no new job begins there."""
        names, _ = self._nodes(self._its_own(ordered))
        if host not in names:
            raise ConfigurationError(
                f"{host!r} is no node of job {ordered.job}; it has {', '.join(names) or 'none yet'}"
            )
        why = " ".join(reason.split()) or f"asked for by run {ordered.submission.run}"
        try:
            self.ask("scontrol", "update", f"nodename={host}", "state=drain", f"reason={why}")
        except EngineError as error:
            if not _NO_RIGHT.search(str(error)):
                raise
            raise EngineError(
                f"Slurm does not let you drain {host}: its operators may (scontrol update "
                f"nodename={host} state=drain reason=…); until then `holdfast hosts "
                f"{ordered.submission.run} --quarantine` keeps the run away from it"
            ) from None
        then = (
            "a spare takes its part within minutes"
            if ordered.submission.spares
            else "the run has no spare, so it saves once and trains on there"
        )
        return f"{host} is drained: {then}, and a new start of the job gets another node"

    def release(self, ordered: Ordered) -> str:
        """By `scancel`: all hosts get SIGTERM, and are killed after Slurm's KillWait."""
        if self.standing(ordered).is_over:
            return f"{ordered.words} is over already: it holds no hosts"
        self.ask("scancel", ordered.job)
        return f"{ordered.words} is cancelled; hosts that train save first, in the time they get"

    # --- from within a job ------------------------------------------------------------------

    def waits(self, job: str) -> tuple[EngineWait, ...]:
        """How long this start of the job was in the queue."""
        found = queue_wait(self.job(job))
        return () if found is None else (found,)

    def end(self, job: str, restarts: str, *, again: bool) -> str:
        """End a job whose script has died with its host, or have it start again.

        Nothing is done to a later start of the job than the one with `restarts`.
        """
        found = self.job(job)
        if field(found, "JobState") not in HAS_NODES or field(found, "Restarts") != restarts:
            return ""
        if again:
            self.ask("scontrol", "requeue", job)
            return f"Job {job} is requeued: the host of its script is lost"
        self.ask("scancel", job)
        return f"Job {job} is ended: the host of its script is lost"

    # --- what Slurm says --------------------------------------------------------------------

    def job(self, job: str) -> str:
        """One line of fields."""
        if not _JOB.fullmatch(job):
            raise EngineError(f"{job[:40]!r} is no job of Slurm")
        return record_of(self.ask("scontrol", "--oneliner", "show", "job", job), job)

    def ask(self, *words: str) -> str:
        """What a program prints, its dates in UTC; raises EngineError."""
        known = self._environment.items()
        own = {name: value for name, value in known if not name.startswith(_FILTERS)}
        own.pop("SLURM_TIME_FORMAT", None)
        return self._told(words, {**own, "TZ": "UTC", "LC_ALL": "C"})

    def _its_own(self, ordered: Ordered) -> str:
        """As `job`; raises EngineError where another cluster has a job of that number."""
        found = self.job(ordered.job)
        if not is_of(found, ordered.submission):
            raise EngineError(
                f"job {ordered.job} is {field(found, 'JobName')!r} here, and not "
                f"{ordered.submission.run!r} ({ordered.words}): if that is of another cluster, say "
                "which with SLURM_CLUSTERS"
            )
        return found

    def _nodes(self, job: str) -> tuple[list[str], str]:
        listed = field(job, "NodeList")
        if not listed or field(job, "JobState") in OVER:
            return [], ""
        names = self.ask("scontrol", "show", "hostnames", listed).split()
        return names, self.ask("scontrol", "--oneliner", "show", "node", listed)

    def _partitions(self) -> str:
        return self.ask("scontrol", "--all", "--oneliner", "show", "partition")

    def _with_defaults(self, submission: Submission) -> Submission:
        """With what sbatch takes from the caller's variables where no option says it."""
        found = {name: self._environment.get(variable, "") for name, variable in _DEFAULTS.items()}
        own = ((name, value) for name, value in found.items() if value)
        added = tuple(one for one in own if not submission.option(one[0]))
        return replace(submission, options=submission.options + added)

    def _grace(self, submission: Submission) -> Grace:
        wanted = self._with_defaults(submission)
        places = chosen(wanted, partitions(self._partitions()))
        return grace_of(submission, places, self.ask("scontrol", "show", "config"))

    def _program(self, submission: Submission) -> list[str]:
        """The same installation as here, which the nodes find at the same place."""
        if said := submission.option("program"):
            return program_words(said)
        beside = Path(sys.executable).with_name("holdfast")
        if beside.is_file():
            return [str(beside)]
        return [sys.executable, "-P", "-m", "holdfast.cli.main"]

    def _where(self, program: str) -> str | None:
        return shutil.which(program, path=self._environment.get("PATH"))

    def _told(
        self, words: Sequence[str], environment: Mapping[str, str], stdin: str | None = None
    ) -> str:
        program = self._where(words[0])
        if program is None:
            raise EngineError(f"{words[0]} is not in PATH: there is no Slurm here")
        try:
            ended = subprocess.run(
                [program, *words[1:]],
                input=stdin or "",
                capture_output=True,
                check=False,
                env=dict(environment),
                text=True,
                errors="replace",
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise EngineError(
                f"Slurm has not answered `{words[0]}` within {LIMIT_S:g} s: does its controller "
                "run (scontrol ping)?"
            ) from None
        except (OSError, ValueError) as error:
            raise EngineError(f"{words[0]} cannot be run: {error}") from None
        if ended.returncode != 0:
            said = " ".join((ended.stderr.strip() or ended.stdout.strip()).split())[:300]
            if NO_CONFIGURATION in said:
                raise EngineError(
                    "Slurm is installed here and not set up: it finds no slurm.conf (SLURM_CONF); "
                    "submit where sinfo works, such as on a login node"
                )
            raise EngineError(failure_in_words(words, said, ended.returncode))
        return ended.stdout
