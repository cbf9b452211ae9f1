"""What is made for Kubernetes is taken there, whatever the options, and means what it should."""

from __future__ import annotations

import copy
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.engine import Submission
from holdfast.engines.kubernetes.manifest import objects, shape
from holdfast.engines.kubernetes.options import OPTIONS, Wishes
from holdfast.engines.kubernetes.pod_template import bytes_of
from holdfast.errors import ConfigurationError

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))  # importlib mode leaves them out
sys.path.insert(0, str(Path(__file__).parent))
from manifest_schema import wrong
from orders import ordered, orders

del sys.path[:2]

EXAMPLES = Path(__file__).parents[3] / "examples" / "kubernetes"
Order = tuple[Submission, Wishes]


def job_of(found: list[Any]) -> Any:
    """The spec of the Job in what was made."""
    spec = found[-1]["spec"]
    return spec if found[-1]["kind"] == "Job" else spec["replicatedJobs"][0]["template"]["spec"]


def pod_of(found: list[Any]) -> Any:
    return job_of(found)["template"]["spec"]


def command_of(found: list[Any]) -> list[str]:
    return pod_of(found)["containers"][0]["command"]


@given(orders())
def test_whatever_is_made_is_taken(order: Order) -> None:
    made = objects(*order)
    assert [words for one in made for words in wrong(one)] == []
    assert yaml.safe_load(yaml.safe_dump(made)) == made


@given(orders())
def test_there_is_a_pod_for_each_host_and_it_has_time_to_leave(order: Order) -> None:
    made = objects(*order)
    jobs, pods = shape(*order)
    assert jobs * pods == order[0].all_hosts
    assert job_of(made)["completions"] == job_of(made)["parallelism"] == pods
    said = [one.partition("=")[2] for one in command_of(made) if one.startswith("--grace=")]
    grace_s = float(said[0]) if said else 30
    assert pod_of(made)["terminationGracePeriodSeconds"] >= grace_s + 30
    if order[0].save_ns and "--grace" not in order[0].flags:
        assert grace_s >= 1.5 * order[0].save_ns / 1e9


@given(orders())
def test_shared_memory_fits_into_the_pods(order: Order) -> None:
    pod = pod_of(objects(*order))
    (memory,) = (one["emptyDir"] for one in pod["volumes"] if one["name"] == "memory")
    limit = pod["containers"][0].get("resources", {}).get("limits", {}).get("memory")
    if limit:
        assert 0 < bytes_of(memory["sizeLimit"]) <= bytes_of(limit)


PLANTED = {
    "restartPolicy": lambda job: job["template"]["spec"].update(restartPolicy="OnFailure"),
    "no such volume": lambda job: job["template"]["spec"].update(volumes=[]),
    "a field": lambda job: job.update(podFailurePolicies={}),
    "an exit code": lambda job: job["podFailurePolicy"]["rules"][1]["onExitCodes"].update(
        values=[0]),
    "a name": lambda job: job["template"]["spec"]["containers"][0].update(name="Holdfast"),
    "a number": lambda job: job.update(completions=str(job["completions"])),
}  # fmt: skip


@given(orders(), st.sampled_from(sorted(PLANTED)))
def test_one_mistake_in_it_is_refused(order: Order, what: str) -> None:
    made = copy.deepcopy(objects(*order))
    PLANTED[what](job_of(made))
    assert wrong(made[-1]) != []


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_the_examples_are_what_is_made(kind: str) -> None:
    wanted, wishes = ordered(kind=kind, memory="64Gi", secret="lm-run")
    said = replace(wanted, flags=("--grace", "60"))
    (made,) = objects(said, wishes)
    assert yaml.safe_load((EXAMPLES / f"{kind}.yaml").read_text()) == made


def test_bugs_and_disruptions_fail_a_job_for_different_reasons() -> None:
    """Where the whole set is made again for a disruption, and only then."""
    made = objects(*ordered(8, 0, topology="4x4", accelerator="tpu-v6e-slice"))
    job, spec = job_of(made), made[-1]["spec"]
    actions = [one["action"] for one in job["podFailurePolicy"]["rules"]]
    assert actions == ["FailJob", "Ignore", "Count", "FailIndex"]
    assert (job["maxFailedIndexes"], spec["replicatedJobs"][0]["replicas"]) == (0, 2)
    first, last = spec["failurePolicy"]["rules"]
    assert (first["action"], first["onJobFailureReasons"]) == (
        "RestartJobSetAndIgnoreMaxRestarts", ["PodFailurePolicy"])  # fmt: skip
    assert (last["action"], last.get("onJobFailureReasons")) == ("FailJobSet", None)
    assert "alpha.jobset.sigs.k8s.io/exclusive-topology" in made[-1]["metadata"]["annotations"]
    assert "failurePolicy" not in objects(*ordered())[-1]["spec"]


def test_memory_is_as_large_as_the_copies_of_the_newest_checkpoint() -> None:
    wanted, wishes = ordered(memory="64Gi")
    saved = replace(wanted, checkpoint_bytes=64 * 2**30, save_ns=100 * 10**9)
    pod = pod_of(objects(saved, wishes))
    assert pod["volumes"][1]["emptyDir"] == {"medium": "Memory", "sizeLimit": "40Gi"}
    assert "--grace=160" in command_of(objects(saved, wishes))
    assert pod["terminationGracePeriodSeconds"] == 190


def test_what_nodes_are_wanted_stands_in_the_selector() -> None:
    made = objects(
        *ordered(8, 0, accelerator="nvidia-h100-80gb", chips="8", flex_start="on", queue="dws",
                 max_run="600", boot_disk="cache@p-1", image_streaming="on")
    )  # fmt: skip
    google = "cloud.google.com"
    assert pod_of(made)["nodeSelector"] == {
        f"{google}/gke-accelerator": "nvidia-h100-80gb",
        f"{google}/gke-flex-start": "true",
        f"{google}/gke-image-streaming": "true",
        f"{google}.node-restriction.kubernetes.io/gke-secondary-boot-disk-cache":
            "CONTAINER_IMAGE_CACHE.p-1",
    }  # fmt: skip
    assert pod_of(made)["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    keys = [one["key"] for one in pod_of(made)["tolerations"]]
    assert keys == ["cloud.google.com/gke-queued", "nvidia.com/gpu"]
    metadata = made[-1]["metadata"]
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "dws"
    assert metadata["annotations"] == {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "600"}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"image": ""}, "no container image: name one that has Holdfast in it"),
    ({"image": "my image"}, "no container image"),
    ({"kind": "pod"}, "-o kind='pod' is none of jobset, job"),
    ({"claim": ""}, "say -o claim=NAME"),
    ({"claim": "my claim"}, "-o claim='my claim' is not a claim's name"),
    ({"memory": "64 GB"}, "-o memory='64 GB' is not a quantity such as 64Gi"),
    ({"memory": "8Gi", "shm": "9Gi"}, "-o shm=9Gi is more than -o memory=8Gi"),
    ({"selector": "pool"}, "-o selector='pool' is no label: write NAME=VALUE"),
    ({"chips": "0"}, "-o chips='0' is no whole number from 1 to 1024"),
    ({"namespace": "My_Team"}, "-o namespace='My_Team' is not a name of small letters"),
    ({"kind": "job", "restart": "all"}, "say -o kind=jobset"),
    ({"topology": "4by4"}, "-o topology='4by4' is not a grid such as 2x2x4"),
    ({"topology": "4x4"}, "--spares 1: a spare host cannot take the place of one host of a TPU"),
    ({"topology": "4x8"}, "--spares 1"),
    ({"topology": "2x2x7"}, "--hosts 8 are no whole slices: one of 2x2x7 has 7 hosts"),
    ({"topology": "3x3"}, "a slice of 3x3 is not made of hosts with 4 chips each"),
    ({"boot-disk": "cache"}, "-o boot-disk='cache' is not valid: write DISK@PROJECT"),
    ({"with": "access,all"}, "-o with='all' is not access or prepull"),
    ({"object": "Lm"}, "-o object='Lm' is not a name of small letters, digits and -"),
    ({"accelerator": "tpu-v6e-slice"}, "needs the slice's -o topology, such as 2x2x4"),
    ({"accelerator": "nvidia-l4"}, "gives a pod none: say how many with -o chips"),
    ({"resource": "amd.com/gpu"}, "-o resource says of what -o chips are"),
    ({"kind": "job", "exclusive": "rack"}, "-o exclusive=rack is a JobSet's"),
    ({"max-run": "60"}, "-o max-run is for a queue of Kueue: say -o queue"),
    ({"with": "access", "account": "a.b"}, "-o account=a.b is no name for a new account"),
    ({"flex-start": "yes"}, "-o flex-start='yes' is none of on, off"),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=str)
def test_what_can_never_start_is_said_in_one_sentence(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        objects(*ordered(**{name.replace("-", "_"): value for name, value in options.items()}))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "near"),
    [("My_run.v2", "my-run-v2"), ("9lives", "run-9lives"), ("a" * 60, "a" * 47), ("_", "run")],
)
def test_a_run_whose_name_kubernetes_cannot_have_is_told_one_that_it_can(
    name: str, near: str
) -> None:
    wanted, wishes = ordered()
    with pytest.raises(ConfigurationError, match=f"say -o object={near}$"):
        objects(replace(wanted, run=name), wishes)
    made = objects(replace(wanted, run=name), Wishes.of(
        dict(wanted.options) | {"object": near}))  # fmt: skip
    assert made[-1]["metadata"]["name"] == near


def test_grace_that_is_no_number_is_said() -> None:
    wanted, wishes = ordered()
    with pytest.raises(ConfigurationError, match="--grace 'inf' is no number of seconds"):
        objects(replace(wanted, flags=("--grace", "inf")), wishes)


def test_the_page_tells_of_every_option() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "how-to" / "kubernetes.md").read_text()
    table = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    told = [name for cell in table for name in re.findall(r"`([a-z-]+)`", cell)]
    assert sorted(told) == sorted(one.name for one in OPTIONS)


def test_the_command_arrives_as_it_was_typed() -> None:
    typed = ("sh", "-c", "echo $$ $HOME $(POD_NAME) $$(x) $", "$$$$(")
    submission, wishes = ordered()
    made = command_of(objects(replace(submission, command=typed), wishes))
    assert tuple(map(expanded, made[made.index("--") + 1 :])) == typed


def expanded(word: str) -> str:
    """As Kubernetes does before a start, of a pod that has every variable that is named."""
    return re.sub(r"\$(\$|\(.*?\))", lambda found: "$" if found[1] == "$" else "expanded", word)


def test_a_command_that_no_manifest_can_hold_is_refused() -> None:
    submission, wishes = ordered()
    with pytest.raises(ConfigurationError, match=r"'\\udcff' in the command is no valid UTF-8"):
        objects(replace(submission, command=("python", "\udcff")), wishes)
