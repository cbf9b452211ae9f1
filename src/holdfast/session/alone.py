"""A session without a supervisor: it holds the lease, and a thread is the run's controller."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.config import session_settings
from holdfast.controller.opening import opened
from holdfast.controller.storekeeper import AttemptFacts
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.events import Resume
from holdfast.core.run.machine import RunPolicy
from holdfast.errors import ConfigurationError, DeclaredFailure
from holdfast.journal.attempts import next_number
from holdfast.journal.clocks import CLOCK_ID, now_ns
from holdfast.journal.lease import acquire
from holdfast.journal.names import new_id
from holdfast.journal.scratch import make_scratch
from holdfast.journal.store import RunFolder
from holdfast.journal.writer import JournalWriter
from holdfast.profiles.asked import ask_rank
from holdfast.session import signals
from holdfast.session.attachment import GAVE_UP, Attachment, how_it_ended, identity
from holdfast.session.channel import find_world
from holdfast.session.controlling import CLOSE_LIMIT_S, BareRun, Controlling
from holdfast.session.own_host import OwnHost
from holdfast.session.own_link import OwnLink
from holdfast.session.say import say
from holdfast.snapshot.keep import Keep


class Alone(Attachment):
    """The only process of its run."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        policy: RunPolicy,
        keep: Keep,
        grace_s: float,
    ) -> None:
        lease = acquire(folder, on_wait=say)
        attempt, incarnation = next_number(folder), new_id()
        self._scratch, live = make_scratch(folder, 0, incarnation)
        who = identity(folder, attempt, 0, incarnation, os.uname().nodename)
        writer = JournalWriter.create(live, who)
        super().__init__(folder, writer, attempt=attempt, world_size=policy.ranks, keep=keep)
        self._grace_ns = int(grace_s * 1e9)
        self._stop_asked = False  # of this rank; the controller may not have heard of it yet
        self._has_sigterm = False
        self._is_opened = False
        self._refused = 0  # the number of the last proposal that this rank could not read
        facts = AttemptFacts(policy.chips, incarnation, _command_line())
        flush, declared = writer.flush_for_owner, session_settings().settings.declared()
        run = BareRun(folder, lease, policy, keep, facts, live, attempt, flush, declared)
        host = OwnHost(writer.page, _process_started_ns(), lambda: self._controlling.killed())
        host.profiled = self._ask_profile
        self._controlling = Controlling(run, self._link(host, run))
        self._controlling.start()

    def _ask_profile(self, asked: act.Profile) -> None:
        """Every rank hears of it, and one is meant."""
        live = self.writer.path
        if asked.rank == self.rank and live is not None:
            ask_rank(self.folder, live, asked, say)

    def _link(self, host: OwnHost, run: BareRun) -> OwnLink:
        """To the only host."""
        del run
        return OwnLink(host)

    # --- what it starts from ----------------------------------------------------------------

    def resume(self) -> Resume:
        """The newest set that can be trusted; first what earlier processes left is taken over."""
        self._check_world()
        if not self._is_opened:
            from holdfast.journal.adopt import adopt  # it pulls in numpy

            for sentence in adopt(self.folder, self._scratch.parent, mine=self._scratch):
                say(sentence)
            begins = opened(self.folder)
            self._is_opened = True
            self._controlling.tell(lambda _: begins)
        proposals = self._controlling.proposals
        self._wait(lambda: proposals.newest.number > self._refused)
        return proposals.newest.resume

    def _check_world(self) -> None:
        world = find_world()
        if world.size != self.world_size:
            raise ConfigurationError(
                f"this is rank {world.rank} of {world.size} by {world.source}, and holdfast.start "
                f"was called when it was one of {self.world_size}: set RANK and WORLD_SIZE for the "
                "script, or call holdfast.start after the framework is initialised"
            )

    def reject(self, resume: Resume, words: str) -> None:
        """The controller chooses another one."""
        if resume.set_name is not None:
            self._refused = self._controlling.proposals.newest.number
            self._controlling.answer(self._refused, words)

    def resumed(self, resume: Resume) -> bool:
        """The attempt's place in the lineage is known now: wait until it is on record."""
        del resume
        proposals = self._controlling.proposals
        number = proposals.newest.number
        self._controlling.answer(number, None)
        self._wait(lambda: proposals.has_begun or proposals.newest.number > number)
        return proposals.has_begun

    def _wait(self, until: Callable[[], bool]) -> None:
        """For the controller; raises what is wrong if no attempt can begin."""
        controlling = self._controlling
        while True:
            controlling.has_turned.clear()
            if until():
                return
            if controlling.refusal is not None:
                raise controlling.refusal
            controlling.has_turned.wait()

    def ready(self, step: int) -> None:
        """The controller has been looking on since the attempt began."""

    # --- the loop ---------------------------------------------------------------------------

    def stopping(self) -> bool:
        """Whether somebody has asked for a stop."""
        return self._stop_asked or self._controlling.is_stopping

    def hurry(self) -> None:
        """Have the controller look at once."""
        self._controlling.hurry()

    def watch_sigterm(self) -> None:
        """Beside the handler that was there."""
        signals.install_sigterm(self.on_sigterm, chain=True)

    def on_sigterm(self) -> None:
        """A notice: there is as much time as the grace period, from the first one on."""
        if not self._has_sigterm:
            self._has_sigterm = self._stop_asked = True
            by_ns = now_ns() + self._grace_ns
            self._controlling.tell(lambda at_ns: ev.StopAsked(at_ns, "SIGTERM", by_ns, notice=True))

    def on_sigint(self) -> None:
        """Ctrl-C: save and stop; take your time. The second one is the script's."""
        self._stop_asked = True
        self._controlling.tell(lambda at_ns: ev.StopAsked(at_ns, "Ctrl-C", None, notice=False))

    # --- the end ----------------------------------------------------------------------------

    def give_up(
        self,
        failure: DeclaredFailure,
        to: int | str | None,
        skip_batches: int,
        said: str = GAVE_UP,
    ) -> None:
        """As any rank; before the attempt has begun there is nothing to go back from."""
        if not self._controlling.proposals.has_begun:
            to, skip_batches = None, 0
        super().give_up(failure, to, skip_batches, said)

    def close(self) -> None:
        """Say how it ended, bring the journal home, give the run back."""
        self._controlling.close(how_it_ended(self))
        self.writer.flush()
        self._controlling.give_back(CLOSE_LIMIT_S)
        super().close()


def _process_started_ns() -> int:
    """When this process began (proc(5), field 22): its imports are part of the attempt."""
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.clock_gettime_ns(CLOCK_ID)


def _command_line() -> tuple[str, ...]:
    try:
        return tuple(
            word.decode(errors="replace")
            for word in Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        )
    except OSError:
        return ()
