"""Which of several hosts this is, by what its cluster has put into the environment. Pure.

    place = place_in_cluster(environ)
    place == ClusterPlace(index=3, hosts=8, told_by="Slurm (SLURM_NODEID)")

It is asked only where a run has several hosts: inside an allocation of many nodes a run of one host
stays one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.config.sources import shown
from holdfast.errors import ConfigurationError

_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """`hosts`: how many there are, with spares; None: the cluster does not say."""

    index: int
    hosts: int | None
    told_by: str


SLICE_VARIABLE = "MEGASCALE_SLICE_ID"


def place_in_cluster(environ: Mapping[str, str]) -> ClusterPlace | None:
    """None: no cluster has said anything.

    Raises ConfigurationError for what is no number, and for several of us on one node.
    """
    if environ.get("SLURM_STEP_ID") and environ.get("SLURM_NODEID"):
        return _of_slurm(environ)
    for variable, counted_by, whose in (
        ("JOB_COMPLETION_INDEX", "", "the Kubernetes Job"),
        ("TPU_WORKER_ID", "", "the TPU pod"),
        ("GROUP_RANK", "GROUP_WORLD_SIZE", "the launcher"),
        ("NODE_RANK", "NNODES", "the launcher"),
    ):
        if environ.get(variable):
            hosts = _number(environ, counted_by) if environ.get(counted_by) else None
            if variable == "TPU_WORKER_ID" and environ.get("TPU_WORKER_HOSTNAMES"):
                hosts = len(environ["TPU_WORKER_HOSTNAMES"].split(","))
            return ClusterPlace(_number(environ, variable), hosts, f"{whose} ({variable})")
    return None


def _of_slurm(environ: Mapping[str, str]) -> ClusterPlace:
    """Of a job step: `srun` tells each of its tasks on which node it is."""
    if environ.get("SLURM_LOCALID", "0") != "0":
        raise ConfigurationError(
            "srun starts `holdfast run` several times on this node: give it --ntasks-per-node 1, "
            "and --ranks for the training processes"
        )
    counted_by = "SLURM_STEP_NUM_NODES"
    hosts = _number(environ, counted_by) if environ.get(counted_by) else None
    return ClusterPlace(_number(environ, "SLURM_NODEID"), hosts, "Slurm (SLURM_NODEID)")


def _number(environ: Mapping[str, str], variable: str) -> int:
    text = environ[variable]
    if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        raise ConfigurationError(
            f"the variable {variable} is {shown(text)}, and not a number: say with --host-index "
            "which of the hosts this is"
        )
    return int(text)
