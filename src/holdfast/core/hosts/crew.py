"""The agents of a run on the places that an engine gives: who is started, told and ended. Pure.

    crew = Crew()
    orders = crew.look(now_ns, places, run)     each with its reason
    crew.release()                              from then on all are told to go

A *place* is the engine's name for one host of the run, and moves to another node when its node is
gone. A *link* is the engine's process beside an agent (an actor): it starts the agent, and may die
and be opened anew without harm to it. Agents are fenced by the run, so a start too many does no
harm; what is decided here is only what is worth trying.

A host that the run still hears is not started again elsewhere: its raylet may be gone, and itself
train on. That is put off for `PUT_OFF_NS` at most, since what the store says may be old.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.durations import SECOND_NS
from holdfast.errors import EXIT_CONFIGURATION, EXIT_DONE, EXIT_SAVED_START_ME_AGAIN

PUT_OFF_NS = 60 * SECOND_NS
LASTED_NS = 60 * SECOND_NS  # a life longer than that is no failure to start
LONGEST_PAUSE_NS = 60 * SECOND_NS
MOST_SHORT_LIVES = 5  # in a row, of all agents: then it is given up
RELEASE_MARGIN_NS = 15 * SECOND_NS
KILLED_NS = 5 * SECOND_NS


class ActorState(StrEnum):
    """Of the engine's process beside an agent. `OPENING`: asked for, and has not answered yet."""

    NONE = "none"
    OPENING = "opening"
    OPEN = "open"


class AgentState(StrEnum):
    """Of an agent, as its link tells."""

    NONE = "none"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class CrewPlace:
    """One host's place with the engine, at one look.

    `node`: where it is; "": nowhere, since it waits for a node or its node is gone. `drains_ms`:
    when the node is taken, as a unix time; 0: nobody knows; None: it is not drained. `agent` and
    `code` count while the link is open; `words`: the last that an agent said, or why a link ended.
    """

    index: int
    node: str = ""
    drains_ms: int | None = None
    link: ActorState = ActorState.NONE
    agent: AgentState = AgentState.NONE
    code: int = 0
    words: str = ""


@dataclass(frozen=True, slots=True)
class CrewRun:
    """How the run stands by its store. `term`: of the newest controller; 0: there was none.

    `code` and `words`: how that one has ended the run; None: it has not. `by_person`: somebody has
    asked for that end. `there`: hosts that the run hears; `going`: those that are announced to go,
    by their own sources.
    """

    term: int = 0
    code: int | None = None
    words: str = ""
    by_person: bool = False
    there: frozenset[int] = frozenset()
    going: frozenset[int] = frozenset()


class OpenLink(NamedTuple):
    """Have a process of the engine at that place."""

    host: int
    why: str


class StartAgent(NamedTuple):
    """Have the agent started there, unless one lives."""

    host: int
    why: str


class TellNotice(NamedTuple):
    """That agent's host will be taken; `drains_ms` None: it will not."""

    host: int
    drains_ms: int | None
    why: str


class DrainNode(NamedTuple):
    """The engine is to give that node to nobody else."""

    node: str
    why: str


class EndAgents(NamedTuple):
    """All agents are to save and go, or (`now`) to go."""

    now: bool
    why: str


class StopRun(NamedTuple):
    """The run is to be stopped through its store: some of its hosts have no link."""

    why: str


class GiveBack(NamedTuple):
    """It is over: all places are given back."""

    code: int
    why: str


Order = OpenLink | StartAgent | TellNotice | DrainNode | EndAgents | StopRun | GiveBack


@dataclass(slots=True)
class _Known:
    """Of one place, from look to look."""

    starts: int = 0
    started_ns: int = 0
    short_lives: int = 0
    not_before_ns: int = 0
    links: int = 0  # that were asked for, and none has answered yet
    link_not_before_ns: int = 0
    empty_since_ns: int | None = None
    has_ended: bool = False
    told: tuple[str, int] | None = None  # of which node's end, and when


@dataclass(slots=True)
class Crew:
    """What is remembered of a run's places between looks. `grace_ns`: of those told to go.

    `since_term`: how a controller up to that one has ended the run is an older story.
    """

    grace_ns: int = 30 * SECOND_NS
    since_term: int = 0
    is_released: bool = False
    is_over: bool = False
    _of: dict[int, _Known] = field(default_factory=dict)
    _drained: set[str] = field(default_factory=set)
    _asked_ns: int | None = None
    _killed_ns: int | None = None
    _is_stop_asked: bool = False

    def release(self) -> None:
        """All are to save and go from now on."""
        self.is_released = True

    def look(self, now_ns: int, places: Sequence[CrewPlace], run: CrewRun) -> list[Order]:
        """What is to be done now."""
        if self.is_over:
            return []
        for place in places:
            self._note(now_ns, place)
        over = self._over(now_ns, places, run)
        if over is not None:
            self.is_over = True
            return [over]
        orders: list[Order] = [*self._links(now_ns, places)]
        if self.is_released:
            return [*orders, *self._end(now_ns, places, run)]
        orders += self._starts(now_ns, places, run)
        return [*orders, *self._warnings(places, run)]

    def state(self, place: CrewPlace) -> str:
        """How it stands, for people."""
        if not place.node:
            return "its node is gone" if self._known(place).starts else "no node yet"
        if _is_cut_off(place):
            return "drained: no actor begins there any more"
        if place.link is not ActorState.OPEN:
            return (
                f"its actor is started again: {place.words}" if place.words else "its actor starts"
            )
        if place.agent is AgentState.ENDED:
            return f"its agent has ended with {place.code}"
        return "drained" if _drains(place) else ""

    # --- what is remembered -------------------------------------------------------------------

    def _known(self, place: CrewPlace) -> _Known:
        return self._of.setdefault(place.index, _Known())

    def _note(self, now_ns: int, place: CrewPlace) -> None:
        known = self._known(place)
        if place.link is not ActorState.OPEN:
            return
        known.links = 0
        if place.agent is AgentState.RUNNING:
            known.starts = max(1, known.starts)  # also what an earlier foreman has started
            known.has_ended, known.empty_since_ns = False, None
            if now_ns - known.started_ns >= LASTED_NS:
                known.short_lives = 0
        elif place.agent is AgentState.ENDED and not known.has_ended:
            known.has_ended = True
            known.short_lives += 1
            wait_ns = min(SECOND_NS << known.short_lives, LONGEST_PAUSE_NS)
            if place.code == EXIT_CONFIGURATION:
                wait_ns = LONGEST_PAUSE_NS  # another node may be another matter
            known.not_before_ns = now_ns + wait_ns
        elif place.agent is AgentState.NONE and known.empty_since_ns is None:
            known.empty_since_ns = now_ns

    # --- what is decided ----------------------------------------------------------------------

    def _over(self, now_ns: int, places: Sequence[CrewPlace], run: CrewRun) -> GiveBack | None:
        opened = [one for one in places if one.link is ActorState.OPEN]
        unseen = [one for one in places if one.node and one.link is not ActorState.OPEN]
        has_words = run.term > self.since_term and run.code is not None
        is_known = not unseen or (has_words and all(map(_is_cut_off, unseen)))
        if not is_known or any(one.agent is AgentState.RUNNING for one in opened):
            return self._over_by_force(now_ns)
        if self.is_released:
            return GiveBack(EXIT_SAVED_START_ME_AGAIN, "released")
        ended = [one for one in opened if one.agent is AgentState.ENDED]
        if has_words and (ended or unseen):
            return self._over_by_words(run)
        if any(one.code == EXIT_DONE for one in ended):  # no agent says so of a run that goes on
            return GiveBack(EXIT_DONE, "done")
        if ended and len(ended) == len(places) and all(map(self._is_hopeless, ended)):
            worst = ended[0]
            return GiveBack(worst.code, f"no agent could stay; host {worst.index}: {worst.words}")
        return None

    def _over_by_words(self, run: CrewRun) -> GiveBack | None:
        """The run has ended, by its own words, and all agents that can be seen have."""
        if run.code is None:
            return None
        if run.code != EXIT_SAVED_START_ME_AGAIN or run.by_person:
            return GiveBack(run.code, run.words)
        self.since_term = run.term  # saved for a notice: it goes on when its hosts are there
        for known in self._of.values():
            known.not_before_ns, known.short_lives = 0, 0
        return None

    def _over_by_force(self, now_ns: int) -> GiveBack | None:
        if self._killed_ns is None or now_ns - self._killed_ns < KILLED_NS:
            return None
        return GiveBack(EXIT_SAVED_START_ME_AGAIN, "released; not all agents answered")

    def _is_hopeless(self, place: CrewPlace) -> bool:
        most = 1 if place.code == EXIT_CONFIGURATION else MOST_SHORT_LIVES
        return self._known(place).short_lives >= most

    def _links(self, now_ns: int, places: Sequence[CrewPlace]) -> list[OpenLink]:
        found = []
        for place in places:
            known = self._known(place)
            if place.node and place.link is ActorState.NONE and now_ns >= known.link_not_before_ns:
                known.link_not_before_ns = now_ns + min(SECOND_NS << known.links, LONGEST_PAUSE_NS)
                known.links += 1
                found.append(OpenLink(place.index, "nobody is there"))
        return found

    def _starts(self, now_ns: int, places: Sequence[CrewPlace], run: CrewRun) -> list[StartAgent]:
        if run.code is not None and run.term > self.since_term:
            return []  # it is over; whether it begins again is not known yet
        found = []
        for place in places:
            may, why = self._may_start(now_ns, place, run)
            if may:
                known = self._known(place)
                known.starts += 1
                known.started_ns = now_ns
                known.has_ended, known.empty_since_ns, known.not_before_ns = False, None, 0
                found.append(StartAgent(place.index, why))
        return found

    def _may_start(self, now_ns: int, place: CrewPlace, run: CrewRun) -> tuple[bool, str]:
        known = self._known(place)
        if not place.node or place.link is not ActorState.OPEN:
            return False, "nobody is there"
        if place.agent is AgentState.RUNNING:
            return False, "it runs"
        if _drains(place) or place.node in self._drained:
            return False, "its node will be taken"
        if place.agent is AgentState.ENDED:
            is_time = now_ns >= known.not_before_ns and place.code != EXIT_DONE
            return is_time, f"its agent has ended with {place.code}"
        if not known.starts:
            return True, "it is the first"
        if place.index not in run.there:
            return True, "its agent went with its node"
        since_ns = now_ns if known.empty_since_ns is None else known.empty_since_ns
        return now_ns - since_ns >= PUT_OFF_NS, "the run hears it elsewhere"

    def _warnings(self, places: Sequence[CrewPlace], run: CrewRun) -> list[Order]:
        found: list[Order] = []
        for place in places:
            known = self._known(place)
            is_ours = place.node in self._drained
            told = None if place.drains_ms is None or is_ours else (place.node, place.drains_ms)
            has_agent = place.link is ActorState.OPEN and place.agent is AgentState.RUNNING
            if has_agent and known.told != told:
                if told is not None:
                    found.append(TellNotice(place.index, place.drains_ms, "its node is drained"))
                elif known.told is not None and known.told[0] == place.node:
                    found.append(TellNotice(place.index, None, "its node is drained no more"))
                known.told = told
            if place.index in run.going and place.node and not is_ours and not _drains(place):
                self._drained.add(place.node)
                found.append(DrainNode(place.node, f"host {place.index} is announced to go"))
        return found

    def _end(self, now_ns: int, places: Sequence[CrewPlace], run: CrewRun) -> list[Order]:
        """What is left to do for those who are to go."""
        found: list[Order] = []
        if self._asked_ns is None:
            self._asked_ns = now_ns
            found.append(EndAgents(False, "released"))
        unlinked = [
            one for one in places if one.index in run.there and (not one.node or _is_cut_off(one))
        ]
        if unlinked and not self._is_stop_asked:
            self._is_stop_asked = True
            found.append(StopRun(f"host {unlinked[0].index} has no link"))
        limit_ns = self._asked_ns + self.grace_ns + RELEASE_MARGIN_NS
        if now_ns >= limit_ns and self._killed_ns is None:
            self._killed_ns = now_ns
            found.append(EndAgents(True, "its grace is over"))
        return found


def _drains(place: CrewPlace) -> bool:
    return place.drains_ms is not None


def _is_cut_off(place: CrewPlace) -> bool:
    """It has no link, and gets none: an engine places nothing on a node that is drained."""
    return _drains(place) and place.link is not ActorState.OPEN
