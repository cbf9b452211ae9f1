"""A working tree onto hosts of the lab over SSH, and a slice that is taken: seconds.

    python bench/push.py --times 3 --hosts 16 --only push,direct,slice
    python bench/push.py --times 3 --hosts 64 --rate 1 --only push

Every host is namespaces of this machine with a real sshd; all share its cores, which also compress,
pass on and unpack: the more hosts, the slower the line has to be to be what limits. `push`: 50 MB
that cannot be packed, over a line out of the laptop of so many MB/s, to one host and to all of
them; `direct`: to four without a relay. `slice`: of two slices of two hosts one is preempted; the
emulator of Cloud TPU answers at once. Told apart: what the lab took to boot its hosts, which no
machine of a cloud does as fast, and the rest, which is ours and the script's.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / name) for name in ("", "e2e", "lab")]
from processes import EXIT_UNAVAILABLE  # noqa: E402
from ssh_lab import LabNodes, SshLab, until  # noqa: E402

MB = 1_000_000
PUSHED = r"push and install took ([0-9.]+) s"
# What was pushed is not run: so many agents would share the cores with the next push.
NO_START = "holdfast --version && exit 9"
TRAINER = """\
import sys, time
import numpy as np
import holdfast as hf
run = hf.start()
state = run.restore(init=lambda: {"w": np.zeros(1000)})
for step in run.steps(int(sys.argv[1])):
    time.sleep(0.02)
    state["w"] += 1
    run.done(step, state)
    print("did", step, f"{time.time():.3f}", flush=True)
"""


def told(what: str, found_s: list[float], words: str = "") -> None:
    middle, least, most = statistics.median(found_s), min(found_s), max(found_s)
    print(f"{what:<60} {middle:7.2f} ({least:.2f} … {most:.2f}) {words}", flush=True)


def push(times: int, hosts: int, size_mb: float, rate_mb_s: float, *, has_direct: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, SshLab(hosts, Path(folder)) as ssh:
        (ssh.work / "train.py").write_text(TRAINER)
        ssh.lab.limit(0, rate_mb_s * MB)
        one: list[float] = []
        many: list[float] = []
        for n in range(times):
            one.append(pushed_s(ssh, f"one{n}", 1, size_mb))
            many.append(pushed_s(ssh, f"many{n}", hosts, size_mb))
        told(f"push of {size_mb:.0f} MB to 1 host, line of {rate_mb_s:g} MB/s", one)
        told(
            f"… to {hosts} hosts", many, f"{statistics.median(many) / statistics.median(one):.2f} ×"
        )
        if has_direct:
            without = [pushed_s(ssh, "direct", min(4, hosts), size_mb, "-o", "relay=off")]
            told("… to 4 hosts without a relay", without)


def pushed_s(ssh: SshLab, name: str, hosts: int, size_mb: float, *options: str) -> float:
    """How long a new tree took to all of them, unpacked. Nothing is started, and nothing stays."""
    (ssh.work / "data").write_bytes(os.urandom(int(size_mb * MB)))
    command = ["-o", f"install={NO_START}", "--", "python3", "train.py", 1]
    run = ssh.submit(range(1, hosts + 1), *options, *command, name=name)
    run.wait(EXIT_UNAVAILABLE)
    rounds_s = [float(one) for one in re.findall(PUSHED, run.text)]  # more: some came late
    whole = int(size_mb * MB)
    for host in ssh.machines[:hosts]:
        pushed = host.root / str(ssh.lab.own)[1:] / ".holdfast" / "pushed"
        (data,) = pushed.glob("*/trees/*/data")
        assert data.stat().st_size == whole, f"host {host.index} has not got it"
        shutil.rmtree(pushed)
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{name}: {' + '.join(map(str, rounds_s))} s, load {load}", flush=True)
    return sum(rounds_s)


def slice_taken() -> dict[str, float]:
    """One preemption, in parts."""
    from holdfast.testing.tpu import TpuEmulator

    with tempfile.TemporaryDirectory() as folder, SshLab(4, Path(folder), is_on=False) as ssh:
        (ssh.work / "train.py").write_text(TRAINER)
        at = ssh.lab.shared / "tpu.socket"
        nodes = LabNodes(ssh, 2)
        with TpuEmulator(machines=nodes, at=at) as tpu:
            made_of = ["--project", "p", "--zone", "z", "--type", "v5litepod-8", "--runtime", "v2"]
            many = ["--slices", 2, "--queued", "--every", 0.5, "--delete", "--save-every", 20]
            push = ["--push", ".", "--ssh-config", ssh.config]
            env = {"HOLDFAST_TPU_ENDPOINT": f"unix:{at}"}
            up = ssh.holdfast(
                "up", "lm", *made_of, *many, *push, "--", "python3", "train.py", 100_000, env=env
            )
            up.saw(r"^h3 \[3\] did 100 ")
            until(lambda: list(ssh.store.glob("lm/ckpt/*")), "a save")
            nodes.booting_s.clear()
            second = sorted(name.rpartition("/")[2] for name in tpu.nodes)[1]
            began_s = time.time()
            tpu.do("preempt", second)
            marks = {}
            for mark, pattern, count in (
                ("told", "deleting", 1), ("deleted", "creating lm-.*-g2", 1),
                ("there", "pushing", 2),
                ("pushed", "push and install took", 2), ("started", "starting 4 hosts", 2),
            ):  # fmt: skip
                up.saw(pattern, count)
                marks[mark] = time.time() - began_s
            up.saw("Attempt 1: starting")
            first = next(i for i, line in enumerate(up.lines) if "Attempt 1: starting" in line)

            def steps() -> list[float]:
                found = [re.search(r"\[3\] did \d+ ([0-9.]+)$", line) for line in up.lines[first:]]
                return [float(one[1]) for one in found if one and float(one[1]) > began_s + 1]

            until(steps, "a step")
            marks["training"] = min(steps()) - began_s
            marks["lab"] = sum(nodes.booting_s)
            up.close()
            return marks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--size", type=float, default=50.0, help="MB of the tree")
    parser.add_argument("--rate", type=float, default=4.0, help="MB/s of the line out of here")
    parser.add_argument("--only", default="push,direct,slice")
    asked = parser.parse_args()
    print("load", *os.getloadavg())
    if "slice" in asked.only:
        found = [slice_taken() for _ in range(asked.times)]
        for name in found[0]:
            told(f"slice preempted → {name}", [one[name] for one in found])
        told("… less the lab's boots", [one["training"] - one["lab"] for one in found])
    if "push" in asked.only:
        has_direct = "direct" in asked.only
        push(asked.times, asked.hosts, asked.size, asked.rate, has_direct=has_direct)
    print("load", *os.getloadavg())


if __name__ == "__main__":
    main()
