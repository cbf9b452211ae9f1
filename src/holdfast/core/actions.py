"""Actions: imperatives that the run's machine answers with; the edges carry them out, in order.

What must be durable before what is said by the order alone: an edge finishes (or hands to one
ordered worker) each action before the next one of the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from holdfast.core.events import Resume
from holdfast.core.hosts.placement import Meeting, Placement
from holdfast.core.hosts.standby import StandbyOrder
from holdfast.core.notices.board import Notice
from holdfast.core.run.restart import Restart
from holdfast.core.run.rollback import Rollback, Wish
from holdfast.core.save import events as news
from holdfast.core.save.tier_events import AlikeDigests
from holdfast.core.value import value
from holdfast.errors import EXIT_DONE


@value
class Choose:
    """Look what checkpoints there are, to choose one; answer SetsSeen or ChoiceFailed.

    Whole sets are completed first. `wish`: the choice goes by that; its tag's pins are wanted.
    """

    wish: Wish | None = None


@value
class Launch:
    """Create the attempt exclusively, then start its ranks; answer Launched or LaunchFailed.

    `placement`: which host runs each rank. `rollback` goes into its record: from then on the wishes
    that it names are settled. `meeting`: where the ranks of several hosts find each other, filled
    in once all hosts are there; None: on this host.
    """

    attempt: int
    resume: Resume
    placement: Placement
    rollback: Rollback | None = None
    meeting: Meeting | None = None


@value
class Adopt:
    """Go on with an attempt that an earlier controller has launched, if all of it is there.

    Put that on record as `number`, so that nobody else launches an attempt of that number; answer
    Adopted or NotAdopted. `resume` and `placement` as it was launched with.
    """

    attempt: int
    number: int
    resume: Resume
    placement: Placement


@value
class CarryOut:
    """Do what the agreement says (core.save.events): publish a word, commit a set, make room.

    `deadline_ns` goes into the ranks' pages with an order.
    """

    attempt: int
    what: news.Action
    deadline_ns: int | None = None


@value
class Seal:
    """Give a buffer that every rank has filled its checksums and manifest; Sealed, SealFailed."""

    attempt: int
    epoch: int
    step: int
    buffer: int


@value
class Flush:
    """Write a sealed set to the durable tier: Flushed for every rank's shard, or FlushFailed.

    `urgent`: somebody waits for it, so at full speed, and before anything that is not. `alike`:
    what all hosts have said to hold alike; together they write it once.
    """

    attempt: int
    epoch: int
    step: int
    buffer: int
    why: str
    urgent: bool = False
    alike: AlikeDigests = ()


@value
class Replicate:
    """Have each host copy the sealed part of its neighbour: Replicated or NotReplicated follows.

    `kept`: the (attempt, step) of the set whose copies must stay until then; None: there is none.
    `within_ns`: it should be over by then; 0: as soon as may be.
    """

    attempt: int
    epoch: int
    step: int
    buffer: int
    kept: tuple[int, int] | None = None
    within_ns: int = 0


@value
class KeepWish:
    """Leave it in the run store: every later start finds it there, until an attempt settles it."""

    wish: Wish


@value
class Distrust:
    """A host of the placement computes or remembers wrongly: have it take no part any more."""

    host: int
    words: str


@value
class AbandonFlush:
    """End the flush of that set, be it by force: nothing is heard of it; FlushFailed says why."""

    attempt: int
    epoch: int
    step: int
    why: str


@value
class CommitFlushed:
    """Every rank's shard is durable: write the manifest; FlushCommitted or FlushCommitFailed.

    `of_ranks`: how many shards there are.
    """

    attempt: int
    epoch: int
    step: int
    of_ranks: int


@value
class PublishCommitted:
    """Store the COMMITTED word of every rank of the attempt that runs; no verdict goes with it."""

    step: int


@value
class Relay:
    """Send SIGTERM to the ranks: they have no session that reads the words (yet)."""

    why: str


@value
class Kill:
    """SIGKILL the attempt's whole tree; TreeGone follows."""

    why: str


@value
class StandBy:
    """What the processes that wait for `attempt`, the next one, are to do from now on."""

    attempt: int
    wanted: StandbyOrder


@value
class Examine:
    """Look at every rank's words and process; answer Examined."""

    attempt: int


@value
class CollectStacks:
    """Ask every rank where it stands, in bounded time and beside the loop; StacksCollected."""

    attempt: int


@value
class Profile:
    """Have a rank record where the time of its next steps goes; it answers in the store."""

    attempt: int
    name: str
    rank: int
    steps: int
    limit_ns: int


@value
class SetTimer:
    """Answer TimerFired(timer) at `at_ns`; a timer of the same name is replaced."""

    timer: str
    at_ns: int


@value
class CancelTimer:
    """Forget a timer; nothing happens if there is none."""

    timer: str


@value
class Record:
    """Journal a fact for the ledger (the payload's keys are those of docs/reference/journal.md)."""

    fact: Mapping[str, Any] = field(default_factory=dict)


@value
class EndTraining:
    """Put on record that the script ended its training at `step`, before the step `until`.

    What it does after that may fail, and the next attempt must not train on.
    """

    attempt: int
    step: int
    until: int


@value
class EndAttempt:
    """Write how the attempt ended beside its record; an incident if it was a disruption.

    `restart`: when the next one starts, and whether this end is one of a crash loop; None: the run
    is over, or somebody wanted it to go back. `own_signature`: of a failure of the script's own.
    """

    attempt: int
    cause: str
    words: str
    rank: int | None
    is_incident: bool
    restart: Restart | None = None
    own_signature: str = ""


@value
class Say:
    """Tell the people watching; `level` is info, warning or error."""

    level: str
    words: str


@value
class Finish:
    """The run is over for this supervisor: end with `exit_code`.

    `leaves_memory`: a set in memory is newer than all that is durable, so it is left for the next
    start on this host; else the memory tier is given back. `settled`: what the sources may tell the
    cloud that it need not wait for this run with.
    """

    exit_code: int
    words: str
    leaves_memory: bool = False
    settled: tuple[Notice, ...] = ()


DONE = Finish(EXIT_DONE, "")

Action = (
    Choose
    | Launch
    | Adopt
    | CarryOut
    | Seal
    | Flush
    | Replicate
    | KeepWish
    | Distrust
    | AbandonFlush
    | CommitFlushed
    | PublishCommitted
    | Relay
    | Kill
    | StandBy
    | Examine
    | CollectStacks
    | Profile
    | SetTimer
    | CancelTimer
    | Record
    | EndTraining
    | EndAttempt
    | Say
    | Finish
)
