"""What a standby buys: from the start, or the wake, to the script's own code and to its first step.

    python bench/standby.py [--rounds 9] [--set NAME=VALUE …] [jax] [torch]

A script imports its framework and takes one small step. It is started cold, and as a standby that
has imported what the cold one had imported by then; both from here, without a supervisor, so that
nothing but the start is measured. `--set` adds a variable to the environment of both, to compare
settings (GLIBC_TUNABLES, OMP_NUM_THREADS, …). Medians and spread, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast.standby.channel import VARIABLE
from holdfast.standby.command import standby_argv

CLOCK = "lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC)"
FIRST = f"import time, sys; now = {CLOCK}; first = now()\n"
LAST = """
from pathlib import Path
from holdfast.session.imports import _write
if len(sys.argv) > 1:
    _write(Path(sys.argv[1]), list(sys.modules.items()))
print(first, imported, now(), flush=True)
import os; os._exit(0)  # what the interpreter's end costs belongs to no start
"""
SCRIPTS = {
    "jax": """
import jax, jax.numpy as jnp, optax
imported = now()
jax.block_until_ready(jax.jit(lambda x: x @ x)(jnp.ones((64, 64))))
""",
    "torch": """
import torch
imported = now()
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(8, 64)).sum().backward()
optimizer.step()
""",
}
POINTS = ("the script's first line", "all imported", "the first step is done")


def cold(script: Path, env: dict[str, str]) -> list[float]:
    """Milliseconds from the start to each of `POINTS`."""
    began_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    run = subprocess.run([sys.executable, script], env=env, stdout=subprocess.PIPE, check=True)
    return [(int(word) - began_ns) / 1e6 for word in run.stdout.split()]


def warm(script: Path, env: dict[str, str], learned: Path) -> tuple[list[float], dict[str, Any]]:
    """The same from the wake, and what the standby said when it was ready."""
    wake_read, wake_write = os.pipe()
    status_read, status_write = os.pipe()
    argv = [sys.executable, str(script)]
    task = {"wake_fd": wake_read, "status_fd": status_write, "imports": str(learned), "argv": argv}
    command, why = standby_argv(argv)
    assert command is not None, why
    process = subprocess.Popen(
        command,
        env={**env, VARIABLE: json.dumps(task)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=[wake_read, status_write],
    )
    os.close(wake_read)
    os.close(status_write)
    with os.fdopen(status_read) as status:
        ready = json.loads(status.readline())
        assert ready["event"] == "ready", ready
        line = json.dumps({"argv": argv, "env": env, "cwd": str(Path.cwd())}) + "\n"
        began_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        os.write(wake_write, line.encode())
        printed = process.communicate()[0]
        woken = json.loads(status.readline())
        assert woken["event"] == "warm", woken
    os.close(wake_write)
    return [(int(word) - began_ns) / 1e6 for word in printed.split()], ready


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):8.1f} ({min(values):.1f} … {max(values):.1f})"


def measure(name: str, rounds: int, env: dict[str, str], folder: Path) -> None:
    script, learned = folder / f"start_{name}.py", folder / f"{name}.json"
    script.write_text(FIRST + SCRIPTS[name] + LAST)
    subprocess.run([sys.executable, script, learned], env=env, stdout=subprocess.PIPE, check=True)
    colds, warms, readies = [], [], []
    for _ in range(rounds):  # in turn, so that both meet the same machine
        colds.append(cold(script, env))
        times, ready = warm(script, env, learned)
        warms.append(times)
        readies.append(ready)
    for number, point in enumerate(POINTS):
        left, right = [one[number] for one in colds], [one[number] for one in warms]
        print(f"{name:6} {point:24} cold {shown(left):32} standby {shown(right)}")
    seconds = statistics.median(one["took_s"] for one in readies)
    rss, pss = (readies[-1][key] / (1 << 20) for key in ("rss_bytes", "pss_bytes"))
    modules = readies[-1]["modules"]
    print(
        f"{name:6} waiting: {modules} modules, {rss:.0f} MiB resident ({pss:.0f} its share), "
        f"ready after {seconds:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=list(SCRIPTS), metavar="jax|torch")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    env.update(word.split("=", 1) for word in options.set)
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names:
            measure(name, options.rounds, env, Path(folder))


if __name__ == "__main__":
    main()
