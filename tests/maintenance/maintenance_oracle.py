"""What must be true of a story that was played, worked out in another way than by the code.

It knows the truth, when each service said it, how late a source may hear of what its service says,
and what a save takes in the virtual world; of plans, boards and announcements it knows nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "scenarios"))
sys.path.insert(0, str(Path(__file__).parent))
from maintenance_story import SLOTS, Event, Step, tellings
from virtual_agent import LOOK_NS

from holdfast.sim.clock import MS, SECOND

sys.path.pop(0)
sys.path.pop(0)

from holdfast.core.daemon.events import RoundOutcome
from holdfast.core.notices.board import Notice, NoticeState
from holdfast.notices.registry import SOURCES

if TYPE_CHECKING:
    from maintenance_host import Host

# How long a source that fails may need to be itself again: a request that hangs, and the longest
# wait between two tries (`notices.registry`).
HANGS_S = {"gce": 75, "azure": 150, "aws": 15, "kubernetes": 60, "slurm": 21, "tpu": 21}
READING_S = 2.5  # a date cut to whole seconds, on a clock that may be two off
LEAVING_S = 2.0
# What a path or an answer is of, for evidence that the truth was served.
PATHS = {
    "gce.preempted": "preempted",
    "gce.event": "maintenance-event",
    "gce.upcoming": "upcoming-maintenance",
    "azure": "scheduledevents",
    "aws.spot": "spot/instance-action",
    "aws.scheduled": "maintenance/scheduled",
    "aws.rebalance": "rebalance",
    "kubernetes.pod": "/pods",
    "kubernetes": "/nodes",
    "slurm.preempted": "job",
    "slurm.end": "job",
    "slurm.drain": "node",
    "slurm": "hostnames",
    "tpu": "node",
}


def findings(host: Host) -> list[str]:
    """Everything that is wrong, a sentence each; empty: the story is well."""
    return [
        *_lost_steps(host),
        *_unheard(host),
        *_left_for_nothing(host),
        *_released(host),
        *_warnings(host),
        *_agent(host),
    ]


# --- when it could be known -------------------------------------------------------------------


def _known_s(host: Host, event: Event, step: Step, slot: str, lag_s: float) -> float:
    """By when the source had to have told it, whatever went wrong: by law, or by evidence."""
    source, row, told_s = slot.partition(".")[0], SLOTS[slot], step.at_s + lag_s
    faults = [one for one in host.story.faults if one.source == source]
    longest_wait_s = SOURCES[source].longest_wait_s
    troubled_s = HANGS_S.get(source, 0) + longest_wait_s + row.within_s
    law_s = told_s + row.within_s
    for fault in sorted(faults, key=lambda one: one.at_s):
        if fault.at_s <= law_s and told_s <= fault.until_s + troubled_s:
            law_s = max(law_s, fault.until_s + troubled_s)
    path = PATHS.get(slot) or PATHS.get(source)
    if path is None:
        return law_s
    served = [
        (at_ns - host.began_ns) / SECOND
        for at_ns, what in host.truths.get(source, ())
        if path in what and at_ns >= host.at(told_s)
    ]
    # Answers that are under way when a service breaks off may be lost: the second counts then.
    chosen = served[1:2] if faults else served[:1]
    return min([law_s, *(at_s + 1.0 for at_s in chosen)])


def need_s(host: Host) -> float:
    """What a save takes at most in the virtual world, with what goes before it and the margin."""
    shape, story = host.shape, host.story
    write_s = story.write_s + 0.1
    if shape.buffers:
        write_s = 2 * (shape.flush_ns * shape.ranks + shape.seal_ns) / SECOND + 0.2
    one_s = 2 * story.step_s + shape.copy_ns / SECOND + write_s
    under_way_s = story.step_s + write_s  # a periodic save that has begun
    return one_s + under_way_s + max(1.0, (one_s + under_way_s) / 2) + LEAVING_S


def _allowed_by(host: Host) -> Iterator[tuple[str, float]]:
    """Who told of the end early enough for a save, and when that was known."""
    assert host.taken is not None
    end_s = (host.taken.at_ns - host.began_ns) / SECOND
    for event, step, slot, lag_s in tellings(host.story):
        if event.end_s is None or not event.is_ours or abs(event.end_s - end_s) > 0.01:
            continue
        if step is not event.steps[-1] and not (step.end_s or 0) <= end_s:
            continue  # it has been said to come later than it did
        if step.what == "late" or (step.what == "started" and end_s - step.at_s < 31):
            continue  # nobody said when
        known_s = _known_s(host, event, step, slot, lag_s)
        lead_s = SLOTS[slot].lead_s
        if lead_s is not None and step.at_s + lag_s + lead_s > end_s + 0.01:
            continue  # a promise that was not kept
        is_vague = lead_s is not None and step.at_s + lag_s + lead_s < end_s - 3
        if host.story.stays and (is_vague or step.what == "started"):
            continue  # who stays has saved for the moment that could be known, and it came later
        if end_s - known_s >= need_s(host) + READING_S:
            yield f"{slot} at {step.at_s + lag_s:.1f} s", known_s


# --- the zeros --------------------------------------------------------------------------------


def _lost_steps(host: Host) -> Iterator[str]:
    taken, story = host.taken, host.story
    if taken is None:
        return
    lost = taken.done - taken.saved
    if lost <= 1:  # one is what a rank may do in the moment in which it is ended
        return
    if _left_by_another_deadline(host):
        return
    for who, known_s in _allowed_by(host):
        end_s = (taken.at_ns - host.began_ns) / SECOND
        if story.stays:
            by_ns = taken.at_ns - round(2 * (need_s(host) + READING_S) * SECOND)
            if any(at_ns >= by_ns for at_ns, _ in host.watch.times):
                continue  # it was saved as late as was safe, and trained on
        yield (
            f"{lost} steps lost at {end_s:.1f} s, though {who} told of it, which was known by "
            f"{known_s:.1f} s, and a save needs {need_s(host):.1f} s"
        )
        return


def _left_by_another_deadline(host: Host) -> bool:
    """Whether an end was told that left too little time, and did not come then.

    What is asked to be gone by then goes by then, saved or not.
    """
    assert host.taken is not None
    for notice, at_ns in zip(host.heard, host.heard_ns, strict=True):
        if notice.action.is_end and notice.state is not NoticeState.WITHDRAWN:
            by_ns = _comes_to(notice, at_ns)
            is_short = by_ns - at_ns < (need_s(host) + READING_S) * SECOND
            if is_short and by_ns < host.taken.at_ns - SECOND and host.stop_ns is not None:
                return True
    return False


def _comes_to(notice: Notice, heard_ns: int) -> int:
    if notice.deadline_ns is not None and notice.deadline_ns > heard_ns:
        return notice.deadline_ns
    if notice.lead_ns is not None and notice.deadline_ns is None:
        left_ns = notice.lead_ns - notice.unseen_ns
        return heard_ns + (left_ns if left_ns > 0 else 30 * SECOND)
    return heard_ns + 30 * SECOND


def _unheard(host: Host) -> Iterator[str]:
    """Each thing that stands for as long as a source may need is told, and said once."""
    over_s = min(host.story.horizon_s, host.story.ends_s or 1e9)
    for event, step, slot, lag_s in tellings(host.story):
        if not event.is_ours or step.what == "gone":
            continue
        known_s = _known_s(host, event, step, slot, lag_s)
        next_s = min((one.at_s for one in event.steps if one.at_s > step.at_s), default=1e9)
        if known_s + 0.5 >= min(over_s, next_s):
            continue
        source = slot.partition(".")[0]
        window = range(host.at(step.at_s + lag_s) - MS, host.at(known_s + 0.5))
        if not any(
            notice.source == source and at_ns in window
            for notice, at_ns in zip(host.heard, host.heard_ns, strict=True)
        ):
            yield f"{slot} told of {event.name} ({step.what}), which was not heard by {known_s:.1f}"
    told: dict[object, object] = {}
    for notice in host.heard:
        facts = (notice.state, notice.deadline_ns, notice.lead_ns, notice.action)
        if told.get(notice.key) == facts:
            yield f"{notice.source} has told the same twice: {notice.words}"
        told[notice.key] = facts
    others = [one.name for one in host.story.events if not one.is_ours]
    for notice in host.heard:
        if notice.event_id in others or any(name in notice.topic.split() for name in others):
            yield f"heard of somebody else's: {notice.words}"


def _left_for_nothing(host: Host) -> Iterator[str]:
    """A run leaves on account of an end that stands, and of nothing else."""
    if host.stop_ns is None:
        return
    standing: dict[object, bool] = {}
    for notice, at_ns in zip(host.heard, host.heard_ns, strict=True):
        if at_ns > host.stop_ns:
            break
        is_end = notice.action.is_end and notice.state is not NoticeState.WITHDRAWN
        standing[notice.key] = is_end
    at_s = (host.stop_ns - host.began_ns) / SECOND
    if not any(standing.values()):
        yield f"the run leaves at {at_s:.1f} s, and no end was announced"
    elif host.story.stays:
        yield f"the run leaves at {at_s:.1f} s, and was to stay"


def _released(host: Host) -> Iterator[str]:
    """What may happen at once is an end that stands, after a run of which nothing is lost."""
    finish = host.world.finish
    if finish is None:
        return
    standing = {}
    for notice, at_ns in zip(host.heard, host.heard_ns, strict=True):
        if at_ns <= host.world.finished_ns:
            standing[notice.key] = notice
    newest = max((one.step for one in host.world.store.sets), default=0)
    if finish.settled and host.steps_done - newest > 1:
        yield f"the host is released, and steps {newest} to {host.steps_done} are lost"
    for notice in finish.settled:
        last = standing.get(notice.key)
        if last is None or not last.action.is_end or last.state is NoticeState.WITHDRAWN:
            yield f"{notice.source} is told to go on with {notice.words}, which does not stand"


def _warnings(host: Host) -> Iterator[str]:
    """At most one for each change of the truth; and one where a promise has become a date."""
    most = 0
    for event in host.story.events:
        if event.is_ours:
            promises = {SLOTS[slot].lead_s is not None for slot, _ in event.told_by}
            most += len(event.steps) + (len(promises) > 1)
    if len(host.warned) > most:
        words = "; ".join(f"{(at - host.began_ns) / SECOND:.1f} {one}" for at, one in host.warned)
        yield f"{len(host.warned)} warnings of {most} changes: {words}"


# --- the host daemon ---------------------------------------------------------------------------


def _agent(host: Host) -> Iterator[str]:
    agent = host.agent
    for one in agent.processes:
        if len(one.signals) > 1:
            yield f"process {one.pid} was signalled {len(one.signals)} times"
        if one.boss is not None and one.signals and one.boss.is_there(one.signals[0]):
            yield f"worker {one.pid} was signalled while its trainer lived"
    margin_ns = agent.policy.margin_ns
    for release in agent.releases:
        at_s = (release.at_ns - host.began_ns) / SECOND
        left = [
            one.pid
            for one in agent.processes
            if one.is_there(release.at_ns) and one.held_since_ns < release.looked_ns
        ]
        if not left:
            continue
        if release.report.outcome is RoundOutcome.CLEAR:
            yield f"released at {at_s:.1f} s while processes {left} held the device"
            continue
        began_ns = release.report.began_ns
        # What comes in while a look is taken is heard after it.
        deadlines = [
            at_ns
            for before_ns in (0, 2 * LOOK_NS)
            for at_ns in _deadlines(host, release.at_ns - before_ns)
        ]
        is_late = release.at_ns >= began_ns + agent.policy.grace_ns
        if not is_late and not any(release.at_ns >= at_ns - margin_ns for at_ns in deadlines):
            yield f"released at {at_s:.1f} s, before the time was over, with {left} there"
    yield from _jobs_cut_off(host)


def _deadlines(host: Host, at_ns: int) -> Iterator[int]:
    """What the notices that stood then come to, added up on fingers."""
    standing: dict[object, int] = {}
    for notice, heard_ns in zip(host.heard, host.heard_ns, strict=True):
        if heard_ns > at_ns:
            break
        before_ns = standing.pop(notice.key, None)
        if notice.state is not NoticeState.WITHDRAWN:
            standing[notice.key] = _comes_to(notice, heard_ns)
            is_undated = notice.deadline_ns is None and notice.lead_ns is None
            if is_undated and before_ns is not None:  # what has started comes by its date
                standing[notice.key] = min(before_ns, standing[notice.key])
    yield from standing.values()


def _jobs_cut_off(host: Host) -> Iterator[str]:
    """A job that saves in the time that it had is gone, by itself, before its host is."""
    taken, agent = host.taken, host.agent
    if taken is None or agent.deaths:
        return
    end_s = (taken.at_ns - host.began_ns) / SECOND
    known = [known_s for _, known_s in _allowed_by(host)]
    if not known:
        return
    had_s = min(agent.policy.grace_ns / SECOND, end_s - min(known)) - 6 - READING_S
    for one in agent.processes:
        if one.save_ns is None or one.boss is not None or one.heirs:
            continue
        if any(release.at_ns <= one.came_ns for release in agent.releases):
            continue  # the host was given away by then
        came_s = (one.came_ns - host.began_ns) / SECOND
        time_s = min(had_s, end_s - came_s - 8)
        is_cut = one.gone_ns is None or one.gone_ns > taken.at_ns
        if one.save_ns / SECOND < time_s and is_cut:
            yield f"job {one.pid}, which saves in {one.save_ns / SECOND} s, was cut off"
