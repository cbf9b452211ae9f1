"""Real runs whose decisions are recorded for ever: `python tests/nights/record.py [NAME …]`.

Each night is a real run with real faults. Its supervisors' policies and inputs are taken from their
journals into NAME-N.jsonl, and what was decided into NAME-N.txt (`holdfast replay --trace`). The
nights are never recorded again when a decision changes: the inputs happened. `test_nights.py`
decides on them anew.
"""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.controller.replay import RecordedDecisions, recorded, replay
from holdfast.core import events as ev
from holdfast.core.event_json import decode, encode
from holdfast.core.run.as_json import read_policy, write_policy
from holdfast.core.run.state import RunPolicy
from holdfast.core.run.trace_lines import trace_lines
from holdfast.journal.reader import read_journal

HERE = Path(__file__).parent
TRAIN = """\
import os, sys, time
import numpy as np
import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {"w": np.zeros(100_000)})
for step in run.steps(int(sys.argv[1])):
    time.sleep(0.03)
    state["w"] += 1
    once = f"{os.environ['ONCE']}-{step}-{run.rank}"
    fault = os.environ.get(f"AT_{step}", "")
    if fault and run.rank == 0 and (fault.endswith("!") or not os.path.exists(once)):
        open(once, "w").close()
        if fault.startswith("raise"):
            raise ValueError("the loss is not a number")
        if fault.startswith("hang"):
            time.sleep(1000)
        if fault.startswith("kill"):
            os.kill(os.getpid(), 9)
        if fault.startswith("back"):
            run.fail("the loss has a spike", rollback_to=10, skip_batches=2)
    run.done(step, state)
"""
Night = Callable[["Runs"], None]


class Runs:
    """Starts a run again and again, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        (folder / "train.py").write_text(TRAIN)

    def start(self, *flags: str, steps: int = 60, **faults: str) -> subprocess.Popen[str]:
        """One supervisor; `AT_7="kill"`: what happens in step 7, once, or each time with a `!`."""
        env = {name: value for name, value in os.environ.items() if "HOLDFAST" not in name}
        return subprocess.Popen(
            [*self.holdfast("run", "--name", "night", "--status", "off"), *flags,
             "--", sys.executable, "train.py", str(steps)],
            cwd=self.folder,
            env={**env, "ONCE": str(self.folder / "once"), **faults},
            text=True,
        )  # fmt: skip

    def holdfast(self, command: str, *words: str) -> list[str]:
        """A command line with this store."""
        program = [sys.executable, "-m", "holdfast.cli.main", command]
        return [*program, "--store", str(self.store), *words]

    def ask(self, command: str, *words: str) -> None:
        """Carry it out from outside."""
        subprocess.run([*self.holdfast(command), "night", *words], check=True)

    def until_step(self, step: int) -> None:
        """Wait until the newest attempt's first rank has recorded it."""
        while True:
            found = subprocess.run(
                [*self.holdfast("report"), "night", "--json"], capture_output=True, text=True
            )
            if found.returncode == 0 and json.loads(found.stdout)["steps_kept"] >= step:
                return
            time.sleep(0.1)


def done(runs: Runs) -> None:
    runs.start("--save-every", "20").wait()


def killed(runs: Runs) -> None:
    runs.start("--save-every", "10", AT_15="kill", AT_34="kill", AT_35="kill").wait()


def killed_without_memory(runs: Runs) -> None:
    runs.start("--save-every", "10", "--memory", "off", AT_15="kill", AT_34="kill").wait()


def two_ranks(runs: Runs) -> None:
    runs.start("--ranks", "2", "--save-every", "10", AT_15="kill", AT_34="raise").wait()


def same_bug(runs: Runs) -> None:
    runs.start("--save-every", "10", AT_25="raise!").wait()


def hung(runs: Runs) -> None:
    runs.start("--save-every", "10", "--hang", "2", AT_25="hang").wait()


def told_to_go(runs: Runs) -> None:
    first = runs.start("--save-every", "20", steps=200)
    runs.until_step(25)
    first.send_signal(signal.SIGTERM)
    first.wait()
    runs.start("--save-every", "20").wait()


def asked_by_a_person(runs: Runs) -> None:
    first = runs.start("--save-every", "50", steps=400)
    runs.until_step(25)
    runs.ask("save")
    time.sleep(1)
    runs.ask("rollback", "--to", "0")
    time.sleep(3)
    runs.ask("stop")
    first.wait()


def gone_back(runs: Runs) -> None:
    runs.start("--save-every", "10", AT_25="back").wait()


def supervisor_killed(runs: Runs) -> None:
    first = runs.start("--save-every", "20", steps=200)
    runs.until_step(25)
    first.kill()
    first.wait()
    runs.start("--save-every", "20", steps=80).wait()


NIGHTS: tuple[Night, ...] = (
    done, killed, killed_without_memory, two_ranks, same_bug, hung, told_to_go, asked_by_a_person,
    gone_back, supervisor_killed,
)  # fmt: skip


def trace(policy: RunPolicy, events: list[ev.Event]) -> str:
    """What is decided, line by line."""
    since_ns = events[0].at_ns
    lines: list[str] = []
    for event, actions in replay(events, policy):
        lines += trace_lines(event, actions, event.at_ns, since_ns=since_ns)
    return "".join(f"{line}\n" for line in lines)


def keep(name: str, night: RecordedDecisions, folder: Path) -> None:
    """Write the files of one supervisor, without what names this machine."""
    told = [write_policy(night.policy), *(encode(event) for event in night.inputs)]
    text = "".join(f"{json.dumps(one, separators=(',', ':'))}\n" for one in told)
    me = f"{getpass.getuser()}@{os.uname().nodename}"
    (HERE / f"{name}.jsonl").write_text(text.replace(str(folder), "/home").replace(me, "me@here"))
    (HERE / f"{name}.txt").write_text(trace(*read(HERE / f"{name}.jsonl")))


def read(path: Path) -> tuple[RunPolicy, list[ev.Event]]:
    """The policy and the inputs of a supervisor."""
    policy, *events = (json.loads(line) for line in path.read_text().splitlines())
    return read_policy(policy), [decode(event) for event in events]


def main(names: list[str]) -> None:
    for night in NIGHTS:
        name = night.__name__
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            runs = Runs(Path(folder))
            night(runs)
            for number, path in enumerate(sorted(runs.store.glob("night/journal/*.hfj")), 1):
                keep(f"{name}-{number}", recorded(read_journal(path)), Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
