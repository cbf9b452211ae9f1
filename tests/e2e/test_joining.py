"""Ranks that are there before rank 0 listens: they dial when it does, in unchanged scripts."""

from __future__ import annotations

import sys

import pytest
from processes import EXIT_DONE, House

pytestmark = pytest.mark.real

# Rank 1 comes first: rank 0 begins to listen when rank 1 has been refused once, and waits. Both
# frameworks' own dialling is made to say whether somebody listened by then.
COMMON = """
import os, socket, sys, time
from pathlib import Path

import {module}
import holdfast as hf

rank, refused = int(os.environ["RANK"]), Path("refused")


def dialled(host, port):
    with socket.socket() as probe:
        heard = probe.connect_ex((host, int(port))) == 0
    print("dialled when heard" if heard else "dialled too early", flush=True)
    refused.touch()  # rank 0 need not wait for more


def sleep(seconds, sleep=time.sleep):
    refused.touch()
    sleep(seconds)


{watch}
run = hf.start()
if rank == 0:
    while not refused.exists():
        time.sleep(0.005)
else:
    time.sleep = sleep
{join}
for step in run.steps(1):
    run.done(step)
"""
JAX = {
    "module": "jax",
    "watch": """
from jax._src import distributed
dial = distributed._jax.get_distributed_runtime_client


def saying(address, process_id, *more, **options):
    if process_id > 0:
        dialled(*address.rsplit(":", 1))
    return dial(address, process_id, *more, **options)


distributed._jax.get_distributed_runtime_client = saying
""",
    "join": "jax.distributed.initialize(None, int(os.environ['JAX_NUM_PROCESSES']), rank)",
}
TORCH = {
    "module": "torch.distributed",
    "watch": """
rendezvous = sys.modules["torch.distributed.rendezvous"]
store = rendezvous.TCPStore


def saying(host_name, port, *more, **options):
    if rank > 0:
        dialled(host_name, port)
    return store(host_name, port, *more, **options)


rendezvous.TCPStore = saying
""",
    "join": "torch.distributed.init_process_group('gloo')",
}


@pytest.mark.parametrize("framework", [JAX, TORCH], ids=["jax", "torch"])
def test_a_rank_dials_when_rank_0_listens(house: House, framework: dict[str, str]) -> None:
    script = house.script(COMMON.format(**framework))
    out = house.holdfast("run", "--name", "r", "--ranks", "2", "--", sys.executable, script)
    text = out.wait(EXIT_DONE)
    assert "dialled when heard" in text
    assert "too early" not in text
