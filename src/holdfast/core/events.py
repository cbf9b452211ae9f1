"""Events: past facts that the edges tell the run's machine. Every one carries its time.

The controller journals each event in the order fed, before it acts on the answer, so that a
recorded night can be replayed (`core.event_json` is the journal's form of an event).
Times are integer nanoseconds on one clock (CLOCK_BOOTTIME for the agent, virtual in simulation).

Those of hangs and of the memory tier have modules of their own, and are named here with the rest.
"""

from __future__ import annotations

from holdfast.core.exits import Exit
from holdfast.core.hang.events import Examined as Examined
from holdfast.core.hang.events import StacksCollected as StacksCollected
from holdfast.core.hang.events import Suspended as Suspended
from holdfast.core.hosts.copies import NOTHING_IN_MEMORY, InMemory
from holdfast.core.notices.board import Notice
from holdfast.core.run.rollback import Wish
from holdfast.core.save import events as of_saves
from holdfast.core.save.choose import SCRATCH as SCRATCH
from holdfast.core.save.choose import Resume as Resume
from holdfast.core.save.choose import SeenSets
from holdfast.core.save.tier_events import BuffersReady as BuffersReady
from holdfast.core.save.tier_events import Compared as Compared
from holdfast.core.save.tier_events import FlushCommitFailed as FlushCommitFailed
from holdfast.core.save.tier_events import FlushCommitted as FlushCommitted
from holdfast.core.save.tier_events import Flushed as Flushed
from holdfast.core.save.tier_events import FlushFailed as FlushFailed
from holdfast.core.save.tier_events import Flushing as Flushing
from holdfast.core.save.tier_events import NotReplicated as NotReplicated
from holdfast.core.save.tier_events import Replicated as Replicated
from holdfast.core.save.tier_events import Sealed as Sealed
from holdfast.core.save.tier_events import SealFailed as SealFailed
from holdfast.core.save.tier_events import TierEvent as TierEvent
from holdfast.core.value import value
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN

NOTICE_TIMER = "notice"  # its firing may order a save, as a request does


@value
class OwnFailure:
    """An attempt that the script itself ended (`exits.is_from_script`), and in which way."""

    attempt: int
    at_ns: int
    signature: str


@value
class RunningAttempt:
    """An attempt that an earlier controller has launched, and nobody has ended.

    `resume`: what it was started from. `ranks`: how many it has. `epoch`: under which lease.
    `hosts`: on which it runs; empty: on all of the run's.
    """

    attempt: int
    resume: Resume
    ranks: int
    epoch: int = 0
    hosts: tuple[int, ...] = ()


@value
class Opened:
    """The run is ours: the lease is held, earlier attempts are closed. `next_attempt` is free.

    `high_water` is the highest step that any attempt completed; `failures_seen` and `observed_ns`
    are what is known of this run's failure rate from before, `memory_lost` how many of them took
    the memory of their host along. `wishes` to go back that still stand. `own_failures` of late,
    oldest first, under earlier supervisors. `running`: what may run still, on other hosts.
    """

    at_ns: int
    next_attempt: int
    high_water: int = 0
    failures_seen: int = 0
    observed_ns: int = 0
    wishes: tuple[Wish, ...] = ()
    memory_lost: int = 0
    own_failures: tuple[OwnFailure, ...] = ()
    running: RunningAttempt | None = None


@value
class Placed:
    """The next attempt runs on these hosts, of an elastic run: the others are not there."""

    at_ns: int
    hosts: tuple[int, ...]


@value
class SetsSeen:
    """What checkpoints there are; whole ones were completed before. The machine chooses of them."""

    at_ns: int
    seen: SeenSets


@value
class Chosen:
    """The set was chosen by others: in what earlier versions have recorded. `words`: the reason."""

    at_ns: int
    resume: Resume
    words: str


@value
class ChoiceFailed:
    """No attempt can start now: nobody knows what there is. The store may come back (`is_away`)."""

    at_ns: int
    exit_code: int
    words: str
    is_away: bool = False


@value
class SetRefused:
    """A rank cannot read the set that was chosen, and the attempt is not on record yet.

    Where ranks that run by themselves read it before they begin.
    """

    at_ns: int
    attempt: int
    words: str


@value
class OnRecord:
    """The attempt is in the store, and its ranks are being started."""

    at_ns: int
    attempt: int


@value
class Adopted:
    """That attempt goes on under this controller, which is on record.

    `committed_step`: the newest that is durable, whole sets completed; 0: none. `order`: the newest
    word in any rank's page, and its `verdict`, if any has one; 0: none. `memory`: what lies in the
    hosts'.
    """

    at_ns: int
    attempt: int
    committed_step: int
    order: int
    verdict: int
    memory: InMemory = NOTHING_IN_MEMORY


@value
class NotAdopted:
    """Not all of that attempt is there any more; `words`: what is not."""

    at_ns: int
    attempt: int
    words: str


@value
class Waited:
    """For hosts, until `until_ns`; `kind` is hosts, queue, provision, pull or boot.

    `since_ns`: before it there was a pause; None: there was none.
    """

    kind: str
    until_ns: int
    since_ns: int | None = None


@value
class CountedChips:
    """Of an attempt's hosts those that are `here`, `of` the run's: with those of absent hosts."""

    here: int
    of: int


@value
class Launched:
    """All ranks of the attempt run. `waited`: there were no hosts for it before.

    `began_ns`: when they did, where that was heard later; None: at `at_ns`. `chips`: those that
    train from now on; None: all of the run's.
    """

    at_ns: int
    attempt: int
    waited: Waited | None = None
    began_ns: int | None = None
    chips: CountedChips | None = None


@value
class LaunchFailed:
    """A rank's command could not be started at all (it does not exist, it is not executable).

    `is_on_record`: the attempt had been created by us, so its end has to be recorded too.
    """

    at_ns: int
    attempt: int
    exit_code: int
    words: str
    is_on_record: bool = False


@value
class Joined:
    """A rank's session showed itself: it answers orders from now on."""

    at_ns: int
    attempt: int
    rank: int


@value
class StepsRecorded:
    """A rank without a session has done the steps up to this one, as its recorder tells."""

    at_ns: int
    attempt: int
    rank: int
    step: int


@value
class Heard:
    """News about saves: a rank's progress and answers, a commit's outcome (save.events)."""

    at_ns: int
    attempt: int
    news: of_saves.Event


@value
class SaveTook:
    """What the last copy cost the slowest rank."""

    at_ns: int
    attempt: int
    blocked_ns: int


@value
class RankExited:
    """A rank's process ended at `died_at_ns`; the supervisor knew it at `at_ns`."""

    at_ns: int
    attempt: int
    rank: int
    died_at_ns: int
    exit: Exit


@value
class TreeGone:
    """No process of the attempt is left."""

    at_ns: int
    attempt: int


@value
class HostLost:
    """Processes of the attempt survive SIGKILL: their host cannot be used again."""

    at_ns: int
    attempt: int
    words: str


@value
class StopAsked:
    """Save and stop: a notice, or `holdfast stop`. `deadline_ns` None: take your time."""

    at_ns: int
    source: str
    deadline_ns: int | None
    notice: bool


@value
class Interrupted:
    """A person pressed Ctrl-C: the first time they want a save and a stop, then a stop now."""

    at_ns: int
    source: str


@value
class Noticed:
    """A source has told of something that is about to happen to a host, or not any more."""

    at_ns: int
    notice: Notice


@value
class StopNowAsked:
    """Stop now: SIGQUIT, `holdfast stop --now`, or the lease is lost.

    `exit_code` is what the supervisor then ends with: 75 if a person wants it, or no host is left
    to train (not `by_person`).
    """

    at_ns: int
    source: str
    exit_code: int = EXIT_SAVED_START_ME_AGAIN
    by_person: bool = True


@value
class SaveAsked:
    """Somebody wants a save at the next boundary.

    `in_step`: a script asks while its step is under way, and may wait to have that very step saved.
    """

    at_ns: int
    source: str
    in_step: bool = False


@value
class ProfileAsked:
    """Somebody wants to know where the time of a rank's next steps goes: `holdfast profile`.

    `name`: of the profile, in the store. `limit_ns`: for all of it.
    """

    at_ns: int
    source: str
    name: str
    rank: int
    steps: int
    limit_ns: int


@value
class HostsAnswered:
    """All hosts have said how far their ranks are, which was asked for the event that follows.

    `took_ns`: from then until now; an order will not take longer. `since_ns`: since the rank that
    is furthest was done with its newest step; 0: nobody knows.
    """

    at_ns: int
    took_ns: int
    since_ns: int


@value
class RollbackAsked:
    """A person wants the run to continue from an earlier checkpoint: `holdfast rollback`."""

    at_ns: int
    wish: Wish


@value
class RestartAsked:
    """The attempt is to end, and the next one to begin on other hosts. `words`: why.

    `is_notice`: a host of it was announced to go.
    """

    at_ns: int
    words: str
    is_notice: bool = False


@value
class TimerFired:
    """A timer that an action set has come due."""

    at_ns: int
    timer: str


Event = (
    Opened
    | Placed
    | SetsSeen
    | Chosen
    | ChoiceFailed
    | SetRefused
    | OnRecord
    | Adopted
    | NotAdopted
    | Launched
    | LaunchFailed
    | Joined
    | StepsRecorded
    | Heard
    | SaveTook
    | RankExited
    | TreeGone
    | HostLost
    | StopAsked
    | Interrupted
    | Noticed
    | StopNowAsked
    | SaveAsked
    | ProfileAsked
    | HostsAnswered
    | RollbackAsked
    | RestartAsked
    | TimerFired
    | Examined
    | StacksCollected
    | Suspended
    | BuffersReady
    | Compared
    | TierEvent
)


MAY_ORDER = frozenset({StopAsked, Interrupted, SaveAsked, Noticed, TimerFired})


def wants_progress(event: Event, *, is_stopping: bool) -> bool:
    """Whether the edge reads the ranks' progress right before it feeds this event.

    An order must be ahead of where the ranks are now; and after a commit a stop leaves at once if
    nothing is unsaved, which has to be true now, not at the last look.
    """
    if type(event) in MAY_ORDER:
        return not isinstance(event, TimerFired) or event.timer == NOTICE_TIMER
    if not is_stopping:
        return False
    if isinstance(event, Heard):
        return isinstance(event.news, of_saves.Committed)
    return isinstance(event, FlushCommitted)
