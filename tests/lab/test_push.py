"""A working tree on machines that are reached over a real SSH, and the run there until done."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import LabProcess
from processes import EXIT_CONFIGURATION, EXIT_DONE, EXIT_FAILED, EXIT_SAVED, EXIT_UNAVAILABLE
from ssh_lab import LabNodes, SshLab, until

pytestmark = pytest.mark.real

# Steps up to the number in a file that all hosts see may begin; "fail": the script does.
TRAINER = """\
import sys, time
from pathlib import Path
import numpy as np
import holdfast as hf

allow = Path(sys.argv[1])
run = hf.start()
state = run.restore(init=lambda: {"w": np.zeros(3)})
for step in run.steps(int(sys.argv[2])):
    while (text := allow.read_text()) != "fail" and int(text) < step:
        time.sleep(0.02)
    if text == "fail":
        raise RuntimeError("as it was told")
    time.sleep(0.01)
    state["w"] += 1
    run.done(step, state)
    print("did", step, flush=True)
"""
STEPS = 12


class PushLab(SshLab):
    """With a script whose steps are allowed one by one."""

    def __enter__(self) -> PushLab:
        super().__enter__()
        self.allow_file = self.lab.shared / "allow"
        self.allow(1000)
        (self.work / "train.py").write_text(TRAINER)
        return self

    def allow(self, step: int | str) -> None:
        draft = self.allow_file.with_suffix(".new")
        draft.write_text(str(step))
        draft.replace(self.allow_file)

    def command(self, steps: int = STEPS) -> list[object]:
        return ["--", "python3", "train.py", self.allow_file, steps]

    def up(self, *words: object, steps: int = STEPS, env: dict | None = None) -> LabProcess:
        fixed = ["--push", ".", "--ssh-config", self.config, "--save-every", 3]
        return self.holdfast("up", "lm", *fixed, *words, *self.command(steps), env=env)

    def pushed(self, index: int) -> Path:
        """The run's folder on a machine, as this machine sees it."""
        (found,) = (self.lab.hosts[index].root / f"{self.lab.own}"[1:]).glob(".holdfast/pushed/*")
        return found


@pytest.fixture
def make_ssh(tmp_path: Path) -> Iterator[object]:
    made: list[PushLab] = []

    def make(machines: int, **how: bool) -> PushLab:
        made.append(PushLab(machines, tmp_path, **how).__enter__())
        return made[-1]

    yield make
    for one in made:
        one.__exit__()


def test_submit_starts_it_everywhere_and_needs_nobody_afterwards(make_ssh) -> None:
    ssh = make_ssh(2)
    ssh.allow(4)
    secret = ssh.folder / "secret"
    secret.write_text("s" * 48)
    secret.chmod(0o600)
    options = ["-o", 'install=echo "it\'s $(pwd)"; touch here', "--save-every", 3]
    words = [*options, "--secret-file", secret, *ssh.command(400)]
    submitted = ssh.submit([1, 2], *words)
    said = submitted.wait(EXIT_DONE)
    assert "pushing 0.0 MiB to 2 hosts, 1 of them from here" in said
    for index in (1, 2):
        pushed = ssh.pushed(index)
        (tree,) = (pushed / "trees").iterdir()
        assert sorted(one.name for one in tree.iterdir())[:1] == ["here"]
        assert (pushed / "install.log").read_text().startswith("it's /")
        modes = [path.stat().st_mode & 0o777 for path in (pushed, pushed / "secret")]
        assert modes == [0o700, 0o600]
        until(lambda p=pushed, i=index: f"[{i - 1}] did 4\n" in (p / "job.log").read_text(), "4")
    again = ssh.submit([1, 2], *words).wait(EXIT_UNAVAILABLE)
    ssh.allow(390)
    assert "is held by" in again or "is submitted already (on h1, h2)" in again
    released = ssh.holdfast("release", "lm").wait(EXIT_DONE)
    assert "ended on 2 hosts" in released
    assert json.loads((ssh.pushed(1) / "job.json").read_text())["index"] == 0
    ssh.allow(1000)
    back = ssh.submit([1, 2], *words).wait(EXIT_DONE)
    assert "pushing" not in back, "the same tree is sent once"
    assert "installing" not in back
    until(lambda: "did 400\n" in (ssh.pushed(1) / "job.log").read_text(), "done")


def test_the_laptop_is_killed_and_the_same_command_goes_on(make_ssh) -> None:
    ssh = make_ssh(2)
    ssh.allow(5)
    first = ssh.up("--machines", "h1,h2")
    first.saw(r"^h0 \[0\] did 5$")
    first.saw(r"^h1 \[1\] did 5$")
    first.send(signal.SIGKILL)
    first.wait(-signal.SIGKILL)
    ssh.allow(9)
    until(lambda: "did 9\n" in (ssh.pushed(2) / "job.log").read_text(), "it trains on")
    second = ssh.up("--machines", "h1,h2")
    second.saw("did 9$")
    ssh.allow(1000)
    assert f"did {STEPS}" in second.wait(EXIT_DONE)
    assert "run 'lm': done" in second.text
    assert not re.search("pushing|starting", second.text), second.text


def test_what_ends_is_started_again_and_what_a_person_stops_is_not(make_ssh) -> None:
    ssh = make_ssh(2)
    ssh.allow(4)
    up = ssh.up("--machines", "h1,h2", steps=400)
    up.saw(r"\[1\] did 4$")
    ssh.on(2, "pkill", "-KILL", "-f", "holdfast.* run --name lm")
    up.saw("starting host 1")
    ssh.allow(8)
    up.saw(r"\[1\] did 8$")
    assert "pushing" not in "\n".join(up.lines[5:]), "it has its tree"
    ssh.holdfast("stop", "lm").wait(EXIT_DONE)
    ssh.allow(300)
    up.wait(EXIT_SAVED)
    assert "it was stopped" in up.text
    again = ssh.up("--machines", "h1,h2", steps=400)
    again.saw(r"\[1\] did 300$")
    ssh.allow("fail")
    assert "as it was told" in again.wait(EXIT_FAILED)


def test_what_nobody_looks_after_says_so_and_up_starts_it_there(make_ssh) -> None:
    ssh = make_ssh(2)
    ssh.allow(4)
    submitted = ssh.submit([1, 2], "--save-every", 3, *ssh.command(400)).wait(EXIT_DONE)
    assert "nobody looks after the hosts from now on" in submitted
    until(lambda: "[1] did 4\n" in (ssh.pushed(2) / "job.log").read_text(), "4")
    ssh.on(2, "pkill", "-KILL", "-f", "holdfast.* run --name lm")
    until(
        lambda: (
            "h2 (host 1) is gone: it was rebooted, or the run was killed there"
            in ssh.holdfast("hosts", "lm").wait(EXIT_DONE)
        ),
        "what its host says",
    )
    up = ssh.up("--machines", "h1,h2", steps=400)
    up.saw("starting host 1")
    ssh.allow(8)
    up.saw(r"\[1\] did 8$")
    assert "pushing" not in up.text


def test_up_looks_after_a_run_that_was_submitted_with_a_spare(make_ssh) -> None:
    ssh = make_ssh(3)
    ssh.allow(4)
    hosts = ("--hosts", 2, "--spares", 1, "--save-every", 3)
    ssh.submit([1, 2, 3], *hosts, *ssh.command(400)).wait(EXIT_DONE)
    until(lambda: "[1] did 4\n" in (ssh.pushed(2) / "job.log").read_text(), "4")
    ssh.on(3, "pkill", "-KILL", "-f", "holdfast.* run --name lm")
    up = ssh.up("--machines", "h1,h2,h3", "--spares", 1, steps=400)
    up.saw("starting host 2")
    up.saw("without a part: it waits")
    ssh.allow(1000)
    up.wait(EXIT_DONE)


def test_a_laptop_that_knows_no_names_for_a_while_goes_on_afterwards(make_ssh) -> None:
    ssh = make_ssh(2)
    ssh.allow(4)
    up = ssh.up("--machines", "h1,h2", steps=40)
    up.saw(r"\[1\] did 4$")
    known = ssh.config.read_text()
    ssh.config.write_text("Host h2\n  HostName nowhere.invalid\n" + known)
    ssh.on(2, "pkill", "-KILL", "-f", "sshd.*notty")  # what is connected
    up.saw(r"host 1 \(h2\): there is no host of that name")
    ssh.config.write_text(known)
    ssh.allow(1000)
    up.wait(EXIT_DONE)


def test_a_connection_that_is_cut_in_the_middle_of_a_push(make_ssh) -> None:
    ssh = make_ssh(2)
    (ssh.work / "large").write_bytes(bytes(range(256)) * (1 << 18))  # 64 MiB, badly packed by 1
    up = ssh.up("--machines", "h1,h2", "--no-relay", steps=3)
    up.saw("pushing")
    ssh.lab.cut(2)
    up.saw(r"^holdfast: host 1 \(h2\): ")
    assert not list((ssh.pushed(1) / "trees").glob("*.part"))
    ssh.lab.mend(2)
    up.wait(EXIT_DONE)
    for index in (1, 2):
        assert len(list((ssh.pushed(index) / "trees").iterdir())) == 1
        assert not list(ssh.pushed(index).glob("*.part"))


def test_an_install_that_fails_on_one_host_starts_nothing(make_ssh) -> None:
    ssh = make_ssh(2)
    line = 'echo "on $(hostname)"; test "$(hostname)" != h2'
    said = ssh.up("--machines", "h1,h2", "--install", line).wait(EXIT_UNAVAILABLE)
    assert "host 1: the install ended with 1: on h2" in said
    assert not (ssh.pushed(1) / "job.json").exists()
    fixed = ssh.up("--machines", "h1,h2", "--install", "true").wait(EXIT_DONE)
    assert "pushing" not in fixed


def test_a_disk_that_is_full_is_said_so(make_ssh) -> None:
    ssh = make_ssh(2)
    (ssh.work / "large").write_bytes(bytes(8 << 20))
    ssh.on(2, "mount", "-o", "remount,size=6m", str(ssh.lab.own))
    said = ssh.up("--machines", "h1,h2").wait(EXIT_UNAVAILABLE)
    assert re.search(r"host 1: the disk of .* has \d MiB left, and the tree needs 9", said), said
    assert not list((ssh.pushed(2) / "trees").iterdir())
    assert not (ssh.pushed(1) / "job.json").exists()


def test_what_keeps_a_host_away_is_one_sentence(make_ssh) -> None:
    ssh = make_ssh(2)
    nowhere = ["--program", "nowhere/holdfast"]
    lacking = ssh.up("--machines", "h1,h2", *nowhere).wait(EXIT_UNAVAILABLE)
    assert "hosts 0, 1: there is no Holdfast after the install" in lacking
    ssh.lab.hosts[2].power_off()
    limited = ssh.up("--machines", "h1,h2", "--limit", 14).wait(EXIT_UNAVAILABLE)
    assert re.search(r"host 1 \(h2\): (there is no way to it|it does not answer)", limited)
    ssh.boot(ssh.lab.hosts[2])  # the same name and address, and another key
    changed = ssh.up("--machines", "h1,h2").wait(EXIT_UNAVAILABLE)
    assert "host 1: its host key has changed" in changed
    nobody = ssh.up("--machines", "h1,h9").wait(EXIT_UNAVAILABLE)
    assert "host 1: there is no host of that name" in nobody
    stranger = ["--ssh-key", "/dev/null", "--ssh-user", "nobody"]
    refused = ssh.up("--machines", "h1", *stranger).wait(EXIT_UNAVAILABLE)
    assert "host 0: it refuses this user's key" in refused
    for words, sentence in (
        (["--machines", "h1,h1"], "named twice"),
        (["--project", "p"], "nothing to make machines of: say --zone, --type, --runtime too"),
        (["--machines", "h1", "--setup", "x"], "say --install LINE"),
        (["--machines", "h1", "--spares", "1"], "one at least trains"),
        (["--spares", "1"], "--spares goes with --machines"),
    ):
        assert sentence in ssh.up(*words).wait(EXIT_CONFIGURATION)
    plain = ["up", "lm", "--install", "true", "--", "true"]
    assert "--install goes with --push" in ssh.holdfast(*plain).wait(EXIT_CONFIGURATION)
    path = {"PATH": str(ssh.folder)}
    assert "no ssh on this machine" in ssh.up("--machines", "h1", env=path).wait(EXIT_CONFIGURATION)


def test_a_slice_is_taken_and_both_are_made_again_pushed_and_train_on(make_ssh) -> None:
    pytest.importorskip("google.cloud.tpu_v2alpha1")
    from holdfast.testing.tpu import TpuEmulator

    ssh = make_ssh(4, is_on=False)
    ssh.allow(8)
    at = ssh.lab.shared / "tpu.socket"
    made_of = ["--project", "p", "--zone", "z", "--type", "v5litepod-8", "--runtime", "v2"]
    many = ["--slices", 2, "--queued", "--buy", "spot", "--every", 0.5, "--delete"]
    with TpuEmulator(machines=LabNodes(ssh, 2), at=at) as tpu:
        env = {"HOLDFAST_TPU_ENDPOINT": f"unix:{at}"}
        up = ssh.up(*made_of, *many, steps=400, env=env)
        for index in range(4):
            up.saw(rf"^h{index} \[{index}\] did 8$")
        ssh.allow(300)
        until(lambda: list(ssh.store.glob("lm/ckpt/*")), "a save")
        second = sorted(name.rpartition("/")[2] for name in tpu.nodes)[1]
        tpu.do("preempt", second)
        up.saw("deleting lm-.*-g1: .*-g1-1 was preempted; .* the healthy .*-g1-0 with it")
        up.saw("creating lm-.*-g2")
        up.saw("starting 4 hosts", count=2)
        ssh.allow(1000)
        up.wait(EXIT_DONE)
        assert len(tpu.queued) == 1
        codes = [ssh.pushed(index) / "job.code" for index in range(1, 5)]
        assert [one.read_text() for one in codes] == ["0\n"] * 4, "all slices have left by then"
    for index in range(4):
        up.saw(rf"^h{index} \[{index}\] did 400$")
    report = json.loads(ssh.holdfast("report", "lm", "--json").wait(EXIT_DONE))
    (disruption,) = report["disruptions"]
    assert disruption["cause"] == "machine_preempted"
    said = ssh.holdfast("report", "lm").wait(EXIT_DONE)
    for words in ("waiting again: in a queue", "pulling images", "getting ready"):
        assert words in said
