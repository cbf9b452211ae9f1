"""JAX, and PyTorch under DDP and FSDP2, on hosts of the lab: one is told to go, one loses power."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from lab import Lab
from lab_run import RunInLab
from processes import EXIT_DONE, EXIT_SAVED, FAR, TRAINER

pytestmark = pytest.mark.real

MORE = 8  # steps after the stop
LOST_S = 10  # three hosts import a framework on the cores of one
PARTED = TRAINER.with_name("parted_trainer.py")
TRAINERS = {
    "jax": (TRAINER.with_name("jax_trainer.py"), {}),
    "ddp": (PARTED, {"HOW": "ddp"}),
    "fsdp": (PARTED, {"HOW": "fsdp"}),
}


def digests(words: str) -> set[tuple[str, str, str]]:
    """(rank, step, digest) of each step that was done."""
    return set(re.findall(r"\[(\d)\] did (\d+) (\w+)", words))


@pytest.mark.parametrize("how", TRAINERS)
def test_ranks_on_several_hosts_are_stopped_and_lost_and_nothing_shows(
    tmp_path: Path, how: str
) -> None:
    pytest.importorskip("jax" if how == "jax" else "torch")
    trainer, env = TRAINERS[how]
    env = {**env, "OMP_NUM_THREADS": "1"}
    with Lab(3, tmp_path) as lab:
        run = RunInLab(lab, spares=1, trainer=trainer, env=env, lost_s=LOST_S)
        run.allow(7)
        agents = run.start_all(FAR)
        for rank in (0, 1):
            agents[rank].saw(rf"\[{rank}\] did 7 ")
        agents[1].send(signal.SIGTERM)
        agents[0].saw("SIGTERM on host 1")
        run.allow(FAR)
        words = "\n".join(agent.wait(EXIT_SAVED) for agent in agents)
        (saved,) = set(re.findall(r"step (\d+) is saved", words))
        end = int(saved) + MORE
        run.allow(end - 2)
        agents = run.start_all(end)
        for rank in (0, 1):
            agents[rank].saw(rf"\[{rank}\] from {saved}$")
            agents[rank].saw(rf"\[{rank}\] did {end - 2} ")
        lab.hosts[1].power_off()
        agents[2].saw("This is host 2 of 3 in the place of host 1")
        run.allow(FAR)
        words += "\n".join(agents[index].wait(EXIT_DONE) for index in (0, 2))
        lab.hosts[1].power_on()
        quiet = RunInLab(lab, spares=1, trainer=trainer, env=env, name="quiet", lost_s=LOST_S)
        undisturbed = "\n".join(agent.wait(EXIT_DONE) for agent in quiet.start_all(end))
    assert len(digests(undisturbed)) == 2 * end
    assert digests(words) <= digests(undisturbed)
    assert all((rank, str(end)) in {one[:2] for one in digests(words)} for rank in "01")
