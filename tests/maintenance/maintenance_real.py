"""Stories of maintenance with real processes, in a network namespace: part of `make notices`.

    python tests/maintenance/maintenance_real.py [--stories N] [--seed SEED] [--at-once N]

In each, `holdfast run` trains and `holdfast agent --autocheckpoint` watches jobs that hold a
device; both listen to the same emulators, which announce an end, fail, call it off, or announce
another one. When the end comes all is killed, as the host would be. The trainer and the jobs write
down themselves what they did and which signals they had, so that the verdict needs nothing of
Holdfast's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))
sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
import namespace
from holding import SAVER, STUBBORN, WITH_WORKERS, Job

sys.path.pop(0)
sys.path.pop(0)

from holdfast.testing.aws import AwsEmulator
from holdfast.testing.azure import AzureEmulator
from holdfast.testing.gce import GceEmulator
from holdfast.testing.kubernetes import KubernetesEmulator
from holdfast.testing.slurm import SlurmEmulator

INSIDE = "NOTICES_IN_A_NAMESPACE"  # set in the namespace
LIMIT_S = 120.0
STEP_S = 0.05
SAVE_S = 6.0  # what leaving with a save of a small state takes at most on a busy machine
GRACE_S = 6.0
LOOK_S = 0.5  # who comes while the last look is taken cannot be known of
TRAIN = f"""
import os, sys, time
import numpy as np
import holdfast as hf

log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
run = hf.start()
state = run.restore(init=lambda: {{"w": np.zeros(1 << 16)}})
for step in run.steps(10**9):
    time.sleep({STEP_S})
    state["w"] += 1
    run.done(step, state)
    os.write(log, f"{{step}}\\n".encode())
"""


class Way(NamedTuple):
    """How a service tells of an end in so many seconds, and takes it back; how soon it is heard."""

    new: str
    gone: str
    within_s: float


WAYS = {
    "gce": Way("preempted", "preempted FALSE", 0.5),
    "azure": Way("event Preempt {in}", "remove", 2.5),
    "aws": Way("spot terminate {in}", "spot none", 5.5),
    "kubernetes": Way("delete-pod {in}", "", 1.5),
    "slurm": Way("end {in} preempted", "end unlimited", 1.5),
    "file": Way("{in}", "", 0.5),
    "signal": Way("", "", 0.5),
}
FAULTS = ("status", "html", "garbage", "redirect", "hang", "cut", "giant")


@dataclass(frozen=True)
class Plot:
    """What happens, from the seed. `fault`: of the first source, before it tells; "": none."""

    seed: int
    sources: tuple[str, ...]
    ahead_s: float
    fault: str
    withdrawn_s: float | None
    second_s: float | None  # another source announces an earlier end then
    jobs: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {', '.join(self.sources)}, {self.ahead_s:g} s ahead, "
            f"fault {self.fault or 'none'}, withdrawn {self.withdrawn_s}, second {self.second_s}, "
            f"jobs {', '.join(self.jobs) or 'none'}"
        )

    @property
    def allows_a_save(self) -> bool:
        """Whether who tells first tells early enough."""
        first = WAYS[self.sources[0]].within_s + (12 if self.fault else 0)
        others = [WAYS[one].within_s for one in self.sources[1:]]
        return self.ahead_s >= min([first, *others]) + SAVE_S


def plot(seed: int) -> Plot:
    """The one of a seed."""
    rng = random.Random(seed)
    sources = rng.sample(list(WAYS), rng.choice([1, 1, 2, 3]))
    ahead_s = rng.choice([1.0, 4.0, 9.0, 14.0, 14.0, 24.0])
    if "gce" in sources:
        ahead_s = 30.0  # it promises that much, and gives no date
    if "signal" in sources:
        ahead_s = max(ahead_s, 20.0)
    can_fail = sources[0] in ("gce", "azure", "aws", "kubernetes", "slurm")
    can_go = all(WAYS[one].gone or one == "file" for one in sources) and ahead_s >= 9
    return Plot(
        seed,
        tuple(sources),
        ahead_s,
        rng.choice(FAULTS) if can_fail and rng.random() < 0.4 else "",
        rng.uniform(0.5, 4.0) if can_go and rng.random() < 0.25 else None,
        rng.uniform(1.0, 3.0) if ahead_s >= 14 and rng.random() < 0.2 else None,
        tuple(rng.choices(["saver", "saver", "stubborn", "workers"], k=rng.randint(0, 2))),
    )


KINDS = {"saver": SAVER, "stubborn": STUBBORN, "workers": WITH_WORKERS}


class Stage:
    """One host's folder, services and processes."""

    def __init__(self, plot: Plot, folder: Path) -> None:
        self.plot, self.folder = plot, folder
        self.device, self.notice = folder / "accel0", folder / "notice"
        self.flag, self.trained = folder / "released", folder / "trained"
        self.device.write_bytes(bytes(4096))
        (folder / "train.py").write_text(TRAIN)
        self.jobs: list[Job] = []
        self.services: dict[str, Any] = {
            name: make() for name, make in self._makers().items() if self._wants(name)
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self.run = self.agent = None

    def _wants(self, name: str) -> bool:
        return name in self.plot.sources

    def _makers(self) -> dict[str, Callable[[], Any]]:
        def kubernetes() -> KubernetesEmulator:
            made = KubernetesEmulator()
            made.do("rotate", "")
            return made

        def slurm() -> SlurmEmulator:
            made = SlurmEmulator(self.folder)
            made.do("end", "unlimited")
            return made

        return {
            "gce": GceEmulator,
            "azure": AzureEmulator,
            "aws": AwsEmulator,
            "kubernetes": kubernetes,
            "slurm": slurm,
        }

    def begin(self) -> None:
        """Everything is up, and the run has measured a save."""
        options = {"slurm": lambda it: f"{it.path}@0.5"}
        named = {n: options.get(n, lambda it: it.url)(it) for n, it in self.services.items()}
        named |= {"file": self.notice} | (
            {"signal": f"USR1={self.plot.ahead_s:g}"} if self._wants("signal") else {}
        )
        text = ",".join(f"{name}:{option}" for name, option in named.items())
        self.run = self._start(
            "run", "run", "--name", "r", "--store", self.folder / "store", "--notice", text,
            "--save-every", 20, "--scratch", self.folder, "--memory", "off", "--standby", "off",
            "--", sys.executable, self.folder / "train.py", self.trained,
        )  # fmt: skip
        self.agent = self._start(
            "agent", "agent", "--autocheckpoint", "--devices", self.device, "--notice", text,
            "--grace", GRACE_S, "--state", self.folder / "state", "--release-file", self.flag,
        )  # fmt: skip
        for number, kind in enumerate(self.plot.jobs):
            self.jobs.append(Job(self.device, KINDS[kind], self.folder / f"log-{number}"))
        wait(lambda: all("up" in job.log for job in self.jobs))
        wait(lambda: self.steps >= 25 and self.saved >= 20)
        wait(lambda: "Listening" in (self.folder / "agent.log").read_text())
        for name in ("gce", "azure", "aws", "kubernetes"):
            if name in self.services:  # both have asked
                wait(lambda it=self.services[name]: len(it.requests) >= 6)

    def _start(self, log: str, *words: object) -> subprocess.Popen[bytes]:
        variables = {
            "SLURM_JOB_ID": "7",
            "SLURMD_NODENAME": "n1",
            "POD_NAMESPACE": "ml",
            "POD_NAME": "trainer-0",
        }
        command = [sys.executable, "-m", "holdfast.cli.main", *map(str, words)]
        with (self.folder / f"{log}.log").open("wb") as out:
            made = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.processes.append(made)
        return made

    @property
    def steps(self) -> int:
        """How far the trainer says that it is."""
        told = self.trained.read_text().split("\n") if self.trained.exists() else []
        return int(told[-2]) if len(told) > 1 else 0

    @property
    def saved(self) -> int:
        """The newest step whose set is whole."""
        found = (self.folder / "store" / "r" / "ckpt").glob("*/manifest.json")
        return max((int(one.parent.name.rpartition("-")[2]) for one in found), default=0)

    def tell(self, source: str, ahead_s: float) -> None:
        """A source announces an end in so many seconds."""
        words = WAYS[source].new.replace("{in}", f"{ahead_s:g}")
        if source == "file":
            self.notice.write_text(words)
        elif source == "signal":
            for one in (self.run, self.agent):
                one.send_signal(signal.SIGUSR1)
        else:
            self.services[source].do(*words.split())

    def take_back(self) -> None:
        """All that was announced."""
        for source in self.plot.sources:
            if source == "file":
                self.notice.unlink(missing_ok=True)
            else:
                self.services[source].do(*WAYS[source].gone.split())

    def close(self) -> None:
        """Nothing is left."""
        for one in self.processes:
            if one.poll() is None:
                with contextlib.suppress(OSError):
                    os.killpg(one.pid, signal.SIGKILL)
                one.wait()
        for job in self.jobs:
            job.close()
        for made in self.services.values():
            made.close()


def wait(is_so: Callable[[], object]) -> None:
    """Until it is so."""
    end = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError("it did not come to that")
        time.sleep(0.02)


def play(one: Plot, folder: Path) -> list[str]:
    """What is wrong after one story."""
    stage = Stage(one, folder)
    try:
        stage.begin()
        return _perform(one, stage)
    except Exception as error:  # whatever it is, it is what was looked for
        return [f"{type(error).__name__}: {error}"]
    finally:
        stage.close()


def _perform(one: Plot, stage: Stage) -> list[str]:
    if one.fault:
        how = ("fail", "html") if one.sources[0] == "slurm" else ("fail", one.fault, "3")
        stage.services[one.sources[0]].do(*how)
    began_s, end_s = time.time(), time.time() + one.ahead_s
    for source in one.sources:
        stage.tell(source, end_s - time.time())
    if one.fault and one.sources[0] == "slurm":
        time.sleep(1.0)  # as long as the fault lasts: the story says when things happen
        stage.services["slurm"].do("recover")
    second_s = end_s
    if one.second_s is not None:
        time.sleep(max(0.0, began_s + one.second_s - time.time()))
        second_s = time.time() + 10
        if "file" not in one.sources and second_s < end_s:
            stage.tell("file", 10)
            end_s = second_s
    if one.withdrawn_s is not None:
        time.sleep(max(0.0, began_s + one.withdrawn_s - time.time()))
        stage.take_back()
    is_gone = one.withdrawn_s is not None and one.second_s is None
    while time.time() < end_s and not _all_is_over(stage):
        time.sleep(0.05)
    code = stage.run.poll()
    if code is None and not is_gone:  # the host is taken
        os.killpg(stage.run.pid, signal.SIGKILL)
        stage.run.wait()
    wait(lambda: stage.run.poll() is not None or is_gone)
    return [*_of_the_run(one, stage, code, is_gone), *_of_the_agent(stage, began_s)]


def _all_is_over(stage: Stage) -> bool:
    log = (stage.folder / "agent.log").read_text()
    return stage.run.poll() is not None and "processes have ended" in log


def _of_the_run(one: Plot, stage: Stage, code: int | None, is_gone: bool) -> list[str]:
    if code not in (None, 75):
        return [f"the run ended with {code}: {_tail(stage, 'run')}"]
    if is_gone and code is None:
        return []
    time.sleep(0.1)  # nobody tells when the ranks of a killed supervisor have written their last
    lost = stage.steps - stage.saved
    allowed = one.allows_a_save and (one.second_s is None or SAVE_S < 10)
    if lost > 1 and allowed and not is_gone:
        return [f"{lost} steps lost of {stage.steps} ({_tail(stage, 'run')})"]
    warned = (stage.folder / "run.log").read_text().count("! ")
    if warned > 12:
        return [f"{warned} warnings: {_tail(stage, 'run')}"]
    return []


def _of_the_agent(stage: Stage, began_s: float) -> list[str]:
    found = []
    for job in stage.jobs:
        log = job.log
        if log.count("SIGTERM") > 1:
            found.append(f"a job was signalled twice: {log}")
        told = log.index("worker: SIGTERM") if "worker: SIGTERM" in log else len(log)
        if told < len(log) and "saved" not in log[:told]:
            found.append(f"a worker was signalled before its trainer had saved: {log}")
    if stage.flag.exists():
        released_s = stage.flag.stat().st_mtime
        alive = [job for job in stage.jobs if job.process.poll() is None]
        early_s = min(GRACE_S, stage.plot.ahead_s * 0.75 - 5) - LOOK_S
        if alive and released_s - began_s < early_s:
            found.append(f"released after {released_s - began_s:.2f} s, with jobs there")
    return found


def _tail(stage: Stage, log: str) -> str:
    return " / ".join((stage.folder / f"{log}.log").read_text().split("\n")[-6:])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--stories", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--seed", type=int, help="play this one alone")
    parser.add_argument("--at-once", type=int, default=2 * (os.cpu_count() or 1))
    asked = parser.parse_args()
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        command = namespace.unshared([sys.executable, __file__, *sys.argv[1:]])
        os.execvp(command[0], command)
    seeds = range(asked.first, asked.first + asked.stories)
    plots = [plot(asked.seed)] if asked.seed is not None else [plot(seed) for seed in seeds]
    began_s, broken = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="holdfast-notices-") as name:
        folders = [Path(name) / str(number) for number in range(len(plots))]
        for folder in folders:
            folder.mkdir()
        with ThreadPoolExecutor(asked.at_once) as pool:
            for one, wrong in zip(plots, pool.map(play, plots, folders), strict=True):
                for words in wrong:
                    print(f"{one}: {words}", flush=True)
                broken += bool(wrong)
    took_s = time.monotonic() - began_s
    allowed = sum(one.allows_a_save for one in plots)
    print(
        f"{len(plots)} notices with real processes, {allowed} of them in time for a save, "
        f"{took_s:.0f} s; {broken} broken"
    )
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
