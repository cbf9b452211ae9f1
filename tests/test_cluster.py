"""Which host this is, by the environments that clusters make."""

from __future__ import annotations

import pytest

from holdfast.config.cluster import ClusterPlace, place_in_cluster
from holdfast.errors import ConfigurationError

SRUN = {  # srun(1), OUTPUT ENVIRONMENT VARIABLES: node 2 of 4
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_NODEID": "2", "SLURM_LOCALID": "0",
    "SLURM_PROCID": "2", "SLURM_STEP_NUM_NODES": "4", "SLURM_JOB_NUM_NODES": "6",
}  # fmt: skip
SLICE = {
    "MEGASCALE_SLICE_ID": "2", "TPU_WORKER_ID": "1",
    "TPU_WORKER_HOSTNAMES": "lm-2-0.lm,lm-2-1.lm",
}  # fmt: skip
SBATCH = {"SLURM_JOB_ID": "77", "SLURM_NODEID": "0", "SLURM_JOB_NUM_NODES": "6"}


@pytest.mark.parametrize(
    ("environ", "index", "hosts"),
    [
        (SRUN, 2, 4),
        ({"JOB_COMPLETION_INDEX": "3"}, 3, None),
        ({"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "10.0.0.1,10.0.0.2"}, 1, 2),
        ({"TPU_WORKER_ID": "0"}, 0, None),
        # GKE, TPU Multislice: worker 1 of slice 2 of 3, each of which is an Indexed Job
        ({**SLICE, "MEGASCALE_NUM_SLICES": "3", "JOB_COMPLETION_INDEX": "1"}, 5, 6),
        ({**SLICE, "TPU_WORKER_ID": "0"}, 4, None),
        ({"JOB_COMPLETION_INDEX": "1", "TPU_WORKER_ID": "0"}, 1, None),
        # torchrun with one process a node
        ({"GROUP_RANK": "5", "GROUP_WORLD_SIZE": "8", "LOCAL_RANK": "0", "NODE_RANK": "1"}, 5, 8),
        ({"GROUP_RANK": "5", "GROUP_WORLD_SIZE": "8"}, 5, 8),
        ({"NODE_RANK": "5", "NNODES": "8"}, 5, 8),
    ],
)
def test_a_cluster_says_which_host_this_is(
    environ: dict[str, str], index: int, hosts: int | None
) -> None:
    place = place_in_cluster(environ)
    assert place is not None
    assert (place.index, place.hosts) == (index, hosts)
    assert any(variable in place.told_by for variable in environ)


@pytest.mark.parametrize("environ", [{}, SBATCH, {"JOB_COMPLETION_INDEX": ""}])
def test_who_is_not_started_by_a_cluster_on_each_node_is_told_nothing(
    environ: dict[str, str],
) -> None:
    assert place_in_cluster(environ) is None


def test_slurm_counts_more_than_a_stray_variable() -> None:
    place = place_in_cluster({**SRUN, "NODE_RANK": "9"})
    assert place == ClusterPlace(2, 4, "Slurm (SLURM_NODEID)")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({**SRUN, "SLURM_LOCALID": "1"}, "--ntasks-per-node 1"),
        ({"JOB_COMPLETION_INDEX": "-1"}, "JOB_COMPLETION_INDEX is '-1', and not a number"),
        ({"NODE_RANK": "0", "NNODES": "1:4"}, "NNODES is '1:4', and not a number"),
        ({"GROUP_RANK": "0", "LOCAL_RANK": "3"}, "several times on this node: give it one process"),
        (
            {**SLICE, "TPU_WORKER_HOSTNAMES": ""},
            "how many hosts a slice has: say with",
        ),
        ({**SLICE, "MEGASCALE_SLICE_ID": "b"}, "MEGASCALE_SLICE_ID is 'b', and not a number"),
        ({"TPU_WORKER_ID": "9" * 10}, "not a number"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(environ: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        place_in_cluster(environ)
