"""The service files of the host daemon: their readers accept them, and so does the agent."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from holdfast.cli.agent import agent

FOLDER = Path(__file__).parents[2] / "examples" / "agent"
UNIT = FOLDER / "holdfast-agent.service"


def accepts(words: list[str]) -> dict[str, object]:
    """The flags of a command line; fails for one that the agent does not know."""
    assert words[:2] == ["holdfast", "agent"]
    with click.Context(agent, info_name="agent") as context:
        agent.parse_args(context, words[2:])
    return context.params


@pytest.mark.real
def test_the_systemd_unit(tmp_path):
    (line,) = [one for one in UNIT.read_text().splitlines() if one.startswith("ExecStart=")]
    program, *words = shlex.split(line.removeprefix("ExecStart="))
    flags = accepts([Path(program).name, *words])
    assert flags["autocheckpoint"]
    assert flags["release_file"].startswith("/run/holdfast/")
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here")
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace(program, sys.executable))
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", here], capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_the_daemon_set():
    yaml = pytest.importorskip("yaml")
    manifest = yaml.safe_load((FOLDER / "holdfast-agent.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("apps/v1", "DaemonSet")
    template = manifest["spec"]["template"]
    labels = manifest["spec"]["selector"]["matchLabels"]
    assert labels.items() <= template["metadata"]["labels"].items()
    pod = template["spec"]
    assert pod["hostPID"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    (container,) = pod["containers"]
    assert {"SYS_PTRACE", "KILL"} <= set(container["securityContext"]["capabilities"]["add"])
    flags = accepts(container["command"] + container["args"])
    assert flags["autocheckpoint"]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one["hostPath"]["path"] for one in pod["volumes"]}
    assert volumes[mounts[flags["state"]]] == flags["state"]
