"""A recorded night, decided again: the same inputs lead to the same facts."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_values import write_inits

from holdfast.controller.journal import ControllerJournal
from holdfast.controller.replay import decided, difference, inputs, recorded, replay
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import ExitCause
from holdfast.core.hang import deadline as hang
from holdfast.core.run import restart
from holdfast.core.run.machine import RunPolicy
from holdfast.core.save import events as news
from holdfast.core.save import policy as saves
from holdfast.errors import JournalError
from holdfast.journal.layout import CONTROLLER_RANK, Identity
from holdfast.journal.reader import Journal, read_journal
from holdfast.journal.writer import JournalWriter

write_inits()

FAR = 10_000_000
TRAIN = """\
import os, sys, time
import numpy as np
import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {"n": np.zeros(100)})
for step in run.steps(int(sys.argv[1])):
    state["n"] += 1
    if step % 1000 == 0:
        print("did", step, flush=True)
    crash = os.environ.get("CRASH_ONCE")
    if crash and step % 5000 == 0 and not os.path.exists(crash):
        open(crash, "w").close()
        raise RuntimeError("once")
    hang = os.environ.get("HANG_ONCE")
    if hang and step == 5000 and not os.path.exists(hang):
        open(hang, "w").close()
        while True:
            time.sleep(1000)
    run.done(step, state)
print("final", int(state["n"][0]), flush=True)
"""


def start(folder: Path, steps: int, *flags: str, **env: str) -> subprocess.Popen[str]:
    script = folder / "train.py"
    script.write_text(TRAIN)
    command = [sys.executable, "-m", "holdfast.cli.main", "run", "--name", "night"]
    command += ["--status", "off", "--save-every", "20000", *flags, "--"]
    command += [sys.executable, str(script), str(steps)]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str], code: int) -> None:
    out, _ = process.communicate(timeout=150)
    assert process.returncode == code, out


def journals(store: Path) -> list[Journal]:
    return [read_journal(path) for path in sorted(store.glob("night/journal/controller-*.hfj"))]


def facts_again(journal: Journal, policy: RunPolicy) -> list[dict[str, object]]:
    answers = [answer for _, answer in replay(inputs(journal), policy)]
    return [dict(a.fact) for answer in answers for a in answer if isinstance(a, act.Record)]


@pytest.mark.real
def test_a_recorded_night_is_decided_again(store: Path, tmp_path: Path) -> None:
    """A notice stops the first supervisor; under the second a rank fails once; it is done."""
    first = start(tmp_path, FAR, "--ranks", "2")
    assert first.stdout is not None
    for line in first.stdout:
        if "did 3000" in line:
            break
    first.send_signal(signal.SIGTERM)
    finish(first, 75)
    finish(start(tmp_path, 60_000, "--ranks", "2", CRASH_ONCE=str(tmp_path / "crashed")), 0)

    stopped, done = journals(store)
    for journal in (stopped, done):
        night = recorded(journal)
        policy = night.policy
        assert (policy.ranks, policy.save) == (2, saves.EverySteps(20_000))
        assert difference(night) is None
        assert decided(journal) == facts_again(journal, policy)
        assert journal.values.dropped == 0
    kinds = [
        [fact["fact"] for fact in decided(journal) if fact["fact"] != "saving"]  # as measured
        for journal in (stopped, done)
    ]
    begins, ends = ["attempt_start", "capacity"], ["attempt_end", "run_end"]
    assert kinds == [
        [*begins, "notice", *ends],
        # Each back-off is begun, and over; that after the end is until somebody trains it further.
        [*begins, "fault", "attempt_end", "wait", "wait", *begins, *ends, "wait"],
    ]
    told = [event.news for event in inputs(done) if isinstance(event, ev.Heard)]
    assert any(isinstance(item, news.Progress) for item in told)
    actions = [action for _, answer in replay(inputs(done), policy) for action in answer]
    begun = next(action.resume.step for action in actions if isinstance(action, act.Launch))
    commits = [a.what.step for a in actions if isinstance(a, act.CarryOut) and _is_commit(a)]
    # A whole set that lacks its manifest alone is completed before a choice.
    commits += [a.step for a in actions if isinstance(a, act.CommitFlushed | act.Flush)]
    sets = {int(path.parent.name[5:]) for path in store.glob("night/ckpt/*/manifest.json")}
    assert sets <= {begun, *commits}


@pytest.mark.real
def test_a_hang_is_judged_again(store: Path, tmp_path: Path) -> None:
    """What was found of the ranks is in the journal: nobody looks at them again."""
    finish(start(tmp_path, 9000, "--hang", "2", HANG_ONCE=str(tmp_path / "hung")), 0)
    (journal,) = journals(store)
    patient = hang.HangPolicy(step_ns=2 * hang.SECOND_NS)
    policy = RunPolicy(ranks=1, save=saves.EverySteps(20_000), hang=patient, chips=1)
    assert decided(journal) == facts_again(journal, policy)
    of_hangs = [fact for fact in decided(journal) if fact["fact"] in ("fault", "attempt_end")]
    assert [fact["fact"] for fact in of_hangs] == ["fault", "attempt_end", "attempt_end"]
    assert [fact["cause"] for fact in of_hangs] == ["hang", "hang", "done"]
    assert of_hangs[0]["detected_ns"] - of_hangs[0]["at_ns"] >= patient.step_ns
    fed = [type(event) for event in inputs(journal)]
    assert ev.Examined in fed
    assert ev.StacksCollected in fed


@pytest.mark.real
def test_another_policy_would_have_decided_otherwise(store: Path, tmp_path: Path) -> None:
    """So the comparison can fail: with this one the run would have ended at the first failure.

    Without a memory tier: the end would wait for flushes that this night knows nothing of.
    """
    finish(start(tmp_path, 5000, "--memory", "off", CRASH_ONCE=str(tmp_path / "crashed")), 0)
    (journal,) = journals(store)
    night = recorded(journal)
    assert night.decided is not None
    assert decided(journal) == facts_again(journal, night.policy)
    assert difference(night) is None
    strict = RunPolicy(ranks=1, restart=restart.HopelessCauses((ExitCause.USER_ERROR,)))
    found = difference(replace(night, policy=strict))
    assert found is not None
    assert isinstance(found.after, ev.Opened | ev.Launched | ev.BuffersReady | ev.Heard)
    again = replay(inputs(journal), strict)
    answers = itertools.chain.from_iterable(answer for _, answer in again)
    end = next(action for action in answers if isinstance(action, act.Finish))
    assert end.exit_code == 1
    assert end.words.startswith(f"RuntimeError at {tmp_path}/train.py:14: once; ")
    with pytest.raises(JournalError, match="Launched in state over"):
        list(again)


@pytest.mark.real
def test_a_script_without_a_supervisor_is_decided_again(store: Path, tmp_path: Path) -> None:
    """It is saved and stopped; the next start goes on from there, and fails."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    env = {**os.environ, "HOLDFAST_NAME": "night", "HOLDFAST_SAVE_EVERY_STEPS": "20000"}

    def bare(steps: int, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(script), str(steps)],
            cwd=tmp_path,
            env={**env, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    first = bare(FAR)
    assert first.stdout is not None
    for line in first.stdout:
        if "did 3000" in line:
            break
    first.send_signal(signal.SIGTERM)
    finish(first, 75)
    finish(bare(FAR, CRASH_ONCE=str(tmp_path / "crashed")), 1)

    stopped, failed = journals(store)
    for journal in (stopped, failed):
        night = recorded(journal)
        assert not night.policy.is_supervised
        assert difference(night) is None
        assert night.decided is not None
        assert decided(journal) == facts_again(journal, night.policy)
        assert journal.values.dropped == 0
    kinds = [
        [fact["fact"] for fact in decided(journal) if fact["fact"] != "saving"]
        for journal in (stopped, failed)
    ]
    begins, ends = ["attempt_start", "capacity"], ["attempt_end", "run_end"]
    assert kinds == [[*begins, "notice", *ends], [*begins, "fault", *ends]]
    command = [sys.executable, "-m", "holdfast.cli.main", "replay", "night"]
    told = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert told.returncode == 0, told
    assert told.stdout.count("the same decisions") == 2


def _is_commit(action: act.CarryOut) -> bool:
    return isinstance(action.what, news.Commit)


heard = st.builds(
    lambda at_ns, attempt, rank, step: ev.Heard(at_ns, attempt, news.Progress(at_ns, rank, step)),
    st.integers(1, 2**62),
    st.integers(0, 2**30),
    st.integers(0, 2**20),
    st.integers(0, 2**40 - 1),
)


@given(events=st.lists(st.one_of(heard, st.from_type(ev.Event)), max_size=20))
def test_every_input_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, events: list[ev.Event]
) -> None:
    events = [e for e in events if not _strange_progress(e)]
    path = tmp_path_factory.mktemp("journal") / "controller-000001.hfj"
    identity = Identity("night", 1, "abc", 0, "host", CONTROLLER_RANK, "boot")
    journal = ControllerJournal(JournalWriter.create(path, identity))
    for event in events:
        journal.event(event)
        journal.fact({"fact": "notice", "at_ns": 5, "deadline_ns": None, "source": "x"})
    journal.close()
    journal = read_journal(path)
    assert list(inputs(journal)) == events
    assert len(decided(journal)) == len(events)


def _strange_progress(event: ev.Event) -> bool:
    """Progress with two times, or numbers that no rank has: the agent makes none."""
    if not (isinstance(event, ev.Heard) and isinstance(event.news, news.Progress)):
        return False
    numbers = (event.at_ns, event.attempt, event.news.rank, event.news.step)
    return event.at_ns != event.news.at_ns or min(numbers) < 0 or max(numbers) >= 2**62
