"""Trainers that are not ours, each as its own documentation has it, saved by the host daemon.

Each is started again by hand after the agent has had it save, and goes on from there. Only
`make agent-trainers` does all of it, and installs Orbax.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from processes import Process

from holdfast.agent.launch import free_ports

IS_WHOLE = os.environ.get("TRAINERS") == "whole"
DEVICE = "device = open(sys.argv[1])\n"  # as a driver's library holds one

# Orbax, with JAX's preemption service: the manager asks it at each step whether to save.
ORBAX = (
    """
import sys, time
import jax, jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

folder, address, processes, number = sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
jax.distributed.initialize(address, num_processes=processes, process_id=number)
"""
    + DEVICE
    + """
options = ocp.CheckpointManagerOptions(save_interval_steps=100_000, max_to_keep=2)
manager = ocp.CheckpointManager(folder, options=options)
whole = NamedSharding(Mesh(jax.devices(), ("all",)), PartitionSpec("all"))
state, first = {"w": jax.jit(lambda: jnp.zeros(8), out_shardings=whole)()}, 0
w = lambda: float(state["w"].addressable_shards[0].data[0])
if manager.latest_step() is not None:
    restored = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(state))
    state, first = restored, manager.latest_step() + 1
print("first step", first, "w", w(), flush=True)
train = jax.jit(lambda state: {"w": state["w"] + 1})
for step in range(first, 100_000):
    state = train(state)
    time.sleep(0.02)  # what a step takes: the notice comes in one
    manager.save(step, args=ocp.args.StandardSave(state))
    if step == first + 3:
        print("training", flush=True)
    if manager.reached_preemption(step):
        manager.wait_until_finished()
        print("saved", step, "w", w(), flush=True)
        break
manager.close()
"""
)

# A handler that sets a flag, and torch.save at the next step.
TORCH = (
    """
import os, signal, sys, time
import torch

"""
    + DEVICE
    + """
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
path, first, told = os.path.join(sys.argv[2], "checkpoint.pt"), 0, []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
if os.path.exists(path):
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    first = saved["step"] + 1
print("first step", first, "w", float(model.weight.sum()), flush=True)
for step in range(first, 100_000):
    optimizer.zero_grad()
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    time.sleep(0.01)  # what a step takes: the notice comes in one
    if step == first + 3:
        print("training", flush=True)
    if told:
        torch.save({"model": model.state_dict(), "step": step}, path + ".new")
        os.replace(path + ".new", path)
        print("saved", step, "w", float(model.weight.sum()), flush=True)
        break
"""
)


class Jobs:
    """Processes of one job, and the agent."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.device, self.notice = folder / "accel0", folder / "notice"
        self.device.touch()
        (folder / "checkpoints").mkdir()
        self.processes: list[Process] = []

    def start(self, *words: object) -> Process:
        self.processes.append(Process([str(word) for word in words], cwd=self.folder))
        return self.processes[-1]

    def trainer(self, script: str, *words: object) -> Process:
        program = (sys.executable, "-c", script, self.device, self.folder / "checkpoints")
        return self.start(*program, *words)

    def agent(self) -> Process:
        command = (sys.executable, "-m", "holdfast.cli.main", "agent", "--autocheckpoint")
        options = ("--devices", self.device, "--notice", f"file:{self.notice}")
        state = ("--state", self.folder / "state", "--release-file", self.folder / "released")
        begun = self.start(*command, *options, *state)
        begun.saw("Listening")
        return begun


@pytest.fixture
def host(tmp_path, store):
    jobs = Jobs(tmp_path)
    yield jobs
    for process in jobs.processes:
        process.close()


def warned(host: Jobs, trainers: list[Process]) -> list[tuple[int, str]]:
    """A notice while they train; (step, what was saved) of each when the host is released."""
    for one in trainers:
        one.saw("^training$")
    agent = host.agent()
    host.notice.write_text("60")
    agent.saw(f"clear after .*: {len(trainers)} of {len(trainers)} processes have ended")
    agent.saw("Released: touch")
    found = [re.search(r"^saved (\d+) w (\S+)$", one.wait(0), re.M) for one in trainers]
    agent.send(signal.SIGTERM)
    assert agent.wait(0).count("holdfast: SIGTERM to process") == len(trainers)
    assert all(found), [one.text for one in trainers]
    return [(int(one[1]), one[2]) for one in found]


def goes_on(trainer: Process, saved: tuple[int, str]) -> None:
    first = trainer.saw(r"^first step (\d+) w (\S+)$")
    assert (int(first[1]) - 1, first[2]) == saved
    trainer.close()


@pytest.mark.real
def test_pytorch_with_a_handler_of_its_own(host):
    pytest.importorskip("torch")
    (saved,) = warned(host, [host.trainer(TORCH)])
    assert (host.folder / "checkpoints" / "checkpoint.pt").stat().st_size
    if IS_WHOLE:
        goes_on(host.trainer(TORCH), saved)


@pytest.mark.skipif(not IS_WHOLE, reason="make agent-trainers")
@pytest.mark.parametrize("processes", [1, 2])
def test_orbax_with_jax_distributed(host, processes):
    def trainers() -> list[Process]:
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        return [host.trainer(ORBAX, address, processes, one) for one in range(processes)]

    saved = warned(host, trainers())
    assert len(set(saved)) == 1, "all processes save the same step"
    for one in trainers():
        goes_on(one, saved[0])
