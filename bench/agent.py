"""What the host agent costs: a look at 2,000 processes, and the agent while nothing is announced.

    python bench/agent.py [--processes 2000] [--descriptors 5] [--idle 60]

The processes are real and idle; each has so many descriptors, and one of them holds the device,
which is a file here. Time is the wall's, the best and the median of some looks, and beside it the
CPU's, which a busy machine changes less: by descriptors alone, which is the look that signals wait
for, and with mappings. Then the agent listens to every source that needs no cluster, the servers
being emulators in this process.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from holdfast.agent.daemon.holders import Scan
from holdfast.testing.aws import AwsEmulator
from holdfast.testing.azure import AzureEmulator
from holdfast.testing.gce import GceEmulator

LOOKS = 15
SETTLE_S = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2000)
    parser.add_argument("--descriptors", type=int, default=5)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, {platform.platform()}, load {load()}")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        looks(Path(name) / "accel0", options.processes, options.descriptors)
        idle(Path(name), options.idle)
    print(f"load at the end {load()}")


def load() -> str:
    return f"{os.getloadavg()[0]:.2f}"


def looks(device: Path, processes: int, descriptors: int) -> None:
    device.touch()
    begin = [sys.executable, "-I", "-S", "-c", CROWD, str(device), str(processes), str(descriptors)]
    crowd = subprocess.Popen(begin, stdout=subprocess.PIPE, text=True)
    try:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == "up\n"
        scan = Scan([str(device)])
        for is_thorough in (False, True):
            times_ms, spent_ms = [], []
            for _ in range(LOOKS):
                began, spent = time.perf_counter(), time.process_time()
                sight = scan.look(is_thorough=is_thorough)
                times_ms.append((time.perf_counter() - began) * 1e3)
                spent_ms.append((time.process_time() - spent) * 1e3)
                assert len(sight.holders) == 1, sight.holders
            what = "descriptors and mappings" if is_thorough else "descriptors"
            print(
                f"a look at {sight.processes} processes, {descriptors} descriptors each, {what}: "
                f"{statistics.median(times_ms):.1f} ms (best {min(times_ms):.1f}; "
                f"{statistics.median(spent_ms):.1f} ms of CPU time)",
                flush=True,
            )
    finally:
        crowd.kill()
        crowd.wait()


# Its children die with it (PR_SET_PDEATHSIG). The first one alone opens the device.
CROWD = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
for _ in range(int(sys.argv[3]) - 3):
    os.dup(0)
for number in range(int(sys.argv[2])):
    if os.fork() == 0:
        libc.prctl(1, signal.SIGKILL)
        if number == 0:
            device = open(sys.argv[1])
        signal.pause()
print("up", flush=True)
signal.pause()
"""


def idle(folder: Path, seconds: float) -> None:
    with GceEmulator() as gce, AwsEmulator() as aws, AzureEmulator() as azure:
        sources = f"gce:{gce.url},aws:{aws.url},azure:{azure.url},file:{folder / 'notice'}"
        command = [sys.executable, "-m", "holdfast.cli.main", "agent", "--autocheckpoint"]
        command += ["--notice", f"{sources},signal:USR1=60", "--state", str(folder / "state")]
        agent = subprocess.Popen([*command, "--metrics", "0"])
        try:
            time.sleep(SETTLE_S)
            began, spent_s = time.monotonic(), cpu_s(agent.pid)
            time.sleep(seconds)
            share = (cpu_s(agent.pid) - spent_s) / (time.monotonic() - began)
            status = Path(f"/proc/{agent.pid}/status").read_text()
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait()
    rss_kb = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    print(f"idle agent: {share * 100:.3f} % of a core, {int(rss_kb) / 1024:.1f} MB with metrics")


def cpu_s(pid: int) -> float:
    """CPU time of all threads, which schedstat tells to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in tasks) / 1e9


if __name__ == "__main__":
    main()
