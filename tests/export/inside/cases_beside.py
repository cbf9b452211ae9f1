"""`holdfast run --export`: a real run with its exporters beside it, on a loopback of its own."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

LAST_STEP = 2_000
LIMIT_S = 240  # generous: only a hang comes near it
SCRIPT = """
import pathlib, sys, time
import numpy as np
import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: np.zeros(4))
for step in run.steps(2_000):
    state = state + 1
    if not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.02)  # what a step takes, until the test has seen enough of them
    run.done(step, state)
"""


# The exporters, which have all the time there is for the last numbers: they give way to the rest
# of a busy machine.
EXPORT = f"""
import sys
from holdfast.cli.main import main
from holdfast.export.loop import Exporters

Exporters.close.__defaults__ = ({LIMIT_S},)
sys.exit(main())
"""
# The command, which says how the runs stand when its exporters are to tell the last numbers.
HOLDFAST = f"""
import sys
from holdfast.agent import exporter
from holdfast.agent.exporter import ExportProcess
from holdfast.cli.main import main
from holdfast.config import run_store
from holdfast.journal.store import RunStore
from holdfast.runs.listing import RunList

def close(self):
    if not self._closed:
        for run in RunList(RunStore.at(run_store(None))).look().runs:
            print(f"{{run.name}} at the last look: {{run.state}}", file=sys.stderr)
    real(self)

def start(self):
    self._argv[2:4] = ["-c", {EXPORT!r}]
    begin(self)

real, ExportProcess.close = ExportProcess.close, close
begin, ExportProcess._start = ExportProcess._start, start
exporter.CLOSE_LIMIT_S = {LIMIT_S}
sys.exit(main())
"""


def start(store: Path, folder: Path, *flags: str) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "HOLDFAST_STANDBY": "off", "HOLDFAST_MIRROR": str(folder / "m")}
    return subprocess.Popen(
        [sys.executable, "-c", HOLDFAST, "run", "--name", "r", *flags,
         "--", sys.executable, "train.py", str(folder / "enough")],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def scraped(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""


def steps_in(file: Path) -> list[int]:
    """The steps of the events in a file of TensorBoard's, by the format's own framing."""
    from tensorboardX.proto.event_pb2 import Event

    data, at, found = file.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        found.append(Event.FromString(data[at + 12 : at + 12 + length]).step)
        at += 16 + length
    return found


def exporter_of(supervisor: int) -> int | None:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            parent = (place / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"--until-eof" in words and parent == str(supervisor):
            return int(place.name)
    return None


def test_numbers_of_a_run_from_beside_it(
    store: Path, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    run = start(store, tmp_path, "--export", "prometheus:9464,tensorboard:tb")
    eventually(lambda: 'holdfast_run_state{run="r",state="running"} 1.0' in scraped(9464))
    pid = eventually(lambda: exporter_of(run.pid))
    assert isinstance(pid, int)
    assert os.getpriority(os.PRIO_PROCESS, pid) >= 15  # it gives way to the training
    eventually(lambda: list((tmp_path / "tb" / "goodput").glob("events*")))
    (tmp_path / "enough").touch()
    _, said = run.communicate(timeout=LIMIT_S)
    assert (run.returncode, exporter_of(run.pid)) == (0, None), said
    (file,) = (tmp_path / "tb" / "goodput").iterdir()
    assert steps_in(file)[-1] == LAST_STEP  # the last numbers are told at the end
    assert "r at the last look: done" in said


def test_a_taken_port_is_said_once_and_the_run_goes_on(store: Path, tmp_path: Path) -> None:
    (tmp_path / "enough").touch()
    with socket.create_server(("127.0.0.1", 9465)):
        run = start(store, tmp_path, "--export", "prometheus:9465")
        _, said = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0
    assert said.count("port 9465 of 127.0.0.1 cannot be served") == 1


def test_what_cannot_be_meant_is_said_before_anything_starts(store: Path, tmp_path: Path) -> None:
    run = start(store, tmp_path, "--export", "promtheus")
    _, said = run.communicate(timeout=LIMIT_S)
    assert (run.returncode, said.count("\n")) == (78, 1)
    assert "there is no exporter 'promtheus'" in said
    assert not (store / "r").exists()
