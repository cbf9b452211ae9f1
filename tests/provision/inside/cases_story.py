"""The whole story: made, trained on, taken, found, deleted, made again, and resumed."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.health import health
from holdfast.cli.recover import recover
from holdfast.cli.rehearse import rehearse
from holdfast.cli.report import report
from holdfast.cli.rm import rm
from holdfast.cli.stop import stop
from holdfast.cli.up import up
from holdfast.core.hosts.wanted import prefix_for
from holdfast.journal.store import RunStore
from holdfast.provision.recovery import RunRecovery
from holdfast.testing.tpu import TpuEmulator

LIMIT_S = 150.0  # generous: only a hang comes near it
TRAINER = """
import sys, time
from pathlib import Path
import numpy as np
import holdfast as hf

until, seen = Path(sys.argv[1]), Path(sys.argv[2])
run = hf.start()
state = run.restore(init=lambda: {"w": np.zeros(3)})
with seen.open("a") as file:
    file.write("life\\n")
for step in run.steps(int(until.read_text())):
    time.sleep(0.01)  # what a step takes: machines are lost in one
    assert state["w"][0] == step - 1
    state["w"] += 1
    run.done(step, state)
    with seen.open("a") as file:
        file.write(f"{step}\\n")
"""


class Story:
    """A user's folder, his store, and a cloud."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last, self.seen = folder / "last", folder / "seen"
        self.seen.touch()
        (folder / "train.py").write_text(TRAINER)
        (folder / "setup.sh").write_text(f'export PATH="{Path(sys.executable).parent}:$PATH"\n')
        machine = folder / "machine"
        machine.mkdir()
        self.tpu = TpuEmulator(scripts=machine)

    def ask(self, command, *words, code=0):
        result = CliRunner().invoke(command, [str(word) for word in words])
        assert result.exit_code == code, (result.output, self.log())
        return result.output

    def up(self, *more, code=0):
        wanted = ("--project", "p", "--zone", "z", "--type", "v5litepod-8", "--runtime", "v2")
        train = ("--", sys.executable, self.folder / "train.py", self.last, self.seen)
        setup = ("--setup", self.folder / "setup.sh", "--every", 0.05)
        return self.ask(up, "lm", *wanted, *setup, *more, *train, code=code)

    def log(self):
        return "".join(path.read_text() for path in sorted(self.folder.glob("machine/*.log")))

    def refused(self, command, *words):
        return CliRunner().invoke(command, [str(word) for word in words]).exception

    def until(self, is_so):
        end_s = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < end_s, self.log()
            self.tpu.wait_for(lambda: False, 0.01)

    def lives(self):
        """The steps of each start of the script."""
        return [[int(n) for n in life.split()] for life in self.seen.read_text().split("life")[1:]]


@pytest.fixture
def story(tmp_path, monkeypatch):
    for name, value in {
        "STORE": tmp_path / "store", "MIRROR": tmp_path / "mirror",
        "SCRATCH": tmp_path / "scratch", "MEMORY": "off",
        "STANDBY": "off", "NOTICE": "off", "SAVE_EVERY_STEPS": "1", "COMPILE_CACHE": "off",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"HOLDFAST_{name}", str(value))
    one = Story(tmp_path)
    monkeypatch.setenv("HOLDFAST_TPU_ENDPOINT", one.tpu.endpoint)
    yield one
    one.tpu.close()


def test_a_run_outlives_its_machine(story):
    story.last.write_text("1000000")
    assert "is healthy" in story.up()
    (first,) = (name.rpartition("/")[2] for name in story.tpu.nodes)
    assert first.endswith("-g1")
    assert "is healthy" in story.ask(recover, "lm")
    sets = Path(os.environ["HOLDFAST_STORE"]) / "lm" / "ckpt"
    story.until(lambda: len(list(sets.glob("*/manifest.json"))) > 1)

    story.tpu.do("preempt", first)
    saved = max(int(path.parent.name[-12:]) for path in sets.glob("*/manifest.json"))
    (row,) = json.loads(story.ask(health, "lm", "--json"))["machines"]
    assert (row["name"], row["state"], row["autocheckpoint"]) == (first, "preempted", True)
    assert f"{first} was preempted; nothing was done" in story.ask(recover, "lm", code=69)
    assert f"would delete {first}" in story.ask(recover, "lm", "--create", code=69)
    assert list(story.tpu.nodes) == [f"projects/p/locations/z/nodes/{first}"]

    story.tpu.do("stockout")  # the first creation fails: another is made later
    story.tpu.do("fail", "UNAVAILABLE", "2", "ListNodes")
    last = saved + 100
    story.last.write_text(str(last))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.core.hosts.recover._BACKOFF", dict.fromkeys(_outcomes(), _quick()))
        said = story.ask(recover, "lm", "--delete", "--every", 0.05)
    assert f"deleting {first}: {first} was preempted" in said
    assert "stock-out: There is no more capacity" in said
    (second,) = (name.rpartition("/")[2] for name in story.tpu.nodes)
    assert second == f"{first[:-1]}2"
    story.until(lambda: "done" in story.log())
    before, after = story.lives()
    assert before == list(range(1, len(before) + 1))
    assert after == list(range(after[0], last + 1))
    assert saved < after[0] <= len(before) + 1  # its last words may have been written meanwhile
    second_attempt = json.loads((sets.parent / "attempts" / "0001" / "attempt.json").read_text())
    assert (second_attempt["parent"], second_attempt["resume_step"]) == (0, after[0] - 1)

    told = json.loads(story.ask(report, "lm", "--json"))
    (incident,) = told["incidents"]
    assert incident["cause"] == "machine_preempted"
    for kind in ("reschedule", "reschedule:queue", "reschedule:provision", "reschedule:boot"):
        assert told["badput_s"][kind] > 0
        assert incident["waterfall_s"][kind] > 0
    assert {"queued:provision", "queued:boot"} <= told["badput_s"].keys()
    assert incident["words"] == f"its machines were lost: {first} was preempted"
    assert told["lost_steps"] - (len(before) - after[0] + 1) in (0, 1)
    assert "healthy" in story.ask(health, "lm")
    calls = story.tpu.calls
    assert (calls.count("DeleteNode"), calls.count("CreateNode")) == (1, 3)


def test_maintenance_that_the_cloud_simulates_is_heard_by_the_run(story, monkeypatch):
    """And a machine that is not the run's, or not well, is left alone."""
    store = RunStore.at(os.environ["HOLDFAST_STORE"])
    name = f"{prefix_for('lm', store.open('lm').identity.run_id)}-g1"
    node = f"projects/p/locations/z/nodes/{name}"
    assert "no machines of its own" in str(story.refused(rehearse, "machine", "lm"))
    story.last.write_text("1000000")
    monkeypatch.setenv("HOLDFAST_NOTICE", "auto")  # it finds its machine's metadata server
    story.up("--no-agent")
    sets = Path(os.environ["HOLDFAST_STORE"]) / "lm" / "ckpt"
    story.until(lambda: len(list(sets.glob("*/manifest.json"))) > 1)
    story.tpu.calls.clear()
    assert f"would have maintenance of worker 0 of {name}" in story.ask(rehearse, "machine", "lm")
    ask = ("machine", "lm", "--yes", "--every", 0.05)
    story.tpu.nodes[node].labels["holdfast-run"] = "another"
    assert "it is left alone" in story.ask(rehearse, *ask, code=69)
    story.tpu.nodes[node].labels["holdfast-run"] = name[3:9]  # the beginning is not enough
    assert "it is left alone" in story.ask(rehearse, *ask, code=69)
    story.tpu.nodes[node].labels["holdfast-run"] = store.get("lm").identity.run_id
    assert "has no slice 'x'" in story.ask(rehearse, *ask, "--slice", "x", code=69)
    assert "SimulateMaintenanceEvent" not in story.tpu.calls
    story.tpu.do("fail", "PERMISSION_DENIED", "1", "SimulateMaintenanceEvent")
    assert "is not simulated (refused: " in story.ask(rehearse, *ask, code=69)
    said = story.ask(rehearse, *ask, "--worker", 0)
    assert "run 'lm' has heard of it from gce" in said
    assert "not all is well" in story.ask(rehearse, *ask, code=69)
    assert story.tpu.nodes[node].health_description == "simulated on worker 0"


def test_of_two_slices_the_first_runs_and_both_come_back_when_one_is_taken(story):
    story.last.write_text("1000000")
    assert "is healthy" in story.up("--queued", "--slices", 2, "--no-agent")
    first, second = sorted(name.rpartition("/")[2] for name in story.tpu.nodes)
    sets = Path(os.environ["HOLDFAST_STORE"]) / "lm" / "ckpt"
    story.until(lambda: len(list(sets.glob("*/manifest.json"))) > 1)
    story.until(lambda: "worker 0 of slice 1: " in story.log())
    story.tpu.do("preempt", second)
    told = story.ask(recover, "lm", "--create", code=69)
    assert f"would delete {first[:-2]}, and the healthy {first} with it" in told
    once = ("--delete", "--every", 0.05, "--limit", 0.1)
    assert "is held by" in story.ask(recover, "lm", *once, code=69)  # it still shows life
    story.ask(stop, "lm")
    story.until(lambda: "start me again" in story.log() or "stopped; " in story.log())
    story.last.write_text("1")  # it is done as soon as it comes back
    said = story.ask(recover, "lm", "--delete", "--every", 0.05)
    assert f"{second} was preempted" in said
    assert f"the healthy {first} with it" in said
    assert sorted(name[-5:] for name in story.tpu.nodes) == ["-g2-0", "-g2-1"]
    story.until(lambda: "done" in story.log())
    (incident,) = json.loads(story.ask(report, "lm", "--json"))["incidents"]
    assert incident["waterfall_s"].keys() >= {"reschedule:queue", "reschedule:boot"}


def test_what_was_refused_may_be_asked_for_otherwise_while_there_is_nothing(story):
    story.last.write_text("1")
    story.tpu.do("fail", "INVALID_ARGUMENT", "1", "CreateNode")
    assert "could not be created (refused" in story.up("--label", "a=b", code=69)
    assert "is healthy" in story.up("--label", "a=c")
    (node,) = story.tpu.nodes.values()
    assert node.labels["a"] == "c"
    story.until(lambda: "done" in story.log())
    wanted = ("--project", "p", "--zone", "z", "--type", "v6e-8", "--runtime", "v2")
    other = CliRunner().invoke(up, ["lm", *wanted, "--", "x"])
    assert "has machines, made of something else" in str(other.exception)
    story.tpu.do("preempt", node.name)
    assert "the run is done" in story.ask(recover, "lm", "--delete")
    name = node.name.rpartition("/")[2]
    assert f"not deleted with it, and paid for as long as they are there: node {name} in z of" in (
        story.ask(rm, "lm", "--yes")
    )
    assert len(story.tpu.nodes) == 1


def test_who_stops_waiting_is_told_that_the_machine_is_made_all_the_same(story, monkeypatch):
    def interrupted(_recovery, _duration_s):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunRecovery, "pause", interrupted)
    story.tpu.do("creating", "60")
    assert "what was asked for stays, is made, and paid for" in story.up(code=1)
    assert len(story.tpu.nodes) == 1


def _outcomes():
    from holdfast.core.hosts.recover import _BACKOFF

    return list(_BACKOFF)


def _quick():
    from holdfast.core.hosts.backoff import Backoff

    return Backoff(1, 1)


def test_what_is_refused_says_why_and_other_machines_are_made_at_once(story):
    story.last.write_text("1")
    story.tpu.do("fail", "NOT_FOUND", "1", "CreateNode")
    told = story.up("--network", "nowhere", code=69)
    assert "a person has to act" in told
    assert "(refused: it does not work now)" in told
    told = story.up("--network", "nowhere", "--limit", "0.1", code=69)
    assert "is tried again in" in told
    assert "(refused: it does not work now)" in told
    assert story.tpu.calls.count("CreateNode") == 1
    assert "is healthy" in story.up("--network", "default")


def test_a_queue_without_quota_is_asked_seldom_and_the_reason_shown(story):
    story.last.write_text("1")
    story.tpu.do("quota", "9")
    told = story.up("--queued", code=69)
    assert "Quota limit" in told
    told = story.ask(recover, "lm", "--delete", "--every", 0.05, "--limit", 1, code=69)
    assert "-g2 is tried again in" in told
    assert "(quota: Quota limit" in told
    assert story.tpu.calls.count("CreateQueuedResource") == 1
    assert story.tpu.queued == {}
