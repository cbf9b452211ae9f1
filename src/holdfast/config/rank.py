"""What a supervisor tells its ranks by environment variables, and how they read it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from holdfast.config.sources import shown
from holdfast.core.value import value
from holdfast.errors import ConfigurationError

OWNER_VARIABLE = "HOLDFAST_OWNER_PID"
IMPORTS_VARIABLE = "HOLDFAST_IMPORTS"
HOST_VARIABLE = "HOLDFAST_OF_HOST"  # of which of several hosts a process is
# Fields of RankEnvironment, and the variables that carry them.
RANK_VARIABLES = {
    "run": "HOLDFAST_RUN",
    "run_id": "HOLDFAST_RUN_ID",
    "store": "HOLDFAST_STORE",
    "attempt": "HOLDFAST_ATTEMPT",
    "incarnation": "HOLDFAST_INCARNATION",
    "journal": "HOLDFAST_JOURNAL",
    "resume_set": "HOLDFAST_RESUME",
    "resume_step": "HOLDFAST_RESUME_STEP",
    "resume_parent": "HOLDFAST_RESUME_PARENT",
    "skip_batches": "HOLDFAST_SKIP_BATCHES",
    "ended_until": "HOLDFAST_ENDED_UNTIL",
    "resume_from": "HOLDFAST_RESUME_FROM",
    "gate": "HOLDFAST_GATE",
    "ram": "HOLDFAST_RAM",
    "ram_buffers": "HOLDFAST_RAM_BUFFERS",
    "imports": IMPORTS_VARIABLE,
    "chips": "HOLDFAST_CHIPS",
    "rank": "HOLDFAST_RANK",
    "local_rank": "HOLDFAST_LOCAL_RANK",
    "world_size": "HOLDFAST_WORLD_SIZE",
    "local_world_size": "HOLDFAST_LOCAL_WORLD_SIZE",
    "master_addr": "HOLDFAST_MASTER_ADDR",
    "master_port": "HOLDFAST_MASTER_PORT",
    "coordinator_port": "HOLDFAST_COORDINATOR_PORT",
    "cache": "HOLDFAST_CACHE",
}
# By which frameworks know that they train with several processes, and which one this is.
LAUNCHER_VARIABLES = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
)
_NONE = "none"
_WHOLE_MAX_DIGITS = 18
_SET_NAME = re.compile(r"[0-9]{4,9}-[0-9]{12,13}")  # as in holdfast.snapshot.sets


@value
class RankEnvironment:
    """What the agent tells a rank at its start, by environment variables.

    The rank's first act is to create the journal at `journal`, exclusively: whoever succeeds is
    the rank. That holds through wrappers (`bash -c`, a launcher in between), where a pid would not.
    """

    run: str
    run_id: str  # two stores may have runs of one name
    store: str
    attempt: int
    incarnation: str
    journal: str  # path of the live journal, on local scratch
    resume_set: str | None  # the checkpoint set to restore; None: from scratch
    resume_step: int  # the last step that it contains; 0: from scratch
    resume_parent: int | None  # the attempt that wrote it
    skip_batches: int  # of each data stream, to be passed over from there
    ended_until: int | None  # as of `core.save.choose.Resume`
    resume_from: str | None  # where that set lies in memory; None: in the run store
    gate: str | None  # path of the gate (`journal.gate`) where all that is told; None: it is here
    ram: str | None  # the run's folder of the memory tier; None: there is none
    ram_buffers: int  # how many buffers each rank makes there
    imports: str  # path of what it imports before its first step, for the next attempt's standby
    chips: int  # of the whole run
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    master_addr: str
    master_port: int  # for torch.distributed
    coordinator_port: int  # for jax.distributed, which runs beside it
    cache: str | None  # folder of compiled programs on this host; None: keep none

    def to_environ(self) -> dict[str, str]:
        """The variables to start the rank with."""
        values = asdict(self)
        variables = {
            variable: _NONE if values[name] is None else str(values[name])
            for name, variable in RANK_VARIABLES.items()
        }
        # A supervisor started inside a rank gives its own ranks a fresh start.
        return variables | {OWNER_VARIABLE: ""}

    def launcher_variables(self) -> dict[str, str]:
        """What a launcher tells the frameworks, beside `to_environ`, unless there is one rank.

        A framework that finds them takes itself for one of several, and a single process then
        trains in another way, to other bits (accelerate 1.15 goes by LOCAL_RANK alone).

        Of JAX's, `jax.distributed.initialize` (0.10) itself reads only JAX_COORDINATOR_ADDRESS;
        the script passes the other two: `num_processes=int(os.environ["JAX_NUM_PROCESSES"])`.
        """
        numbers = (self.rank, self.local_rank, self.world_size, self.local_world_size)
        of_torch = (*numbers, self.master_addr, self.master_port)
        of_jax = (f"{self.master_addr}:{self.coordinator_port}", self.world_size, self.rank)
        return dict(zip(LAUNCHER_VARIABLES, map(str, (*of_torch, *of_jax)), strict=True))

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> RankEnvironment | None:
        """The inverse; None when no supervisor started this process.

        Raises ConfigurationError when a supervisor's variables are there in part, or not readable.
        """
        if not environ.get(RANK_VARIABLES["journal"]):
            return None
        values: dict[str, Any] = {}
        for rule in fields(cls):
            variable = RANK_VARIABLES[rule.name]
            text = environ.get(variable, "")
            try:
                values[rule.name] = _rank_value(str(rule.type), text)
                if rule.name == "resume_set" and not _SET_NAME.fullmatch(text) and text != _NONE:
                    raise ValueError  # it becomes a path
            except ValueError:
                raise ConfigurationError(
                    f"the variable {variable} is {shown(text)}: the environment that `holdfast "
                    "run` gave to this process was changed on the way; pass it on unchanged"
                ) from None
        rank = cls(**values)
        if not (0 <= rank.rank < rank.world_size and 0 <= rank.local_rank < rank.local_world_size):
            raise ConfigurationError(
                f"rank {rank.rank} of {rank.world_size}, local rank {rank.local_rank} of "
                f"{rank.local_world_size} (HOLDFAST_RANK …) cannot be: the environment that "
                "`holdfast run` gave to this process was changed on the way; pass it on unchanged"
            )
        return rank


def check_launcher(rank: int, world_size: int, environ: Mapping[str, str]) -> None:
    """Raises ConfigurationError where frameworks are told of other ranks than the run has."""
    said = (environ.get("RANK") or str(rank), environ.get("WORLD_SIZE") or str(world_size))
    if said != (str(rank), str(world_size)):
        raise ConfigurationError(
            f"this is rank {rank} of the run's {world_size}, and the variables RANK and WORLD_SIZE "
            f"say rank {shown(said[0])} of {shown(said[1])}: let `holdfast run --ranks N` start "
            "the processes, with no launcher in between, or unset those variables"
        )


def of_attempt(variable: str) -> bool:
    """Whether a variable says something of an attempt or of a rank, and nothing else."""
    return variable.startswith("HOLDFAST_") or variable in LAUNCHER_VARIABLES


def not_of_a_rank(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without the ranks of a supervisor that has started this process."""
    ours = LAUNCHER_VARIABLES if environ.get(RANK_VARIABLES["journal"]) else ()
    return {name: value for name, value in environ.items() if name not in ours}


def _rank_value(kind: str, text: str) -> str | int | None:
    if kind.endswith("| None") and text == _NONE:
        return None
    if not text:
        raise ValueError
    return _whole(text) if kind.startswith("int") else text


def _whole(text: str) -> int:
    """A number as `str` writes it: digits of ASCII, at most those of 64 bits."""
    if not (text.isascii() and text.isdigit()) or len(text) > _WHOLE_MAX_DIGITS:
        raise ValueError
    return int(text)


def host_mark(host: int | None) -> dict[str, str]:
    """What every process of the host of that number carries; None: there is only one."""
    return {HOST_VARIABLE: _NONE if host is None else str(host)}


def rank_marks(run_id: str, host: int | None = None) -> tuple[bytes, ...]:
    """What every process of a run on this host carries in its environment, as /proc shows it.

    `host`: one machine may have several hosts of a run.
    """
    of_run = f"{RANK_VARIABLES['run_id']}={run_id}"
    of_host = [] if host is None else [f"{HOST_VARIABLE}={host}"]
    return tuple(one.encode() for one in (of_run, *of_host))
