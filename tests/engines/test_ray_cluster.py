"""`holdfast submit --engine ray` on a real cluster: three nodes and a head, hosts of the lab.

`make ray` has an environment with Ray; elsewhere these tests are skipped. Each edge once.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import LabProcess
from processes import EXIT_DONE, FAR, LIMIT_S, TRAINER, expected_digest
from ray_lab import RayLab

pytestmark = pytest.mark.real

STEPS = 12
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
RAY_JOB = Path(__file__).parents[2] / "examples" / "kubernetes" / "rayjob.yaml"
ACTOR, FOREMAN = "ray::RayHost", "ray::Foreman"
LOOK_S = 0.2


class RunOnRay:
    """One run, submitted from the head: by itself on two nodes of three, one of them a spare."""

    def __init__(self, ray: RayLab, steps: int = STEPS, hosts: int = 1) -> None:
        self.ray, self._steps, self._hosts = ray, steps, hosts
        self.name = f"r{time.monotonic_ns()}"
        self.store = ray.lab.shared / "store"
        self._allow = ray.lab.shared / f"allow-{self.name}"
        self.logs: dict[int, LabProcess] = {}

    def allow(self, step: int) -> None:
        """Steps up to that may begin."""
        draft = self._allow.with_suffix(".new")
        draft.write_text(str(step))
        draft.replace(self._allow)

    def submit(self, *flags: object, spares: int = 1, **variables: object) -> LabProcess:
        environment = {name: str(value) for name, value in (self.environment | variables).items()}
        variables_are = "runtime_env=" + json.dumps({"env_vars": environment})
        return self.ray.start(self._command("-o", variables_are, *flags, spares=spares))

    def submit_as_job(self) -> LabProcess:
        """By `ray job submit`, to wait there for its end: the job's variables are the run's."""
        texts = {name: str(value) for name, value in self.environment.items()}
        words = ["--submission-id", self.name]
        words += ["--runtime-env-json", json.dumps({"env_vars": texts})]
        return self.ray.job("submit", *words, "--", *self._command("--wait", spares=1))

    @property
    def environment(self) -> dict[str, object]:
        return {"ALLOW": self._allow, "HOLDFAST_NOTICE": "off"}

    def _command(self, *flags: object, spares: int) -> list[object]:
        words = ["--engine", "ray", "--hosts", self._hosts, "--spares", spares, "--name", self.name]
        words += ["--save-every", 3, "--host-lost", 2, "--store", self.store, *flags]
        return [*HOLDFAST, "submit", *words, "--", sys.executable, TRAINER, self._steps]

    def begin(self, step: int) -> None:
        """Submit it, and have it train up to that step."""
        self.allow(step)
        self.submit().wait(EXIT_DONE)
        self.follow()
        self.saw(rf"did {step}$", self._hosts)

    def follow(self) -> None:
        """What the agents print, host by host."""
        for host in self.ray.lab.hosts[1:]:
            if host.is_on:
                log = f"{self.ray.lab.own}/scratch/holdfast-*/ray-{self.run_id}-*/log"
                wait = f"until ls {log} >/dev/null 2>&1; do sleep 0.05; done"
                tail = f"exec tail --lines=+1 --follow=name --retry {log}"
                self.logs[host.index] = host.start(["sh", "-c", f"{wait}; {tail}"])

    def saw(self, pattern: str, count: int = 1) -> list[str]:
        """So many lines of any agent in which that is found; waits for them."""

        def found() -> list[str]:
            lines = [line for one in self.logs.values() for line in one.lines[:]]
            return [line for line in lines if re.search(pattern, line)]

        end_s = time.monotonic() + LIMIT_S
        while len(lines := found()) < count:
            said = "\n".join(f"host {n}: {one.text}" for n, one in self.logs.items())
            assert time.monotonic() < end_s, f"no {pattern!r}\n{said}\n{self.foreman()}"
            time.sleep(LOOK_S)
        return lines

    def tell(self, *words: object) -> str:
        """What a command of ours says, on the head."""
        argv = [*HOLDFAST, *words, "--store", self.store]
        return self.ray.start(argv).wait(EXIT_DONE)

    def says(self, words: str, *command: object) -> str:
        """What `holdfast hosts` says, once it has those words."""
        end_s = time.monotonic() + LIMIT_S
        while words not in (out := self.tell(*(command or ("hosts", self.name)))):
            assert time.monotonic() < end_s, f"no {words!r} in\n{out}\n{self.foreman()}"
            time.sleep(LOOK_S)
        return out

    def foreman(self) -> str:
        """What it has printed, wherever it is."""
        script = "grep -h 'holdfast foreman' /run/ray/session_latest/logs/worker*.out"
        hosts = [one for one in self.ray.lab.hosts if one.is_on]
        return "\n".join(one.start(["sh", "-c", script]).wait() for one in hosts)

    @property
    def run_id(self) -> str:
        return json.loads((self.store / self.name / "run.json").read_text())["run_id"]

    @property
    def trainer(self) -> int:
        """The host of the lab where the only rank is."""
        (only,) = [index for index, one in self.logs.items() if "did 7" in one.text]
        return only

    def attempts(self) -> int:
        return len(list((self.store / self.name / "attempts").glob("*")))

    def is_done(self) -> None:
        """All ranks have ended as they should, in one attempt or more."""
        self.saw(f"final {expected_digest(self._steps)}", self._hosts)


def wait_until(is_so: Callable[[], bool], run: RunOnRay) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end_s, run.foreman()
        time.sleep(LOOK_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayLab]:
    with RayLab(3, tmp_path_factory.mktemp("ray"), takes_jobs=True) as found:
        yield found


@pytest.fixture
def ray(cluster: RayLab) -> RayLab:
    """The same cluster for all, made whole again: it takes half a minute to start."""
    cluster.mend()
    return cluster


def test_a_run_is_submitted_trains_and_gives_its_hosts_back(ray: RayLab) -> None:
    run = RunOnRay(ray, hosts=2)
    run.begin(7)
    assert "is held by" in run.submit().wait(69)
    assert "spare" in run.says("ray (Ray namespace holdfast): RUNNING")
    run.allow(FAR)
    run.is_done()
    run.says("over with 0: done")
    assert ray.free_cpus() == 3
    report = json.loads(run.tell("report", run.name, "--json"))
    assert "queued:queue" in json.dumps(report)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_raylet_that_is_gone_costs_no_rank(ray: RayLab, number: int) -> None:
    """Ray moves its bundle to the third node, where nothing is started: the run hears the host."""
    run = RunOnRay(ray)
    run.begin(7)
    node = run.trainer
    ray.kill_raylet(node, number)
    ray.wait_for(3)
    run.says("(host 0) is coming")
    run.allow(FAR)
    run.is_done()
    assert run.attempts() == 1
    run.says("over with 0: done")


def test_an_actor_that_is_killed_costs_nothing_and_comes_again(ray: RayLab) -> None:
    run = RunOnRay(ray)
    run.begin(7)
    node = run.trainer
    (before,) = ray.pids(ACTOR, node)
    ray.lab.hosts[node].kill(before, signal.SIGKILL)
    wait_until(lambda: (now := ray.pids(ACTOR, node)) != [before] and len(now) == 1, run)
    run.says("RUNNING")
    run.allow(FAR)
    run.is_done()
    assert run.attempts() == 1
    run.says("over with 0: done")


def test_a_foreman_that_dies_comes_again_and_release_has_all_hosts_save(ray: RayLab) -> None:
    run = RunOnRay(ray, steps=FAR)
    run.begin(7)
    node, pid = ray.find(FOREMAN)
    ray.lab.hosts[node].kill(pid, signal.SIGKILL)
    run.says("RUNNING")
    run.allow(FAR)
    assert "2 agents are told to save and go" in run.tell("release", run.name)
    run.saw(r"step \d+ is saved")
    run.says("over with 75: released")
    assert ray.free_cpus() == 3


def test_what_is_not_there_is_said(ray: RayLab) -> None:
    run = RunOnRay(ray)
    run.allow(FAR)
    said = run.submit("-o", "address=10.77.0.10:1").wait(69)
    assert "no Ray cluster answers at 10.77.0.10:1" in said
    said = run.submit("-o", "gpus=1", spares=0).wait(EXIT_DONE)
    assert "it waits for nodes: 0 of 1 are there" in said
    run.says("PENDING (0 of 1 nodes are there; each needs CPU 1, GPU 1)")
    assert "is submitted already" in run.submit().wait(69)
    run.tell("release", run.name)
    run.says("over with 75: released")
    run.submit("-o", "cwd=/nowhere", spares=0).wait(EXIT_DONE)
    run.says("over with 78: no agent could stay; host 0: its agent cannot be started in /nowhere")
    said = run.submit(PYTHONPATH=Path(__file__).parent / "no_holdfast").wait(78)
    assert "Holdfast is not installed on the cluster's nodes" in said


def test_a_client_submits_from_outside_the_cluster(ray: RayLab) -> None:
    run = RunOnRay(ray)
    run.allow(FAR)
    run.submit("-o", f"address=ray://{ray.head.address}:10001").wait(EXIT_DONE)
    run.follow()
    run.is_done()
    run.says("over with 0: done")


@pytest.mark.parametrize("is_stopped", [False, True], ids=["ends", "stopped"])
def test_a_run_within_a_ray_job_outlives_a_stop_of_the_job(
    ray: RayLab, *, is_stopped: bool
) -> None:
    run = RunOnRay(ray)
    run.allow(7)
    job = run.submit_as_job()
    job.saw("Submitted run")
    run.follow()
    run.saw("did 7$")
    if is_stopped:
        ray.job("stop", run.name).wait(EXIT_DONE)
    run.allow(FAR)
    assert "succeeded" in job.wait(EXIT_DONE) or is_stopped
    run.is_done()
    assert run.attempts() == 1
    run.says("over with 0: done")


def test_a_drain_is_a_notice_and_the_spare_goes_on_before_the_deadline(ray: RayLab) -> None:
    run = RunOnRay(ray, steps=400)
    run.begin(7)
    began_s = time.monotonic()
    ray.drain(run.trainer, deadline_s=100)
    run.allow(100)
    run.saw(r"in the place of host 0")
    assert time.monotonic() - began_s < 100
    run.says("(host 0) is draining")
    run.allow(FAR)
    run.is_done()
    run.says("over with 0: done")


def test_a_host_that_is_to_be_replaced_leaves_and_ray_drains_its_node(ray: RayLab) -> None:
    """Ray says so, begins nothing there from then on, and ends itself there after the run."""
    run = RunOnRay(ray, steps=400)
    run.begin(7)
    host = ray.lab.hosts[run.trainer]
    node = ray.alive()[host.address]
    told = run.tell("hosts", run.name, "--replace", host.address, "--reason", "repair")
    assert "Ray schedules nothing there" in told
    wait_until(lambda: ray.drained() == [node], run)
    run.allow(100)
    run.saw(r"in the place of host 0")
    run.says("(host 0) is draining")
    takes = ray.takes_tasks()
    assert takes.pop(node) is False
    assert list(takes.values()) == [True] * 3
    run.allow(FAR)
    run.is_done()
    run.says("over with 0: done")
    wait_until(lambda: ray.left().get(node) == "repair", run)


def test_a_run_ends_though_the_actor_on_a_drained_node_is_killed(ray: RayLab) -> None:
    """No other comes there. How its agent has ended is told by the run's store."""
    run = RunOnRay(ray, steps=400)
    run.begin(7)
    host = ray.lab.hosts[run.trainer]
    ray.drain(host.index, deadline_s=100)
    run.allow(100)
    run.saw(r"in the place of host 0")
    (actor,) = ray.pids(ACTOR, host.index)
    host.kill(actor, signal.SIGKILL)
    run.says("(host 0) is draining: drained: no actor begins there any more")
    run.allow(FAR)
    run.is_done()
    run.says("over with 0: done")


def test_a_pod_that_is_told_to_go_leaves_its_part_to_a_spare(ray: RayLab) -> None:
    """By the hook of the RayJob for KubeRay, as it stands there but for its two places."""
    run = RunOnRay(ray, steps=400)
    run.allow(7)
    run.submit("--notice", "file:/run/leaves").wait(EXIT_DONE)
    run.follow()
    run.saw("did 7$")
    (hook,) = re.findall(r"- >-\n( +echo .*\n +grep .*)\n", RAY_JOB.read_text())
    script = hook.replace("/tmp/leaves", "/run/leaves").replace("/var/tmp", str(ray.scratch))
    pod = ray.start(["sh", "-c", " ".join(script.split())], on=ray.lab.hosts[run.trainer])
    run.allow(100)
    run.saw(r"in the place of host 0")
    run.allow(FAR)
    run.is_done()
    pod.wait(EXIT_DONE)
    run.says("over with 0: done")


def test_a_host_without_power_is_replaced_and_its_bundle_becomes_a_spare(ray: RayLab) -> None:
    """The controller is lost with it. So either the spare goes on, or the agent that is new."""
    run = RunOnRay(ray)
    run.begin(7)
    ray.power_off(run.trainer)
    run.saw("did 7$", 2)
    run.says("  spare  ")
    run.allow(FAR)
    run.is_done()
    run.says("over with 0: done")


def test_the_head_is_lost_and_the_run_goes_on_and_hears_by_its_store(ray: RayLab) -> None:
    """The last one: nobody brings this cluster back."""
    run = RunOnRay(ray, steps=FAR)
    run.begin(7)
    elsewhere = ray.lab.hosts[run.trainer]
    ray.power_off(0)
    run.allow(FAR)

    def tell(word: str) -> str:
        argv = [*HOLDFAST, word, run.name, "--store", run.store]
        return ray.start(argv, on=elsewhere).wait(EXIT_DONE)

    end_s = time.monotonic() + LIMIT_S
    while not re.search(r"^0 +assigned", told := tell("hosts"), re.MULTILINE):
        assert time.monotonic() < end_s, told  # it is written down a moment after they train
    assert "no Ray cluster answers" in told
    assert "asked run" in tell("save")
    tell("stop")
    run.saw(r"stopped; step \d+ is saved")
    assert run.attempts() == 1
