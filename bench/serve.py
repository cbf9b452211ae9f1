"""`holdfast serve` over a thousand runs: the list cold and warm, and how far behind a live run is.

    python bench/serve.py [--runs 1000] [--times 7]

The list is asked of a server that was just started: with no summaries kept (rows come as they are
read), with summaries kept, and again. The delay is from a step in a journal to the event that tells
of it, as its viewer has it whole; two runs are under way meanwhile, of which one is watched.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleet import fill, said

from holdfast.journal.store import RunStore

TRAIN = """
import time
import numpy as np
import holdfast as hf
run = hf.start()
state = run.restore(init=lambda: {"w": np.zeros(4)})
for step in run.steps(1000000):
    time.sleep(0.7)
    state["w"] += 1
    print("STEP", step, time.time_ns(), flush=True)
    run.done(step, state)
"""


class Server:
    def __init__(self, store: Path, mirror: Path) -> None:
        environment = {**os.environ, "HOLDFAST_MIRROR": str(mirror)}
        command = [sys.executable, "-m", "holdfast.cli.main", "serve", "--store", str(store)]
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--no-token"],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stderr is not None
        self.port = int(self.process.stderr.readline().rsplit(":", 1)[1].strip("/\n"))

    def get(self, path: str) -> tuple[float, int]:
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        size = len(connection.getresponse().read())
        connection.close()
        return time.perf_counter() - began, size

    def events(self, path: str) -> Iterator[dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        while line := response.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def until_all_read(server: Server) -> float:
    began = time.perf_counter()
    for event in server.events("/live"):
        if "being read" not in event["parts"].get("counts", "being read"):
            return time.perf_counter() - began
    return 0.0


def delays(server: Server, log: Path, times: int) -> list[float]:
    """From the end of a step to the event that has it."""
    found, told = [], 0
    for event in server.events("/run/live/live"):
        now_ns = time.time_ns()
        words = event["parts"].get("goodput", "")
        if " steps kept" not in words:
            continue
        step = int(words.split(" steps kept")[0].rsplit(">", 1)[1].replace(",", ""))
        if step > told and told:
            lines = [line.split() for line in log.read_text().splitlines() if "STEP" in line]
            at = {int(line[-2]): int(line[-1]) for line in lines}
            if step in at:
                found.append((now_ns - at[step]) / 1e9)
        told = step
        if len(found) == times:
            return found
    return found


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--runs", type=int, default=1000)
    flags.add_argument("--times", type=int, default=7)
    asked = flags.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        store, mirror = place / "store", place / "mirror"
        fill(RunStore(store), asked.runs)
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; ")
        print(f"{asked.runs} runs as of bench/fleet.py; load {os.getloadavg()[0]:.1f}")
        server = Server(store, mirror)
        cold, size = server.get("/")
        said("list, nothing kept: the first answer", [cold])
        said("  all rows, as events", [until_all_read(server)])
        server.end()
        warm, again = [], []
        for _ in range(asked.times):
            server = Server(store, mirror)
            took, size = server.get("/")
            warm.append(took)
            time.sleep(1.0)
            again.append(server.get("/")[0])
            server.end()
        said("list, new server, summaries kept", warm)
        said("list, again", again)
        print(f"(the page has {size / 1e6:.2f} MB)")
        script, log = place / "train.py", place / "log"
        script.write_text(TRAIN)
        with log.open("wb") as out:
            command = [sys.executable, "-m", "holdfast.cli.main", "run", "--store", str(store)]
            run = subprocess.Popen(
                [*command, "--name", "live", "--", sys.executable, str(script)],
                stdout=out,
                stderr=subprocess.DEVNULL,
            )
        while b"STEP" not in log.read_bytes():
            time.sleep(0.1)
        server = Server(store, mirror)
        said("a step on the live page, behind", delays(server, log, 5 * asked.times))
        before = os.times().elapsed, cpu_s(server.process.pid)
        time.sleep(10)
        after = os.times().elapsed, cpu_s(server.process.pid)
        share = (after[1] - before[1]) / (after[0] - before[0])
        print(f"(nobody looks: {100 * share:.1f} % of a core)")
        server.end()
        run.send_signal(signal.SIGINT)
        run.wait()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
