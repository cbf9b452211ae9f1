"""Who wants the run to stop, by when, and what the run says and ends with when it has.

The earliest deadline counts, and a repeated request (Slurm sends two) cuts nothing short. A
deadline that was announced may be moved later, or taken back; one that somebody asked for stands.
Once a person has asked, first or later, the stop is theirs: they start the run again.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import records
from holdfast.core.run.state import Timer
from holdfast.core.value import value
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN


@value
class StopIntent:
    """Somebody wants the run to stop; the earliest deadline counts."""

    source: str
    deadline_ns: int | None
    notice: bool


@dataclass(slots=True)
class Stopping:
    """The stop of one run. `intent` None: nobody wants it; `now`: without saving anything more."""

    _leave_limit_ns: int
    _margin_ns: int
    intent: StopIntent | None = None
    now: ev.StopNowAsked | None = None
    is_by_person: bool = False  # who starts it again when they like
    _asked_ns: int | None = None  # the earliest deadline that somebody asked for
    _announced_ns: int | None = None  # and the earliest that is announced
    _has_noticed: bool = False
    _is_interrupted: bool = False

    def interrupted(self, event: ev.Interrupted) -> ev.StopAsked | ev.StopNowAsked:
        """What a person asks for by Ctrl-C; who presses it again does not want to wait."""
        if self._is_interrupted:
            return ev.StopNowAsked(event.at_ns, f"second {event.source}")
        self._is_interrupted = True
        return ev.StopAsked(event.at_ns, event.source, None, notice=False)

    def announced(self) -> None:
        """What the run may stop for is on record already."""
        self._has_noticed = True

    def note(
        self, event: ev.StopAsked, how: str, *, is_timed: bool, is_announced: bool = False
    ) -> list[act.Action]:
        """Remember a request; or what is announced, which may change.

        `how` the ranks stop; empty: none are there. `is_timed`: there is something to end then.
        """
        if is_announced:
            self._announced_ns = _earlier(self._announced_ns, event.deadline_ns)
        else:
            self._asked_ns = _earlier(self._asked_ns, event.deadline_ns)
        answer: list[act.Action] = []
        if event.notice and not self._has_noticed:
            self._has_noticed = True
            answer.append(records.notice(event))
        before, is_persons_first = self.intent, self.heard_person(event)
        if before is None:
            self.intent = StopIntent(event.source, event.deadline_ns, event.notice)
            what = f"{how}, then stopping" if how else "stopping"
            answer.append(act.Say("warning", f"{event.source}: {what}"))
        else:
            if is_persons_first:
                answer.append(act.Say("info", f"{event.source}: stopping already"))
            if _earlier(before.deadline_ns, event.deadline_ns) == before.deadline_ns:
                return answer
            self.intent = StopIntent(before.source, event.deadline_ns, before.notice)
        if event.deadline_ns is not None and is_timed:
            answer.append(act.SetTimer(Timer.DEADLINE, event.deadline_ns))
        return answer

    def heard_person(self, event: ev.StopAsked | ev.StopNowAsked) -> bool:
        """A request for a stop; whether it is the first of a person."""
        if isinstance(event, ev.StopAsked):
            is_persons = not event.notice
        else:
            is_persons = event.by_person and event.exit_code == EXIT_SAVED_START_ME_AGAIN
        is_first = is_persons and not self.is_by_person
        self.is_by_person = self.is_by_person or is_persons
        return is_first

    def announce(self, deadline_ns: int | None) -> bool:
        """The earliest deadline that is announced is another one; whether there is more time now.

        One that is sooner is taken in by `note`.
        """
        before = self.intent
        if before is None or before.deadline_ns is None:
            return False
        now_ns = _earlier(self._asked_ns, deadline_ns)
        if now_ns is not None and now_ns <= before.deadline_ns:
            return False
        self._announced_ns = deadline_ns
        self.intent = StopIntent(before.source, now_ns, before.notice)
        return True

    def over_by_ns(self, deadline_ns: int | None, *, is_announced: bool) -> int | None:
        """When a run that is over already must be gone, now that this is asked or announced."""
        if is_announced:
            self._announced_ns = deadline_ns
        else:
            self._asked_ns = _earlier(self._asked_ns, deadline_ns)
        return _earlier(self._asked_ns, self._announced_ns)

    def note_now(self, event: ev.StopNowAsked) -> act.Action:
        """Remember that nothing is to be waited for."""
        self.heard_person(event)
        if self.intent is None:
            self.intent = StopIntent(event.source, None, notice=False)
        self.now = self.now or event
        return act.Say("warning", f"{event.source}: stopping now")

    def note_left(self, rank: int) -> StopIntent:
        """A rank has stopped in peace without being asked: the others follow it."""
        self.intent = StopIntent(f"rank {rank} has stopped", None, notice=False)
        return self.intent

    @property
    def deadline_ns(self) -> int | None:
        """When the run must be gone; None: nobody said so."""
        return self.intent.deadline_ns if self.intent else None

    def leave_by_ns(self, at_ns: int) -> int | None:
        """When leaving must begin: the deadline less a margin, of which a short one gets less."""
        if self.deadline_ns is None:
            return None
        return self.deadline_ns - min(self._margin_ns, max(0, self.deadline_ns - at_ns) // 5)

    def leave_limit_ns(self, at_ns: int) -> int:
        """When ranks that were told to leave must be gone."""
        limit_ns = at_ns + self._leave_limit_ns
        return limit_ns if self.deadline_ns is None else min(limit_ns, max(at_ns, self.deadline_ns))

    # --- what the run ends with -------------------------------------------------------------

    @property
    def exit_code(self) -> int:
        """The exit code of the supervisor."""
        return self.now.exit_code if self.now else EXIT_SAVED_START_ME_AGAIN

    @property
    def where_nothing_ran(self) -> tuple[int, str]:
        """Exit code and last words where no attempt was there."""
        words = "nothing was running"
        return self.exit_code, f"{self.intent.source}: {words}" if self.intent else words

    def last_words(self, saved: str, fault: str | None) -> str:
        """Why, unless it is what was asked for, and what is saved; `fault`: what broke instead."""
        why = fault or (self.now.source if self.now else "")
        return f"{why}; stopped; {saved}" if why else f"stopped; {saved}"


def _earlier(one_ns: int | None, other_ns: int | None) -> int | None:
    return min((ns for ns in (one_ns, other_ns) if ns is not None), default=None)
