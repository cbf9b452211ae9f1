"""The manifests for Kubernetes fit what `holdfast run` does, and each other.

That they are what Kubernetes takes is asked in test_manifest_schema.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from holdfast.cli.run import run
from holdfast.errors import (
    EXIT_CONFIGURATION,
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_UNAVAILABLE,
    EXIT_USER_FAILURE,
)

FOLDER = Path(__file__).parents[2] / "examples" / "kubernetes"
NAMES = ["job.yaml", "jobset.yaml"]


def job(name: str) -> dict[str, Any]:
    """What the manifest says of its one Job."""
    manifest = yaml.safe_load((FOLDER / name).read_text())
    if manifest["kind"] == "Job":
        return manifest["spec"]
    (replicated,) = manifest["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1  # the index of a Job begins at 0 in each
    return replicated["template"]["spec"]


def options(name: str) -> dict[str, str]:
    """Of `holdfast run`, by their names."""
    (container,) = job(name)["template"]["spec"]["containers"]
    words = container["command"]
    assert words[:2] == ["holdfast", "run"]
    ours = words[2 : words.index("--")]
    pairs = (word.removeprefix("--").partition("=") for word in ours)
    return {name: value for name, _, value in pairs}


def test_both_manifests_describe_the_same_job() -> None:
    alone, in_a_set = job("job.yaml"), job("jobset.yaml")
    env = in_a_set["template"]["spec"]["containers"][0]["env"]
    assert env.pop()["name"] == "JOBSET_UID"  # a Job alone has none
    assert alone == in_a_set


@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_pod_for_each_host_and_spare(name: str) -> None:
    spec, given = job(name), options(name)
    hosts = int(given["hosts"]) + int(given["spares"])
    assert (spec["completions"], spec["parallelism"]) == (hosts, hosts)
    assert spec["completionMode"] == "Indexed"  # sets JOB_COMPLETION_INDEX


@pytest.mark.parametrize("name", NAMES)
def test_each_exit_code_has_the_answer_that_it_asks_for(name: str) -> None:
    template = job(name)["template"]["spec"]
    assert template["restartPolicy"] == "Never"  # podFailurePolicy needs it
    answers: dict[int, str] = {}
    for rule in job(name)["podFailurePolicy"]["rules"]:
        if "onExitCodes" in rule:
            codes = rule["onExitCodes"]
            assert codes["containerName"] == template["containers"][0]["name"]
            answers |= dict.fromkeys(codes["values"], rule["action"])
    assert answers == {
        EXIT_SAVED_START_ME_AGAIN: "Ignore",
        EXIT_UNAVAILABLE: "Count",
        EXIT_USER_FAILURE: "FailJob",
        EXIT_CONFIGURATION: "FailJob",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_pod_has_longer_than_a_stop_takes(name: str) -> None:
    grace_s = job(name)["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s >= int(options(name)["grace"]) + 30


@pytest.mark.parametrize("name", NAMES)
def test_every_path_that_is_named_is_mounted(name: str) -> None:
    template = job(name)["template"]["spec"]
    (container,) = template["containers"]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in template["volumes"]}
    assert set(mounts.values()) == set(volumes)
    given = options(name)
    assert given["store"] in mounts
    assert str(Path(given["secret-file"]).parent) in mounts
    assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory"
    assert {one["value"] for one in container["env"] if "value" in one} <= set(mounts)


@pytest.mark.parametrize("name", NAMES)
def test_holdfast_has_these_options(name: str) -> None:
    known = CliRunner().invoke(run, ["--help"]).output
    assert all(f"--{option} " in known for option in options(name))
