"""A rehearsal from its start to its story."""

from __future__ import annotations

import inspect
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import EXIT_DONE, ConfigurationError, HoldfastError
from holdfast.journal.attempts import attempts
from holdfast.journal.clocks import now_ns
from holdfast.journal.live import live_journals
from holdfast.journal.recorded import load_run
from holdfast.rehearse.script import Moment, Script, ScriptLine
from holdfast.rehearse.stage import LEAVE_LIMIT_S, Stage
from holdfast.rehearse.story import RehearsalStory, Rehearsed
from holdfast.rehearse.tale import Tale
from holdfast.testing.scripted import EmulatorError, ScriptedEmulator

LOOK_S, REST_FACTOR = 0.2, 10
LEAD_S = 60.0
HEAR_LIMIT_S = 75.0  # a source that fails is asked again within a minute
SIGNALS = {Rehearsed.KILL: signal.SIGKILL, Rehearsed.HANG: signal.SIGSTOP}
Say = Callable[[str], None]


class RehearsalPlan(NamedTuple):
    """What is done, when, to which rank; `go_on_steps`: new steps that are waited for afterwards.

    `lead_s`: how long ahead `{at}` and `{in}` are in what the emulator is told; None: `LEAD_S`.
    `memory`: the folder of the memory tier, which a new machine would not have.
    """

    what: Rehearsed
    after: Moment
    script: Script
    lead_s: float | None
    rank: int
    go_on_steps: int
    limit_s: float
    memory: Path


def check(script: Script, emulator: ScriptedEmulator) -> None:
    """Raises ConfigurationError for a line that the emulator cannot do; nothing is done."""
    for words in script.all_words():
        verb = getattr(emulator, f"verb_{words[0].replace('-', '_')}", None)
        try:
            if verb is None:
                emulator.do(*words)  # which names those that it knows
            else:
                inspect.signature(verb).bind(*words[1:])
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"the script says {' '.join(words)!r}: {error}") from None


def _do(emulator: ScriptedEmulator, words: Sequence[str]) -> None:
    """Raises ConfigurationError for what only doing it shows: a fault that there is not."""
    try:
        emulator.do(*words)
    except EmulatorError as error:
        raise ConfigurationError(f"the script says {error}") from None


def perform(
    plan: RehearsalPlan, stage: Stage, emulator: ScriptedEmulator | None, say: Say
) -> RehearsalStory:
    """Start the run, do it, see it leave and come back; nothing is left running.

    Raises ConfigurationError for what the emulator cannot do; HoldfastError where the run's store
    fails.
    """
    if emulator is not None:
        check(plan.script, emulator)
        for words in plan.script.start:
            _do(emulator, words)
    performance = _Performance(plan, stage, emulator, say)
    try:
        stage.start()
        performance.first_act()
        return performance.second_act()
    finally:
        stage.close()


class _Performance:
    def __init__(
        self, plan: RehearsalPlan, stage: Stage, emulator: ScriptedEmulator | None, say: Say
    ) -> None:
        self.plan, self.stage, self.emulator, self.say = plan, stage, emulator, say
        self.tale = Tale()
        self.struck_attempt = 0
        self.story = RehearsalStory(plan.what, None, self.tale)
        self.next_look_s = 0.0
        self.give_up_s = time.monotonic() + plan.limit_s

    def first_act(self) -> None:
        """Until the run has left, or has gone on by itself."""
        ended = self._reached_the_moment()
        if ended is not None:
            self.story = replace(self.story, exit_code=ended)
            return
        at_step, self.struck_attempt = self.tale.step, self.tale.attempt
        if self.plan.what.is_announced:
            self.say(f"{self.plan.what} is announced now, at step {at_step}")
            done_ns = self._announce_and_watch()
        else:
            self.say(f"{self.plan.what} of rank {self.plan.rank} now, at step {at_step}")
            done_ns = self.stage.strike(self.plan.rank, SIGNALS[self.plan.what])
            if done_ns is None:
                raise ConfigurationError(
                    f"--rank {self.plan.rank}: the run has no such rank that Holdfast could find"
                )
            self._wait_for_recovery(done_ns)
        self.story = replace(self.story, done_ns=done_ns, tale=self.tale, at_step=at_step)

    def second_act(self) -> RehearsalStory:
        """Start it again, if it has left; see it make steps, and tell the story."""
        has_left = self.story.is_taken or self.story.exit_code not in (None, EXIT_DONE)
        if self.story.done_ns is not None and has_left:
            self._forget_memory()
            self.say("Starting it again, as on a new machine")
            self.stage.start("--notice", "off")
            self._goes_on()
        if self.stage.ended(0) is None:
            self.say("That is enough: stopping it")
        self.stage.stop()
        return self._with_the_books()

    def _forget_memory(self) -> None:
        """The next machine has the store, and nothing that was in this one's memory.

        Ranks of a supervisor that was killed end a moment after it, and may write meanwhile.
        """
        memory, give_up_s = self.plan.memory, time.monotonic() + LEAVE_LIMIT_S
        while memory.exists():
            shutil.rmtree(memory, ignore_errors=True)
            if time.monotonic() > give_up_s:
                raise ConfigurationError(f"the memory folder {memory} cannot be emptied")
            if memory.exists():
                time.sleep(LOOK_S)
        memory.mkdir(mode=0o700)

    # --- looking on -------------------------------------------------------------------------

    def _look(self, since_ns: int | None) -> int | None:
        """What is known now; the supervisor's exit code, if it has ended."""
        if time.monotonic() > self.give_up_s:
            limit = f"{self.plan.limit_s:g} s"
            why = "give it more: --limit" if self.tale.step else "it has called no run.done yet"
            raise ConfigurationError(f"the rehearsal was not over after {limit}; {why}")
        code = self.stage.ended(LOOK_S)
        began_s = time.monotonic()
        if code is None and began_s < self.next_look_s:
            return None
        self.tale = self.stage.tale(since_ns)
        # A journal is read from its beginning each time: of a long one, that much less often.
        self.next_look_s = time.monotonic() + REST_FACTOR * (time.monotonic() - began_s)
        return code

    def _reached_the_moment(self) -> int | None:
        """None: it has come; else what the supervisor has ended with before it."""
        first_s: float | None = None
        after = self.plan.after
        while (code := self._look(None)) is None:
            if self.tale.step >= after.steps and first_s is None:
                first_s = time.monotonic()
            if first_s is not None and time.monotonic() >= first_s + after.seconds:
                return None
        return code

    def _announce_and_watch(self) -> int | None:
        """Tell the emulator what the script says, until the run has left or goes on for good."""
        began_s, done_ns = time.monotonic(), None
        rest = list(self.plan.script.lines)
        deaf_s = began_s + rest[-1].at_s + HEAR_LIMIT_S
        end_step: int | None = None
        while True:
            while rest and time.monotonic() >= began_s + rest[0].at_s:
                done_ns = self._do_line(rest.pop(0), done_ns)
            code = self._look(done_ns)
            if code is not None:
                self.story = replace(self.story, exit_code=code)
                return done_ns
            if self.tale.deadline_ns is not None and now_ns() > self.tale.deadline_ns:
                self.say("The deadline has come: the host is taken")
                self.stage.kill()
                self.story = replace(self.story, is_taken=True)
                return done_ns
            if self.tale.heard_ns is None and time.monotonic() > deaf_s:
                return done_ns
            is_quiet = not rest and self.tale.heard_ns is not None and not self.tale.deadline_ns
            end_step = end_step or self.tale.step + self.plan.go_on_steps if is_quiet else None
            if end_step is not None and self.tale.step >= end_step:
                return done_ns

    def _do_line(self, line: ScriptLine, done_ns: int | None) -> int | None:
        at_ns = now_ns()
        if self.emulator is not None:
            lead_s = LEAD_S if self.plan.lead_s is None else self.plan.lead_s
            at = (datetime.now(UTC) + timedelta(seconds=lead_s)).isoformat(timespec="seconds")
            words = [one.replace("{at}", at).replace("{in}", f"{lead_s:g}") for one in line.words]
            _do(self.emulator, words)
        return done_ns if done_ns is not None or line.is_fault else at_ns

    def _wait_for_recovery(self, done_ns: int) -> None:
        wanted: int | None = None
        while (code := self._look(done_ns)) is None:
            if self.tale.attempt == self.struck_attempt:
                continue
            resumed = self._resumed_step() or 0
            wanted = resumed + self.plan.go_on_steps if wanted is None else wanted
            if self.tale.step >= wanted:
                return
        self.say(f"The run has ended with exit code {code}")

    def _goes_on(self) -> None:
        resumed: int | None = None
        while self._look(None) is None:
            resumed = self._resumed_step() if resumed is None else resumed
            if resumed is not None and self.tale.step >= resumed + self.plan.go_on_steps:
                return

    def _resumed_step(self) -> int | None:
        """What the attempt after the one that it was done to began after; None: there is none."""
        later = [
            one for one in attempts(self.stage.folder).records if one.attempt > self.struck_attempt
        ]
        return later[0].resume_step if later else None

    def _with_the_books(self) -> RehearsalStory:
        """The story, with what the ledger says of lost and of new steps."""
        if self.story.done_ns is None:
            return self.story
        try:
            folder = self.stage.folder
            account = load_run(folder.path, live_journals(folder)).account()
        except HoldfastError:
            return self.story
        resumed = self._resumed_step()
        lost = [one.lost_steps for one in account.disruptions if one.attempt == self.struck_attempt]
        if resumed is None:
            return self.story
        known = replace(
            self.story,
            resumed_step=resumed,
            new_steps=max(0, account.steps_kept - resumed),
            lost_steps=lost[0] if lost else None,
        )
        if lost and not self.plan.what.is_announced:  # how far it was then, better than at a look
            return replace(known, at_step=resumed + lost[0])
        return known
