"""`holdfast agent --autocheckpoint` with real processes; the device that they hold is a file."""

from __future__ import annotations

import json
import re
import signal
import sys
import urllib.request
from pathlib import Path

import pytest
from processes import Process

sys.path.insert(0, str(Path(__file__).parent))
from holding import SAVER, STUBBORN, WITH_WORKERS, jobs

sys.path.pop(0)


class Host:
    """A device, a file that notices are written to, and an agent that listens to it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.device, self.notice = folder / "accel0", folder / "notice"
        self.device.write_bytes(bytes(4096))
        self.processes: list[Process] = []

    def holdfast(self, *words: object) -> Process:
        command = [sys.executable, "-m", "holdfast.cli.main", "agent", *words]
        self.processes.append(Process(command, cwd=self.folder))
        return self.processes[-1]

    def agent(self, *words: object, grace_s: float = 60) -> Process:
        devices = ("--devices", f"{self.folder}/accel*", "--state", self.folder / "state")
        notice = ("--notice", f"file:{self.notice}", "--grace", grace_s)
        begun = self.holdfast("--autocheckpoint", *devices, *notice, *words)
        begun.saw("Listening for notices from file")
        return begun

    def announce(self, words: str) -> None:
        """A notice, there with all of its words at once."""
        draft = self.folder / "notice.new"
        draft.write_text(words)
        draft.replace(self.notice)

    def status(self) -> dict:
        words = ("status", "--json", "--state", self.folder / "state")
        return json.loads(self.holdfast(*words).wait(0))


@pytest.fixture
def host(tmp_path, store):
    (tmp_path / "host").mkdir()
    host = Host(tmp_path / "host")
    yield host
    for process in host.processes:
        process.close()


@pytest.fixture
def start(host, eventually):
    with jobs(host.device, eventually) as begin:
        yield begin


@pytest.mark.contract("host daemon: a notice, a save, a release")
def test_a_notice_has_all_save_and_then_releases_the_host(host, start):
    release = f"{sys.executable} -c \"open('released words', 'x')\""
    agent = host.agent("--release", release, "--release-file", "flag", "--metrics", 0)
    port = agent.saw(r"metrics: http://127.0.0.1:(\d+)/metrics")[1]
    saver, loader, slow = start(SAVER), start(WITH_WORKERS), start(STUBBORN)
    host.announce("21600")
    agent.saw("processes are signalled in 6 h")  # 6 h less 65 s: it trains on
    assert saver.log == ["up"]
    host.announce("60")
    agent.saw(f"process {saver.pid} .* ended after")
    late = start(SAVER, wait=False)
    agent.saw(f"process {late.pid} .* ended after")
    agent.saw(f"process {loader.pid} .* ended after")
    assert not (host.folder / "flag").exists()
    known = host.status()
    assert (known["running"], known["phase"]) == (True, "saving")
    slow.close()
    agent.saw("clear after .* 5 of 5 processes have ended")
    agent.saw("Released: touch flag and run .*: exit code 0")
    assert (host.folder / "released words").exists()
    assert (host.folder / "flag").exists()
    assert saver.log == ["up", "SIGTERM", "saved"]
    assert loader.log == ["up", "SIGTERM", "saved"]  # and none of a worker
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        told = answer.read().decode()
    assert "holdfast_agent_signalled_total 4.0" in told
    assert 'holdfast_agent_rounds_total{outcome="clear"} 1.0' in told
    assert 'holdfast_agent_releases_total{result="done"} 1.0' in told
    agent.send(signal.SIGTERM)
    agent.wait(0)
    text = host.holdfast("status", "--state", host.folder / "state").wait(0)
    assert "agent: not running" in text
    assert re.search(rf"process {saver.pid} .*: ended after", text)


@pytest.mark.real
def test_nobody_is_signalled_twice_by_two_notices_and_two_agents(host, start, eventually):
    stubborn = start(STUBBORN)
    agent = host.agent("--release-file", "flag", grace_s=0.4)
    second = ("--autocheckpoint", "--notice", "file:n", "--state", host.folder / "state")
    assert "another agent works from" in host.holdfast(*second).wait(69)
    host.announce("3")
    agent.saw(f"process {stubborn.pid} .* was left behind$")
    agent.saw("Released: touch flag")
    host.notice.unlink()
    agent.saw("file has withdrawn it")
    host.notice.touch()
    agent.saw("left behind .was signalled in an earlier round.")
    agent.send(signal.SIGKILL)
    agent.wait()
    agent = host.agent("--release-file", "flag", grace_s=0.4)
    host.announce("0.4")
    agent.saw("left behind .was signalled in an earlier round.")
    eventually(lambda: stubborn.log == ["up", "SIGTERM"])


@pytest.mark.real
def test_an_agent_that_was_killed_and_started_again_goes_on_where_it_was(host, start, eventually):
    job = start(STUBBORN)
    agent = host.agent("--release-file", "flag")
    host.notice.touch()
    agent.saw(f"SIGTERM to process {job.pid}")
    agent.send(signal.SIGKILL)
    agent.wait()
    agent = host.agent("--release-file", "flag")
    agent.saw("who holds a device is asked to save and leave within")  # the file is still there
    eventually(lambda: (host.status()["round"] or {}).get("processes"))
    job.close()
    agent.saw(f"process {job.pid} .* ended: it was signalled in an earlier round")
    agent.saw("Released: touch flag")
    assert job.log == ["up", "SIGTERM"]
    agent.send(signal.SIGTERM)
    agent.wait(0)
    text = host.holdfast("status", "--state", host.folder / "state").wait(0)
    assert re.search(rf"process {job.pid} .*: ended: it was signalled", text)
    assert "by itself" not in text


@pytest.mark.real
def test_a_withdrawn_notice_releases_nothing(host, start):
    stubborn = start(STUBBORN)
    agent = host.agent("--release-file", "flag")
    host.announce("60")
    agent.saw(f"SIGTERM to process {stubborn.pid}")
    host.notice.unlink()
    agent.saw("the notice is withdrawn after .*: nothing is released")
    stubborn.close()
    agent.send(signal.SIGTERM)
    agent.wait(0)
    assert not (host.folder / "flag").exists()


@pytest.mark.real
def test_a_dry_run_says_who_would_be_signalled_and_does_nothing(host, start):
    loader = start(WITH_WORKERS)
    text = host.holdfast(
        "--dry-run", "--devices", host.device, "--grace", 20, "--release", "take 'this host'"
    ).wait(0)
    assert f"process {loader.pid} (python" in text
    assert text.count("would get SIGTERM") == 1
    assert f"would be waited for: it works for process {loader.pid}" in text
    assert "all would have 20 s" in text
    assert "would run take this host" in text
    assert loader.log == ["up"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 78, "does nothing that is not asked for"),
        (["--autocheckpoint"], 78, "no source of notices on this host"),
        (["--autocheckpoint", "--devices", "accel*"], 78, "'accel*' is not an absolute path"),
        (["--autocheckpoint", "--devices", ","], 78, "--devices names nothing"),
        (["--autocheckpoint", "--release", "a 'b"], 78, "cannot be split into words"),
        (["--autocheckpoint", "--notice", "gcd"], 78, "no source of notices"),
        (["status"], 69, "no agent has run from"),
    ],
)
def test_bad_input_is_one_sentence(words, code, said, tmp_path, store, capsys):
    from holdfast.cli.main import main

    state = [] if not words else ["--state", str(tmp_path / "state")]
    with pytest.raises(SystemExit) as ended:
        main(["agent", *words, *state])
    assert ended.value.code == code
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
