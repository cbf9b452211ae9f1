"""The batch script that is submitted, and what no script may have."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.core.hosts.engine import Submission
from holdfast.engines.slurm.script import (
    Grace,
    batch_script,
    check_options,
    lead_s,
    time_limit_s,
)
from holdfast.errors import ConfigurationError

GOLDEN = Path(__file__).with_name("lm.sh")
SECOND_NS = 1_000_000_000
LM = Submission("slurm", "lm", "0123456789ab", "/shared/runs", 7, 1, ("python", "train.py"), 8)
GRACE = Grace(25, "A preemption leaves 30 s (KillWait).")
OPTIONS = (
    ("partition", "a100,h100"),
    ("time", "2-00:00:00"),
    ("gres", "gpu:8"),
    ("cpus", "96"),
    ("sbatch", "--exclusive --constraint='a100&nvlink' --mail-user=ann@site.edu"),
    ("setup", 'module load cuda && export CACHE="$TMPDIR/cache"'),
    ("output", "/shared/logs"),
)


def of(*options: tuple[str, str], **fields: object) -> Submission:
    return replace(LM, options=options, **fields)


def test_the_script_is_one_that_a_person_can_read() -> None:
    wanted = of(*OPTIONS, command=("python", "train.py", "--name", "it's"), flags=("--keep", "5"))
    assert batch_script(wanted, GRACE, ["holdfast"]) == GOLDEN.read_text("utf-8")


def test_bash_understands_it() -> None:
    """A contract of one edge: that the golden script is bash, and its words are those given."""
    words = shlex.split(GOLDEN.read_text("utf-8").replace("\\\n", ""), comments=True)
    assert words[words.index("--", words.index("srun")) + 1 :][:4] == [
        "python", "train.py", "--name", "it's",
    ]  # fmt: skip


def test_short_options_of_sbatch_are_written_as_it_reads_them() -> None:
    script = batch_script(of(("sbatch", "-p=high -H --wait-all-nodes=1")), GRACE, ["holdfast"])
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    assert {"#SBATCH -p high", "#SBATCH -H", "#SBATCH --wait-all-nodes=1"} < set(lines)


@pytest.mark.real
def test_bash_reads_the_script() -> None:
    subprocess.run(["bash", "-n", GOLDEN], check=True)


def test_a_grace_of_the_users_own_counts() -> None:
    script = batch_script(of(flags=("--grace", "60")), GRACE, ["holdfast"])
    assert script.count("--grace") == 1
    assert "--grace 60" in script
    assert "--grace" not in batch_script(LM, Grace(None, "not known"), ["holdfast"])


def test_the_time_limit_is_told_so_far_ahead_that_two_saves_fit() -> None:
    assert lead_s(LM) == 120
    assert lead_s(of(save_ns=200 * SECOND_NS)) == 400
    assert lead_s(of(("signal", "60"), save_ns=200 * SECOND_NS)) == 60
    check_options(of(("time", "1"), ("signal", "50")))
    with pytest.raises(ConfigurationError, match=r"time=6 is over before .* told 400 s ahead"):
        check_options(of(("time", "6"), save_ns=200 * SECOND_NS))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partition", "a b"),
        ("partition", "a\n#SBATCH --uid=0"),
        ("account", "$(id)"),
        ("account", "a;b"),
        ("qos", ""),
        ("gres", 'gpu:"8"'),
        ("gpus", "0"),
        ("cpus", "many"),
        ("memory", "64 G"),
        ("memory", "#"),
        ("time", "soon"),
        ("time", "2"),  # it is told 120 s ahead, so at once, and again after each requeue
        ("time", "1:2:3:4:5"),
        ("signal", "9"),
        ("signal", "100000"),
        ("signal", "B:TERM@60"),
        ("sbatch", "exclusive"),
        ("sbatch", "--exclusive -"),
        ("sbatch", "--constraint='a"),
        ("sbatch", "--reason='a`b'"),
        ("sbatch", "--nodes=9"),
        ("sbatch", "--array=1-9"),
        ("sbatch", "--arr=1-9"),  # sbatch takes every beginning of a name that is no other's
        ("sbatch", "--wait"),
        ("sbatch", "-M=west"),
        ("program", "'a"),
        ("program", " "),
        ("sbatch", "--comment=mine"),
        ("setup", "module load\ncuda"),
        ("setup", "\x1b[2J"),
        ("output", "/logs/%j"),
        ("output", "/logs/`id`"),
        ("output", "/a\\b"),
    ],
)
def test_a_value_that_no_script_may_have(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        check_options(of((name, value)))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("01:00:00", 3600),
        ("2-00", 172_800),
        ("1-12:30", 131_400),
        ("1-00:00:01", 86_401),
        ("UNLIMITED", None),
        ("0", None),
    ],
)
def test_times_as_slurm_writes_them(text: str, seconds: int | None) -> None:
    assert time_limit_s(text) == seconds


@given(st.text(max_size=12), st.sampled_from(["partition", "sbatch", "output", "time", "gpus"]))
def test_no_value_makes_a_line_of_its_own(value: str, name: str) -> None:
    plain = batch_script(LM, GRACE, ["holdfast"]).splitlines()
    try:
        lines = batch_script(of((name, value)), GRACE, ["holdfast"]).splitlines()
    except ConfigurationError:
        return
    more = [line for line in lines if line not in plain]
    assert all(line.startswith(("#SBATCH --", "#SBATCH -", "    --output=")) for line in more)


CONTINUED = " \\\n    "  # a line of the script goes on in the next
PRINTED = st.characters(exclude_categories=("C", "Z"), include_characters=" \n\t")


@given(st.lists(st.text(PRINTED), min_size=1, max_size=4))
def test_the_command_is_given_as_it_is(command: list[str]) -> None:
    script = batch_script(of(command=tuple(command)), GRACE, ["holdfast"])
    step = script[script.index("\nsrun ") : script.index("\n\n# 75")]
    assume(not any(CONTINUED in word for word in command))
    words = shlex.split(step.replace(CONTINUED, " "))
    assert words[words.index("--") + 1 : -2] == command


@pytest.mark.real
def test_bytes_that_sbatch_or_a_file_would_change_are_written_out() -> None:
    """Read by a real bash: sbatch refuses a carriage return, and UTF-8 has not every byte."""
    typed = [b"a\r\nb", b"\x01\x7f'\\", b"\xff\xfe", "\u202e\xfc".encode(), b"it's $HOME"]
    words = [os.fsdecode(word) for word in typed]
    script = batch_script(of(command=("python", *words)), GRACE, ["holdfast"])
    assert all(one.isprintable() or one == "\n" for one in script)
    step = script[script.index("-- python ") : script.index(" || code=$?")]
    printed = ["bash", "-c", step.replace("-- python", "printf '%s\\0'")]
    said = subprocess.run(printed, capture_output=True, check=True).stdout
    assert said.split(b"\0")[:-1] == typed
