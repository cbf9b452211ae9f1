"""The unit file of a run as a service: systemd accepts it, and `holdfast run` its command."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from holdfast.cli.run import run

UNIT = Path(__file__).parents[2] / "examples" / "systemd" / "holdfast-run.service"
SAID = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line)


def test_the_command_is_one_of_ours_and_leaves_time_to_save():
    _, *words = shlex.split(SAID["ExecStart"])
    assert words[0] == "run"
    with click.Context(run, info_name="run") as context:
        run.parse_args(context, words[1:])
    assert context.params["grace_s"] < float(SAID["TimeoutStopSec"])
    assert SAID["KillMode"] == "mixed"


@pytest.mark.real
def test_systemd_accepts_it(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here")
    here = tmp_path / UNIT.name
    program = SAID["ExecStart"].split()[0]
    here.write_text(UNIT.read_text().replace(program, sys.executable))
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", here], capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")
