"""The script that a machine starts with, run by a real shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.config import STARTED_VARIABLE
from holdfast.core.hosts.wanted import Machines
from holdfast.provision import startup
from holdfast.provision.startup import Workers, startup_script

# `run` leaves with the next of `codes`; `agent` with the next of `agents`, or stays until SIGTERM.
FAKE = """#!/bin/bash
if [ "$1" = agent ]; then
  echo "$* $$" >> agents.asked
  code=$(sed -n "$(wc -l < agents.asked)p" agents)
  # The run does not begin, and with it end, before it is known that this one is left out.
  [ "$code" != 78 ] || touch agent.settled
  [ "$code" = stay ] || exit "$code"
  trap 'echo told >> agents.told; kill $!; exit 0' TERM
  touch agent.settled
  sleep 60 & wait $!
  exit 1
fi
until [ -e agent.settled ] || [ ! -e agents ]; do sleep 0.01; done
echo "$# $*" >> asked
echo "$HOLDFAST_MACHINE_STARTED" > started
n=$(wc -l < asked)
exit $(sed -n "${n}p" codes)
"""
# What the metadata server says of `attributes/NAME`, one file each.
CURL = """#!/bin/bash
name=${!#}
cat "attributes.${name##*/}" 2>/dev/null || exit 22
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(startup, "AGAIN_S", 0)
    for name, text in {"holdfast": FAKE, "curl": CURL}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o700)

    def start(codes, *words, setup="", **how):
        (tmp_path / "codes").write_text("\n".join(map(str, codes)))
        text = startup_script("lm", "/the store", words or ("true",), setup, **how)
        return subprocess.run(
            ["bash", "-c", text],
            cwd=tmp_path,
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return start


@pytest.mark.real
@pytest.mark.parametrize("codes", [[0], [69, 69, 75], [1], [69, 78]])
def test_it_starts_the_run_until_that_says_more_than_not_now(machine, tmp_path, codes):
    command = ["python", "it's.py", "--name", "$HOME"]
    done = machine(codes, *command, setup="set -e\necho set up >> asked.first\n", agent=False)
    assert (done.returncode, done.stderr) == (codes[-1], "")
    asked = (tmp_path / "asked").read_text().splitlines()
    words = "10 run --name lm --store /the store -- python it's.py --name $HOME"
    assert asked == [words] * len(codes)
    assert (tmp_path / "asked.first").read_text() == "set up\n"
    assert len((tmp_path / "started").read_text().strip()) == 19  # nanoseconds
    assert not (tmp_path / "agents.asked").exists()


def test_a_bucket_is_opened_by_the_machines_own_account():
    line = "export HOLDFAST_STORE_CREDENTIALS=instance\n"
    assert line in startup_script("lm", "gs://b/runs", ["true"])
    assert line not in startup_script("lm", "/nfs/runs", ["true"])


@pytest.mark.real
def test_the_agent_is_started_again_when_it_dies_and_ends_with_the_script(machine, tmp_path):
    (tmp_path / "agents").write_text("137\nstay\n")
    assert machine([75]).returncode == 75
    asked = (tmp_path / "agents.asked").read_text().splitlines()
    assert [line.rpartition(" ")[0] for line in asked] == ["agent --autocheckpoint"] * 2
    assert (tmp_path / "agents.told").read_text() == "told\n"
    for line in asked:
        assert not Path("/proc", line.rpartition(" ")[2]).exists()


@pytest.mark.real
def test_where_nobody_warns_the_host_the_agent_is_left_out(machine, tmp_path):
    (tmp_path / "agents").write_text("78\n")
    assert machine([0]).returncode == 0
    assert len((tmp_path / "agents.asked").read_text().splitlines()) == 1


@pytest.mark.real
@pytest.mark.parametrize(
    ("worker", "about", "code", "starts"),
    [
        ("0", "ZONE: 'z'\n", 0, True),
        ("0", "A: 'b'\nMEGASCALE_SLICE_ID: '0'\n", 0, True),
        ("1", "ZONE: 'z'\n", 0, False),
        ("0", "MEGASCALE_SLICE_ID: '12'\n", 0, False),
        ("3", "MEGASCALE_SLICE_ID: 1\n", 0, False),
        ("0", None, 69, False),
        (None, "ZONE: 'z'\n", 69, False),
    ],
)
@pytest.mark.parametrize("agent", [False, True])
def test_of_several_hosts_the_first_starts_the_run(
    machine, tmp_path, worker, about, code, starts, agent
):
    for name, text in {"agent-worker-number": worker, "tpu-env": about}.items():
        if text is not None:
            (tmp_path / f"attributes.{name}").write_text(text)
    if agent:
        (tmp_path / "agents").write_text("78\n")
    done = machine([0], one_host=False, agent=agent)
    assert (done.returncode, (tmp_path / "asked").exists()) == (code, starts)
    if code:
        assert "does not say which" in done.stderr
    elif not starts:
        assert "the first host of the first slice runs it" in done.stdout


@pytest.mark.real
def test_each_host_starts_the_command_by_itself_where_that_is_wanted(machine, tmp_path):
    (tmp_path / "each").write_text('echo "$HOLDFAST_NAME $HOLDFAST_STORE $*" >> said\nexit 75\n')
    done = machine([], "bash", "each", "a b", one_host=False, workers=Workers.EACH, agent=False)
    assert done.returncode == 75
    assert (tmp_path / "said").read_text() == "lm /the store a b\n"
    assert STARTED_VARIABLE in startup_script("lm", "/s", ["true"], workers=Workers.EACH)


@pytest.mark.parametrize(
    ("accelerator", "slices", "is_one"),
    [
        ("v5litepod-8", 1, True), ("v6e-1", 1, True), ("v4-8", 1, True), ("v2-8", 1, True),
        ("v5litepod-16", 1, False), ("v4-16", 1, False), ("v5litepod-8", 2, False),
        ("tpu7x", 1, False), ("v5p-2x2x2", 1, False),
    ],
)  # fmt: skip
def test_which_machines_are_one_host_for_certain(accelerator, slices, is_one):
    machines = Machines(
        "cloud-tpu", "lm", "0", "lm", "p", "z", accelerator, "v2", slices=slices, is_queued=True
    )
    assert machines.is_one_host is is_one
