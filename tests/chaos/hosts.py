"""Many rounds of the host daemon with real processes: `make hosts`.

In each, jobs that save, jobs that ignore SIGTERM and trainers with workers hold a device; a notice
comes, and may be withdrawn; jobs come late; now and then the agent is killed and started again.
When all is over, no process may have had two signals, no worker one before its trainer had saved,
and no host may have been released while somebody held the device, unless the grace period was over.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "agent"))
from holding import SAVER, STUBBORN, WITH_WORKERS, Job  # noqa: E402

GRACE_S = 0.6
LOOK_S = 0.25  # who comes while the last look is taken cannot be known of
LIMIT_S = 30.0


class Host:
    """One agent after the other on one host, and all jobs there ever were."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.device, self.notice = folder / "accel0", folder / "notice"
        self.flag, self.log = folder / "released", folder / "agent.log"
        self.device.write_bytes(bytes(4096))
        self.jobs: list[Job] = []
        self.up_since: dict[int, float] = {}
        self.agent = self.begin()

    def begin(self) -> subprocess.Popen:
        command = [sys.executable, "-m", "holdfast.cli.main", "agent", "--autocheckpoint"]
        command += ["--devices", self.device, "--notice", f"file:{self.notice}"]
        command += ["--grace", str(GRACE_S), "--state", self.folder / "state"]
        told = self.said("Listening")
        with self.log.open("a") as log:
            agent = subprocess.Popen([*command, "--release-file", self.flag], stderr=log)
        wait(lambda: self.said("Listening") > told)
        return agent

    def said(self, words: str) -> int:
        return self.log.read_text().count(words) if self.log.exists() else 0

    def start(self, what: str) -> None:
        job = Job(self.device, what, self.folder / f"log-{len(self.jobs)}")
        wait(lambda: "up" in job.log)
        self.up_since[job.pid] = time.time()
        self.jobs.append(job)

    def alive(self) -> list[Job]:
        return [one for one in self.jobs if one.process.poll() is None]


def wait(is_so) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit("it did not come to that")
        time.sleep(0.002)


def play(host: Host, rng: random.Random) -> bool:
    """One round; whether the host was released too early."""
    for what in rng.choices([SAVER, SAVER, STUBBORN, WITH_WORKERS], k=rng.randint(0, 3)):
        host.start(what)
    began = time.time()
    over = host.said(" processes have ended") + host.said("withdrawn after")
    host.flag.unlink(missing_ok=True)
    host.notice.write_text("3")
    if rng.random() < 0.4:
        time.sleep(rng.uniform(0.2, 0.7))
        host.start(SAVER)
    if rng.random() < 0.25:
        time.sleep(rng.uniform(0.2, 0.9))
        host.notice.unlink()
    elif rng.random() < 0.2:
        time.sleep(rng.uniform(0.2, 0.6))
        host.agent.kill()
        host.agent.wait()
        host.agent = host.begin()
    # A notice that was withdrawn before it was read makes no round.
    wait(
        lambda: (
            host.said(" processes have ended") + host.said("withdrawn after") > over
            or (not host.notice.exists() and time.time() > began + 2)
        )
    )
    is_early = False
    if host.flag.exists():
        released = host.flag.stat().st_mtime
        held = any(host.up_since[job.pid] < released - LOOK_S for job in host.alive())
        is_early = held and released - began < GRACE_S
    host.notice.unlink(missing_ok=True)
    for job in host.alive():
        if rng.random() < 0.5:
            job.close()
    time.sleep(0.5)  # the source forgets the file
    return is_early


def is_cut_short(log: list[str]) -> bool:
    """Whether a worker was signalled before its trainer had saved."""
    told = log.index("worker: SIGTERM") if "worker: SIGTERM" in log else len(log)
    return told < len(log) and "saved" not in log[:told]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="holdfast-hosts-") as name:
        host = Host(Path(name))
        try:
            early = sum(play(host, rng) for _ in range(options.rounds))
        finally:
            host.agent.send_signal(signal.SIGTERM)
            host.agent.wait()
            for job in host.jobs:
                job.close()
        logs = [job.log for job in host.jobs]
        twice = sum(log.count("SIGTERM") > 1 for log in logs)
        workers = sum(is_cut_short(log) for log in logs)
        signalled = sum("SIGTERM" in log for log in logs)
    print(
        f"{options.rounds} rounds, {len(logs)} jobs, {signalled} signalled: {twice} twice, "
        f"{workers} workers before their trainers, {early} hosts released early"
    )
    sys.exit(bool(twice or workers or early))


if __name__ == "__main__":
    main()
