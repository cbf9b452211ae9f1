"""Slurm: a job with all hosts and spares, and one step that starts `holdfast run` on each.

`script.py` writes the job, `standing.py` reads what Slurm tells, `engine.py` asks it.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.hosts.engine import EngineWait
from holdfast.engines.slurm.engine import SlurmCluster
from holdfast.engines.slurm.script import OPTIONS

__all__ = ["OPTIONS", "end_job", "make", "waits"]


def make(options: Mapping[str, str], environment: Mapping[str, str]) -> SlurmCluster:  # noqa: ARG001
    """The cluster whose programs are in PATH; its options are those of each submission."""
    return SlurmCluster(environment)


def waits(environment: Mapping[str, str]) -> tuple[EngineWait, ...]:
    """How long the job of this host was in the queue before this start; raises EngineError."""
    return SlurmCluster(environment).waits(environment.get("SLURM_JOB_ID", ""))


def end_job(environment: Mapping[str, str], *, again: bool) -> str:
    """Of a host whose job has lost its script: end it, or have it start again; what was done."""
    restarts = environment.get("SLURM_RESTART_COUNT", "") or "0"
    return SlurmCluster(environment).end(environment.get("SLURM_JOB_ID", ""), restarts, again=again)
