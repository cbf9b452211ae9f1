"""How an event and the machine's answer to it are written down: one line each, times in seconds."""

from __future__ import annotations

from dataclasses import fields

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.durations import SECOND_NS
from holdfast.core.hang.events import RankLook
from holdfast.core.hosts.standby import StandbyOrder
from holdfast.core.run.rollback import way_back
from holdfast.core.run.state import Timer
from holdfast.core.save import events as news
from holdfast.core.save.word import IN_PARTS, Order, buffer_of, with_buffer

# Written down if something follows.
QUIET = (
    ev.OnRecord,
    ev.Joined,
    ev.StepsRecorded,
    ev.Heard,
    ev.SaveTook,
    ev.TimerFired,
    ev.Flushing,
)


def seconds(at_ns: int) -> str:
    """A time in seconds, nine columns wide."""
    return f"{at_ns / SECOND_NS:9.3f}"


def _in(at_ns: int | None, now_ns: int) -> str:
    return "none" if at_ns is None else f"in {(at_ns - now_ns) / SECOND_NS:.3f} s"


def _flags(flags: int) -> str:
    buffer = buffer_of(flags)
    names = " | ".join(flag.name or "" for flag in Order if with_buffer(flags, None) & flag)
    where = "" if buffer is None else f" into buffer {buffer}"
    return (names or "save") + where


def _order(flags: int) -> str:
    """A verdict's COMMITTED is IN_PARTS in an order."""
    return _flags(flags & ~IN_PARTS) + (" in parts" if flags & IN_PARTS else "")


def _resume(resume: ev.Resume) -> str:
    name = resume.set_name.replace("-00000000", "-") if resume.set_name else "scratch"
    if resume.buffer is not None:
        name += f" in buffer {resume.buffer} (step {resume.committed_step} is durable)"
    return f"{name} skipping {resume.skip_batches}" if resume.skip_batches else name


def _look(look: RankLook, at_ns: int) -> str:
    """`0 at step 7 for 61.2 s, in data`."""
    if not look.doing:
        return f"{look.rank} not there"
    since = f" for {(at_ns - look.step_ns) / SECOND_NS:.3f} s" if look.step_ns else ""
    span = f", in {look.span}" if look.span else ""
    stopped = ", stopped" if look.process == "T" else ""
    return f"{look.rank} at step {look.step}{since}{span}{stopped}"


def event_line(event: ev.Event, at_ns: int) -> str:
    """The event in words, without its time; `at_ns`: for deadlines, which are so long away."""
    name = type(event).__name__
    match event:
        case ev.Heard():
            said = event.news
            names = [one.name for one in fields(said) if one.name not in ("at_ns", "why")]
            words = [f"{name} {getattr(said, name)}" for name in names]
            return f"{type(said).__name__} {' '.join(words)}"
        case ev.SetsSeen(seen=seen):
            return f"{name} {len(seen.stored)} in the store, {len(seen.sealed)} in memory"
        case ev.Placed():
            return f"{name} on hosts {', '.join(map(str, event.hosts))}"
        case ev.RestartAsked():
            return f"{name}: {event.words}"
        case ev.Chosen():
            return f"{name} {_resume(event.resume)}"
        case ev.RankExited(exit=how):
            end = f"signal {how.signal}" if how.signal else f"code {how.code}"
            extra = f" {how.report.type} at {how.report.where}" if how.report else ""
            return f"{name} rank {event.rank}: {end}{extra}"
        case ev.StopAsked():
            return f"{name} by {event.source}, deadline {_in(event.deadline_ns, at_ns)}"
        case ev.Noticed(notice=notice):
            when = _in(notice.deadline_ns, at_ns) if notice.is_told else "not told"
            return f"{name} by {notice.source}: {notice.action} {notice.state}, deadline {when}"
        case ev.BuffersReady():
            return f"{name} rank {event.rank}: {event.buffers}"
        case ev.Sealed() | ev.Compared() | ev.Replicated() | ev.Flushing() | ev.FlushCommitted():
            return f"{name} {event.of_attempt}-{event.step}"
        case ev.SealFailed() | ev.NotReplicated() | ev.FlushFailed() | ev.FlushCommitFailed():
            return f"{name} {event.of_attempt}-{event.step}: {event.why}"
        case ev.Flushed():
            return f"{name} {event.of_attempt}-{event.step} of rank {event.rank}"
        case ev.Joined():
            return f"{name} rank {event.rank}"
        case ev.StepsRecorded():
            return f"{name} rank {event.rank}: {event.step}"
        case ev.SetRefused():
            return f"{name}: {event.words}"
        case ev.TimerFired():
            return f"{name} {event.timer}"
        case ev.LaunchFailed() | ev.ChoiceFailed():
            return f"{name} {event.exit_code}: {event.words}"
        case ev.StopNowAsked() | ev.Interrupted() | ev.SaveAsked():
            return f"{name} by {event.source}"
        case ev.ProfileAsked():
            return f"{name} by {event.source}: {event.steps} steps of rank {event.rank}"
        case ev.Suspended():
            return f"{name} for {event.gap_ns / SECOND_NS:.3f} s"
        case ev.Examined():
            return f"{name}: {', '.join(_look(one, at_ns) for one in event.ranks)}"
        case ev.StacksCollected():
            stacks = (f"{one.rank} {one.where or 'in a collective'}" for one in event.ranks)
            return f"{name}: {', '.join(stacks)}"
        case ev.RollbackAsked():
            return f"{name} {way_back(event.wish)}"
        case ev.NotAdopted():
            return f"{name} {event.attempt}: {event.words}"
        case ev.OnRecord() | ev.Adopted() | ev.Launched() | ev.TreeGone() | ev.HostLost():
            return f"{name} {event.attempt}"
    return name


def action_line(action: act.Action, at_ns: int) -> str:
    """What is to be done, as decided at `at_ns`; empty: nothing to speak of."""
    match action:
        case act.Choose():
            return f"choose a set, {way_back(action.wish)}" if action.wish else "choose a set"
        case act.Launch():
            settled = f", settling {', '.join(action.rollback.ids)}" if action.rollback else ""
            return f"launch attempt {action.attempt} from {_resume(action.resume)}{settled}"
        case act.Adopt():
            return f"adopt attempt {action.attempt} as {action.number}"
        case act.CarryOut(what=news.PublishOrder() as order):
            return (
                f"order {order.epoch}: {_order(order.flags)} at step {order.step} ({order.reason})"
            )
        case act.CarryOut(what=news.PublishVerdict() as verdict):
            return f"verdict {verdict.epoch}: {_flags(verdict.flags)} step {verdict.step}"
        case act.CarryOut(what=news.Commit() as commit):
            return f"commit step {commit.step}"
        case act.CarryOut(what=news.Abort() as abort):
            return f"abort {abort.epoch}: {abort.reason}"
        case act.CarryOut(what=news.MakeRoom() as room):
            return f"make room for step {room.step}"
        case act.CarryOut(what=news.Refuse() as refusal):
            return f"refuse: {refusal.reason}"
        case act.Seal():
            return f"seal step {action.step} in buffer {action.buffer}"
        case act.Flush():
            how = " at once" if action.urgent else ""
            return f"flush step {action.step} from buffer {action.buffer}{how} ({action.why})"
        case act.Replicate():
            return f"replicate step {action.step} from buffer {action.buffer}"
        case act.EndTraining():
            return f"put on record that the training ended at step {action.step}"
        case act.KeepWish():
            return f"keep the wish to go {way_back(action.wish)}"
        case act.Distrust():
            return f"distrust host {action.host}"
        case act.AbandonFlush():
            return f"abandon the flush of step {action.step}: {action.why}"
        case act.CommitFlushed():
            return f"commit flushed step {action.step}"
        case act.PublishCommitted():
            return f"publish that step {action.step} is durable"
        case act.Relay():
            return "send SIGTERM to the ranks"
        case act.Kill():
            return f"kill ({action.why})"
        case act.StandBy():
            is_woken = action.wanted is StandbyOrder.WOKEN
            return f"wake what waits for attempt {action.attempt}" if is_woken else ""
        case act.Examine():
            return "examine the ranks"
        case act.Profile():
            return f"profile {action.steps} steps of rank {action.rank} as {action.name}"
        case act.CollectStacks():
            return "collect stacks"
        case act.SetTimer():
            return f"timer {action.timer} {_in(action.at_ns, at_ns)}"
        case act.CancelTimer():
            return ""
        case act.Record(fact={"fact": "capacity"} as fact):
            return f"record capacity: {fact['chips']} of {fact['of']} chips"
        case act.Record(fact=fact):
            rest = " ".join(str(v) for k, v in fact.items() if k in ("attempt", "cause", "kind"))
            return f"record {fact['fact']} {rest}".rstrip()
        case act.EndAttempt():
            incident = ", an incident" if action.is_incident else ""
            return f"end attempt {action.attempt}: {action.cause} ({action.words}){incident}"
        case act.Say():
            return f'say "{action.words}"'
        case act.Finish():
            kept = ", memory is kept" if action.leaves_memory else ""
            ids = ", ".join(one.event_id or one.topic for one in action.settled)
            may_happen = f"; may happen now: {ids}" if ids else ""
            return f"finish {action.exit_code}: {action.words}{kept}{may_happen}"
    raise AssertionError(action)


def trace_lines(
    event: ev.Event,
    actions: tuple[act.Action, ...],
    at_ns: int,
    change: str = "",
    *,
    since_ns: int = 0,
) -> list[str]:
    """The event, and below it what was decided; nothing where it changed nothing.

    `at_ns`: when it was heard; printed is the time since `since_ns`. `change`: of the machine's
    state, in words.
    """
    if _is_routine(event, actions):
        return []
    follows = [line for action in actions if (line := action_line(action, at_ns))]
    if not (follows or change) and isinstance(event, QUIET):
        return []
    indented = [f"{'':9}    {line}" for line in follows]
    return [f"{seconds(at_ns - since_ns)}  {event_line(event, at_ns)}{change}", *indented]


def _is_routine(event: ev.Event, actions: tuple[act.Action, ...]) -> bool:
    """A look at ranks that get on, from which only the next look follows."""
    if isinstance(event, ev.TimerFired):
        return event.timer == Timer.HANG
    again = all(
        isinstance(action, act.SetTimer) and action.timer == Timer.HANG for action in actions
    )
    return isinstance(event, ev.Examined) and again
