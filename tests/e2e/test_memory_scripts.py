"""What scripts do to the memory tier: they close descriptors, fork, change their state's shape."""

from __future__ import annotations

import re
import sys

import pytest
from processes import EXIT_CONFIGURATION, EXIT_DONE, FAR, House, Process

pytestmark = pytest.mark.real

SCRIPT = """
import os, signal, sys
from pathlib import Path

import numpy as np

import holdfast as hf

{first}
run = hf.start()
size = 300_000 if not (run.attempt and {changes}) else 200_000
state = run.restore(init=lambda: {{"w": np.zeros(300_000), "n": 0}}, like={like})
print("from", run.resume_step, flush=True)
{before}
for step in run.steps({steps}):
    state["w"] += 1
    state["n"] = step
    {inside}
    if not run.attempt and any(Path(os.environ["HOLDFAST_RAM"]).glob("buffer-*/manifest.json")):
        os.kill(os.getpid(), signal.SIGKILL)
    run.done(step, state)
assert set(state["w"]) == {{state["n"]}}
{after}
"""


def script(
    *,
    first: str = "",
    before: str = "",
    inside: str = "pass",
    after: str = "",
    changes: bool = False,
    steps: object,
) -> str:
    like = '{"w": np.zeros(size), "n": 0}' if changes else "None"
    return SCRIPT.format(
        first=first,
        before=before,
        inside=inside,
        after=after,
        changes=changes,
        like=like,
        steps=steps,
    )


def start(house: House, text: str) -> Process:
    command = (sys.executable, house.script(text))
    often = ("--snapshot-every", 1, "--save-every", FAR)
    return house.holdfast("run", "--name", "r", *often, "--max-failures", 1, "--", *command)


def test_a_script_that_closes_every_descriptor(house: House) -> None:
    """Its own files come to have the numbers of ours."""
    text = script(
        before=(
            "os.closerange(3, 4096)\n"
            "mine = [os.open(f'mine-{run.attempt}-{n}', os.O_RDWR | os.O_CREAT) for n in range(30)]"
        ),
        after="for fd in mine: os.write(fd, b'mine')",
        steps=f"{FAR} if not run.attempt else run.resume_step + 20",
    )
    run = start(house, text)
    run.wait(EXIT_DONE)
    run.saw(r"^(?:\[\d\] )?from [1-9]")
    run.saw("it is read from memory")
    assert "atexit" not in run.text
    for number in range(30):
        assert (house.folder / f"mine-0-{number}").read_bytes() == b""
        assert (house.folder / f"mine-1-{number}").read_bytes() == b"mine"


def test_a_script_that_closes_every_descriptor_while_a_buffer_is_mapped(house: House) -> None:
    """A thread has the buffer's file open for a moment: its number must not be one of theirs."""
    text = script(
        first=(
            "import threading\n"
            "from holdfast.snapshot import shared_file\n"
            "mapping, closed, map_aligned = threading.Event(), threading.Event(), "
            "shared_file._map_aligned\n"
            "def map_late(*args):\n"
            "    mapping.set()\n"
            "    closed.wait()\n"
            "    return map_aligned(*args)\n"
            "shared_file._map_aligned = map_late"
        ),
        before=(
            "mapping.wait()\n"
            "os.closerange(3, 4096)\n"
            "mine = [os.open(f'mine-{run.attempt}-{n}', os.O_RDWR | os.O_CREAT) for n in range(30)]"
            "\nclosed.set()"
        ),
        after="for fd in mine: os.write(fd, b'mine')",
        steps=f"{FAR} if not run.attempt else run.resume_step + 20",
    )
    run = start(house, text)
    run.wait(EXIT_DONE)
    run.saw("it is read from memory")
    assert "no snapshots in memory" not in run.text
    for number in range(30):
        assert (house.folder / f"mine-1-{number}").read_bytes() == b"mine"


def test_a_script_that_forks_children(house: House) -> None:
    """Before there are buffers, and at every step: they train on nothing and save nothing."""
    text = script(
        inside=(
            "child = os.fork()\n"
            "    if not child:\n"
            "        state['w'][:] = -1\n"
            "        run.done(step, state)\n"
            "        sys.exit(0)\n"
            "    assert os.waitpid(child, 0)[1] == 0"
        ),
        steps=f"{FAR} if not run.attempt else run.resume_step + 20",
    )
    run = start(house, text)
    run.wait(EXIT_DONE)
    run.saw(r"^(?:\[\d\] )?from [1-9]")
    run.saw("it is read from memory")


def test_a_state_of_another_shape_is_refused_by_its_path(house: House) -> None:
    run = start(house, script(changes=True, steps=FAR))
    text = run.wait(EXIT_CONFIGURATION)
    assert re.search(r"state/w.*200000.*300000|state/w.*300000.*200000", text)
    last = text.splitlines()[-1]
    assert "starting again cannot help" in last
    assert "holdfast run --name NEW" in last
    assert "holdfast run --fresh" in last
    assert "holdfast rollback r --to 0" in last
    assert text.count("does not fit this program") == 2  # Python's traceback, and the last line
    assert "from memory" in text
