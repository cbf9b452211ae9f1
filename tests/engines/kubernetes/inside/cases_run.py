"""Runs that are submitted to a cluster whose pods are processes: one is evicted, one is lost."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kubelet import Kubelet
from processes import FAR, House, expected_digest, kill

from holdfast.journal.hosts_table import read_hosts
from holdfast.journal.lease import view
from holdfast.journal.store import RunFolder, RunStore
from holdfast.testing.kubernetes_cluster import KubernetesClusterEmulator

TRAINER = Path(__file__).parents[3] / "e2e" / "trainer.py"


@pytest.fixture
def submitted(
    cluster: KubernetesClusterEmulator, config: Callable[..., Path], house: House
) -> Callable[..., Kubelet]:
    """`submitted(steps, …)`: a run of two hosts is asked for, and its pods are looked after."""
    config(cluster.url)

    def submit(steps: int, *options: object) -> Kubelet:
        told = house.command(
            "submit", "--engine", "kubernetes", "--name", "r", "--hosts", 2, *options,
            "--save-every", 3, "-o", "image=example/lm:1", "-o", "claim=runs",
            "--notice", f"kubernetes:{cluster.url}",
            "--", sys.executable, TRAINER, steps,
        )  # fmt: skip
        assert "Submitted run 'r': 2 hosts" in told
        assert "JobSet r in ml" in told
        return Kubelet(cluster, house, ALLOW=house.allow_file)

    return submit


def states(folder: RunFolder) -> dict[int, str]:
    """Of the hosts, as the controller tells of them."""
    rows = read_hosts(folder, view(folder).epoch) or ()
    return {row.index: row.state for row in rows}


def pod_of(cluster: KubernetesClusterEmulator, which: str) -> str:
    """By its Job and its index there."""
    names = [one["metadata"]["name"] for one in cluster.pods()]
    return next(name for name in names if name.startswith(f"r-{which}-"))


def test_a_pod_that_is_evicted_is_made_again_and_the_run_goes_on(
    submitted: Callable[..., Kubelet], cluster: KubernetesClusterEmulator, house: House
) -> None:
    house.allow(5)
    kubelet = submitted(FAR)
    kubelet.until(lambda: len(kubelet.processes) == 2)
    first = dict(kubelet.processes)
    for rank in (0, 1):
        kubelet.newest(rank).saw(rf"\[{rank}\] did 5")
    assert "2 of 2 pods run" in house.command("hosts", "r")
    cluster.do("evict", pod_of(cluster, "hosts-0-1"))
    kubelet.look()
    house.allow(FAR)
    kubelet.until(lambda: len(kubelet.processes) == 4)  # both have left, and are made again
    words = "\n".join(one.wait(75) for one in first.values())
    (step,) = set(re.findall(r"step (\d+) is saved", words))
    for rank in (0, 1):
        kubelet.newest(rank).saw(rf"\[{rank}\] from {step}$")
        kubelet.newest(rank).saw(rf"\[{rank}\] did {int(step) + 5}$")
    # What its saves have cost is known to the next order.
    printed = house.command(
        "submit", "--engine", "kubernetes", "--name", "r", "--hosts", 2, "--dry-run",
        "-o", "image=example/lm:1", "-o", "claim=runs", "--", "true",
    )  # fmt: skip
    assert "sizeLimit: 1Gi" in printed
    assert "is deleted" in house.command("release", "r")
    kubelet.until(lambda: not cluster.pods())
    assert "kubernetes (JobSet r in ml): deleted" in house.command("hosts", "r")
    assert [one.code() for one in kubelet.processes.values()] == [75] * 4


def test_a_node_that_is_lost_is_replaced_by_the_spare_and_its_pod_is_one_then(
    submitted: Callable[..., Kubelet], cluster: KubernetesClusterEmulator, house: House
) -> None:
    house.allow(7)
    kubelet = submitted(12, "--spares", 1, "--host-lost", 1)
    kubelet.until(lambda: len(kubelet.processes) == 3)
    for rank in (0, 1):
        kubelet.newest(rank).saw(rf"\[{rank}\] did 7")
    lost = pod_of(cluster, "hosts-0-1")
    kill(kubelet.processes[lost].pid)
    cluster.do("evict", lost, "DeletionByTaintManager")
    kubelet.newest(2).saw("This is host 2 of 3 in the place of host 1")
    kubelet.until(lambda: len(kubelet.processes) == 4)
    folder = RunStore(house.store).get("r")
    kubelet.until(lambda: states(folder)[1] == "spare")
    house.allow(FAR)
    assert f"[0] final {expected_digest(12)}" in kubelet.newest(0).wait(0)
    assert f"[1] final {expected_digest(12)}" in kubelet.newest(2).wait(0)
    kubelet.until(lambda: "JobSet r in ml): done" in house.command("hosts", "r"))


@pytest.mark.parametrize("is_disruption", [False, True])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_pods_of_all_slices_that_are_made_again_as_the_run_ends_leave_at_once(
    submitted: Callable[..., Kubelet],
    cluster: KubernetesClusterEmulator,
    house: House,
    is_disruption: bool,
    is_stopped: bool,
) -> None:
    house.allow(5 if is_stopped else FAR)
    slices = ["-o", "accelerator=tpu-v6e-slice", "-o", "topology=2x2"]
    kubelet = submitted(FAR if is_stopped else 12, *slices)
    kubelet.until(lambda: len(kubelet.processes) == 2)
    first = dict(kubelet.processes)
    if is_stopped:
        first[pod_of(cluster, "slice-1-0")].saw(r"\[1\] did 5")
        house.command("stop", "r")
        house.allow(FAR)
    for process in first.values():
        process.wait(0)
    # The node of the slice that was not the controller's is lost before it could tell that.
    other = pod_of(cluster, "slice-1-0")
    kubelet.lost.add(other)
    if is_disruption:
        cluster.do("evict", other, "DeletionByTaintManager")
    kubelet.until(lambda: "JobSet r in ml): done" in house.command("hosts", "r"))
    again = [one for name, one in kubelet.processes.items() if name not in first]
    assert len(again) == (2 if is_disruption else 1)
    for process in again:
        assert "run 'r' is over" in process.wait(0)
        assert "This is host" not in process.text
