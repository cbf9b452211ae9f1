"""Which of several hosts this is, by what its cluster has put into the environment. Pure.

    place = place_in_cluster(environ)
    place == ClusterPlace(index=3, hosts=8, told_by="Slurm (SLURM_NODEID)")

It is asked only where a run has several hosts: inside an allocation of many nodes a run of one host
stays one.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.config.sources import shown
from holdfast.core.value import value
from holdfast.errors import ConfigurationError

_MOST_DIGITS = 9


@value
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
    if environ.get("MEGASCALE_SLICE_ID") and environ.get("TPU_WORKER_ID"):
        return _of_slices(environ)
    for variable, counted_by, whose in (
        ("JOB_COMPLETION_INDEX", "", "the Kubernetes Job"),
        ("TPU_WORKER_ID", "", "the TPU pod"),
        ("GROUP_RANK", "GROUP_WORLD_SIZE", "the launcher"),
        ("NODE_RANK", "NNODES", "the launcher"),
    ):
        if environ.get(variable):
            hosts = _number(environ, counted_by) if environ.get(counted_by) else None
            if variable == "TPU_WORKER_ID":
                hosts = _workers(environ)
            elif counted_by and environ.get("LOCAL_RANK", "0") != "0":
                raise _several("the launcher", "one process on each node")
            return ClusterPlace(_number(environ, variable), hosts, f"{whose} ({variable})")
    return None


def _of_slices(environ: Mapping[str, str]) -> ClusterPlace:
    """Several TPU slices are one run: slice by slice, and in each by the number of the worker.

    Each slice is a Kubernetes Job of its own, so an index of the Job would count from 0 in each.
    """
    workers, slice_id = _workers(environ), _number(environ, "MEGASCALE_SLICE_ID")
    if workers is None:
        raise ConfigurationError(
            "MEGASCALE_SLICE_ID says that this is one of several TPU slices, and "
            "TPU_WORKER_HOSTNAMES does not say how many hosts a slice has: say with --host-index "
            "which of the hosts this is"
        )
    counted_by = "MEGASCALE_NUM_SLICES"
    slices = _number(environ, counted_by) if environ.get(counted_by) else None
    return ClusterPlace(
        slice_id * workers + _number(environ, "TPU_WORKER_ID"),
        None if slices is None else slices * workers,
        "the TPU slices (MEGASCALE_SLICE_ID and TPU_WORKER_ID)",
    )


def _workers(environ: Mapping[str, str]) -> int | None:
    """How many hosts a TPU slice has."""
    names = environ.get("TPU_WORKER_HOSTNAMES")
    return len(names.split(",")) if names else None


def _several(whose: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(
        f"{whose} starts `holdfast run` several times on this node: give it {remedy}, "
        "and --ranks for the training processes"
    )


def _of_slurm(environ: Mapping[str, str]) -> ClusterPlace:
    """Of a job step: `srun` tells each of its tasks on which node it is."""
    if environ.get("SLURM_LOCALID", "0") != "0":
        raise _several("srun", "--ntasks-per-node 1")
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
