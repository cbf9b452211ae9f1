"""Random stories of maintenance: what is really to happen to a host, and who tells of it, and when.

A story follows from its seed alone. Its events are the truth: each has an end, or none, and steps
by which it is announced, moved, started or called off. Each is told by one service or by several,
some later than others, in the services' own words; services fail meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

MAINTENANCE_AT = "cloud.google.com/scheduled-maintenance-time"
MAINTENANCE_NOW = "cloud.google.com/active-node-maintenance"
NODE_ENDS = "cloud.google.com/impending-node-termination"
CORDONED = "node.kubernetes.io/unschedulable"


class Slot(NamedTuple):
    """One way in which a service can tell of an event, in its verbs.

    `{id}`: the event's name; `{in}`: seconds until its end, `{at}`: that date with its zone,
    `{unix}`: in seconds since 1970. Empty: the service has no words for that. `lead_s`: what the
    vendor promises where no date is told. `within_s`: how late a source that has no trouble may
    hear of it.
    """

    new: tuple[str, ...]
    gone: tuple[str, ...] = ()
    started: tuple[str, ...] = ()
    lead_s: float | None = None
    within_s: float = 3.0


SLOTS = {
    # Ends that come soon.
    "gce.preempted": Slot(("preempted",), ("preempted FALSE",), lead_s=30),
    "gce.event": Slot(("maintenance-event",), ("maintenance-event NONE",), lead_s=60),
    "azure.preempt": Slot(("event Preempt {in} {id}",), ("remove {id}",), ("start {id}",)),
    "aws.spot": Slot(("spot terminate {in}",), ("spot none",), within_s=7),
    "kubernetes.taint": Slot((f"taint {NODE_ENDS}",), (f"taint {NODE_ENDS} -",), lead_s=30),
    "kubernetes.pod": Slot(("delete-pod {in}",)),
    "slurm.preempted": Slot(("end {in} preempted",), ("end unlimited",), within_s=62),
    "file.seconds": Slot(("write {in}",), ("remove",), within_s=1),
    "signal.usr1": Slot(("send",), lead_s=45, within_s=1),
    # Ends with a date.
    "gce.upcoming": Slot(("upcoming {at}",), ("upcoming",), ("upcoming {at} ONGOING",), within_s=6),
    "azure.reboot": Slot(("event Reboot {in} {id}",), ("remove {id}",), ("start {id}",)),
    "azure.terminate": Slot(("event Terminate {in} {id}",), ("remove {id}",), ("start {id}",)),
    "aws.scheduled": Slot(
        ("scheduled system-reboot {in} {id}",),
        ("scheduled system-reboot {in} {id} canceled",),
        within_s=68,
    ),
    "kubernetes.label": Slot(
        (f"label {MAINTENANCE_AT} {{unix}}",),
        (f"label {MAINTENANCE_AT}", f"label {MAINTENANCE_NOW}"),
        (f"label {MAINTENANCE_NOW} ONGOING",),
    ),
    "slurm.end": Slot(("end {in}",), ("end unlimited",), within_s=62),
    "slurm.reserve": Slot(("reserve {id} {in} 99999",), ("release {id}",), within_s=305),
    "tpu.window": Slot(("window lm {at}",), ("health lm",), ("maintain lm",), within_s=32),
    "file.date": Slot(("write {at}",), ("remove",), within_s=1),
    # No ends.
    "azure.freeze": Slot(("event Freeze {in} {id}",), ("remove {id}",)),
    "aws.rebalance": Slot(("rebalance yes",), ("rebalance no",), within_s=68),
    "kubernetes.cordon": Slot((f"taint {CORDONED}",), (f"taint {CORDONED} -",)),
    "slurm.drain": Slot(("state MIXED+DRAIN why",), ("state MIXED",), within_s=305),
    # Of somebody else.
    "azure.other": Slot(("event Reboot {in} {id} trainer_1,trainer_2",), ("remove {id}",)),
    "slurm.other": Slot(("reserve {id} {in} 99999 n2",), ("release {id}",)),
}
SOON = ("gce.preempted", "gce.event", "azure.preempt", "aws.spot", "kubernetes.taint",
        "kubernetes.pod", "slurm.preempted", "file.seconds", "signal.usr1")  # fmt: skip
DATED = ("gce.upcoming", "azure.reboot", "azure.terminate", "aws.scheduled", "kubernetes.label",
         "slurm.end", "slurm.reserve", "tpu.window", "file.date")  # fmt: skip
NO_END = ("azure.freeze", "aws.rebalance", "kubernetes.cordon", "slurm.drain")
OTHERS = ("azure.other", "slurm.other")
# Of one key, or one job: two events cannot be told by them at a time.
SAME = ({"slurm.preempted", "slurm.end", "slurm.reserve"}, {"file.seconds", "file.date"})

HTTP = ("gce", "azure", "aws", "kubernetes")
FAULTS = {
    **dict.fromkeys(HTTP, ("status", "html", "garbage", "redirect", "giant", "hang", "cut")),
    "slurm": ("fail", "hang", "giant", "html"),
    "tpu": ("UNAVAILABLE", "PERMISSION_DENIED"),
}


@dataclass(frozen=True)
class Step:
    """A change of an event: `new`, `moved`, `started` or `gone`; when the host goes by then."""

    at_s: float
    what: str
    end_s: float | None


@dataclass(frozen=True)
class Event:
    """What is to happen to the host (`is_end`), or to somebody, or what costs nothing.

    `told_by`: slots, each with how much later than the truth it tells.
    """

    name: str
    is_end: bool
    steps: tuple[Step, ...]
    told_by: tuple[tuple[str, float], ...]
    is_ours: bool = True

    @property
    def end_s(self) -> float | None:
        """When the host goes; None: it does not."""
        last = self.steps[-1]
        return last.end_s if self.is_end and last.what != "gone" else None


@dataclass(frozen=True)
class Fault:
    """A service answers so until then; `then` is done to it at that moment."""

    source: str
    at_s: float
    until_s: float
    words: str


@dataclass(frozen=True)
class Job:
    """A process of somebody else's that holds a device: for the host daemon."""

    at_s: float
    kind: str  # saver, stubborn, workers
    save_s: float = 1.0


@dataclass(frozen=True)
class Story:
    """Everything about one host, from the seed."""

    seed: int
    ranks: int
    step_s: float
    write_s: float
    buffers: int
    save_every: int
    stays: bool
    grace_s: float  # the agent's
    skew_s: float  # by how much this host's calendar is ahead
    events: tuple[Event, ...]
    faults: tuple[Fault, ...]
    jobs: tuple[Job, ...]
    agent_ends_s: tuple[float, ...]
    horizon_s: float

    @property
    def sources(self) -> tuple[str, ...]:
        """Which services there are: those that tell of something, or fail."""
        named = [slot.partition(".")[0] for one in self.events for slot, _ in one.told_by]
        return tuple(dict.fromkeys([*named, *(one.source for one in self.faults)]))

    @property
    def ends_s(self) -> float | None:
        """When the host is taken; None: it is not."""
        return min((one.end_s for one in self.events if one.end_s is not None), default=None)


def lines(story: Story) -> list[str]:
    """The story for people."""
    told = [
        f"seed {story.seed}: {story.ranks} ranks, step {story.step_s} s, write {story.write_s} s, "
        f"{story.buffers} buffers, save every {story.save_every}, "
        f"{'stay' if story.stays else 'leave'}, grace {story.grace_s} s, skew {story.skew_s} s; "
        f"over at {story.horizon_s:.1f} s"
    ]
    rows = [(s.at_s, f"{e.name} is {s.what}" + (f", ends at {s.end_s:.1f}" if s.end_s else ""))
            for e in story.events for s in e.steps]  # fmt: skip
    rows += [
        (step.at_s + lag_s, f"  {slot} tells that {event.name} is {step.what}")
        for event, step, slot, lag_s in tellings(story)
    ]
    rows += [(one.at_s, f"  {one.source}: {one.words}") for one in story.faults]
    rows += [(one.until_s, f"  {one.source}: well again") for one in story.faults]
    rows += [
        (one.at_s, f"  a job comes: {one.kind}, saves in {one.save_s} s") for one in story.jobs
    ]
    rows += [(at_s, "  the agent is killed") for at_s in story.agent_ends_s]
    return told + [f"{at_s:8.2f}  {words}" for at_s, words in sorted(rows, key=lambda row: row[0])]


def tellings(story: Story) -> Iterator[tuple[Event, Step, str, float]]:
    """Each step of each event, by each slot that has words for it, and how late."""
    for event in story.events:
        for slot, lag_s in event.told_by:
            for step in event.steps:
                row = SLOTS[slot]
                has_words = {"gone": row.gone, "started": row.started}.get(step.what, row.new)
                has_date = any("{" in one.replace("{id}", "") for one in row.new)
                if has_words and (step.what != "moved" or has_date):
                    yield event, step, slot, lag_s


# --- drawing one ------------------------------------------------------------------------------


def story(seed: int, *, with_tpu: bool = True) -> Story:
    """The story of a seed."""
    rng = random.Random(seed)
    events = _events(rng, with_tpu)
    last_s = max(step.at_s for one in events for step in one.steps)
    ends = [one.end_s for one in events if one.end_s is not None]
    horizon_s = min(ends) + 5 if ends else last_s + rng.choice([60, 200])
    sources = sorted({slot.partition(".")[0] for one in events for slot, _ in one.told_by})
    step_s = rng.choice([0.3, 0.7, 1.5, 3.0])
    return Story(
        seed,
        ranks=rng.choice([1, 2, 2, 3]),
        step_s=step_s,
        write_s=rng.choice([0.1, 0.8, 3.0, 8.0]),
        buffers=rng.choice([0, 0, 3]),
        save_every=max(2, round(rng.choice([20, 45]) / step_s)),
        stays=rng.random() < 0.12,
        grace_s=rng.choice([5.0, 30.0, 60.0]),
        skew_s=rng.choice([0, 0, 1.2, -1.2, 300, -86400]) if "slurm" not in sources else 0,
        events=events,
        faults=_faults(rng, sources, horizon_s),
        jobs=_jobs(rng, horizon_s),
        agent_ends_s=tuple(rng.uniform(5, horizon_s) for _ in range(rng.choice([0, 0, 0, 1, 2]))),
        horizon_s=horizon_s,
    )


def _events(rng: random.Random, with_tpu: bool) -> tuple[Event, ...]:
    taken: set[str] = set() if with_tpu else {"tpu.window"}
    events = []
    for number in range(rng.choice([1, 1, 2, 2, 3])):
        kind = rng.choice([SOON, SOON, DATED, DATED, NO_END, OTHERS])
        open_slots = [one for one in kind if one not in taken]
        if not open_slots:
            continue
        most = len(open_slots) if kind in (SOON, DATED) else 1  # of no end, each is its own
        slots = rng.sample(open_slots, min(most, rng.choice([1, 1, 2, 3])))
        slots = list({one.partition(".")[0]: one for one in slots}.values())  # each source once
        for group in SAME:
            both = [one for one in slots if one in group]
            slots = [one for one in slots if one not in both[1:]]
            taken |= group if both else set()
        taken.update(slots)
        events.append(_event(rng, f"e{number}", kind, slots))
    return tuple(events) or (_event(rng, "e0", SOON, ["gce.preempted"]),)


def _event(rng: random.Random, name: str, kind: tuple[str, ...], slots: list[str]) -> Event:
    new_s = rng.uniform(40, 120)
    leads = [lead for one in slots if (lead := SLOTS[one].lead_s) is not None]
    if kind is SOON:
        # A promise is kept, by whoever gives one.
        ahead_s = max([rng.choice([3, 12, 30, 45, 120]), *leads]) + rng.choice([0, 0, 2])
        if not leads and rng.random() < 0.1:
            ahead_s = -rng.uniform(1, 20)  # it should have come already
    else:
        ahead_s = rng.choice([15, 60, 90, 150, 400, 700])
    is_end = kind in (SOON, DATED)
    end_s = new_s + ahead_s
    if ahead_s < 0:  # the date has passed, and the host is still there
        end_s = new_s + rng.uniform(2, 60)
        steps = [Step(new_s, "late", end_s)]
    else:
        steps = [Step(new_s, "new", end_s)]
    if ahead_s > 5 and rng.random() < 0.5:
        steps += _changes(rng, steps[0], slots)
    told_by = tuple(
        (one, 0.0 if SLOTS[one].lead_s is not None else rng.choice([0.0, 0.0, rng.uniform(0, 4)]))
        for one in slots
    )
    if all(lag_s for _, lag_s in told_by):  # somebody knows it at once
        told_by = ((told_by[0][0], 0.0), *told_by[1:])
    return Event(name, is_end, tuple(steps), told_by, kind is not OTHERS)


def _changes(rng: random.Random, first: Step, slots: list[str]) -> Iterator[Step]:
    """What becomes of it: every slot must have words for that."""
    rows = [SLOTS[one] for one in slots]
    at_s, end_s = first.at_s, first.end_s or 0.0
    for _ in range(rng.choice([1, 1, 2])):
        at_s = at_s + max(6.0, rng.uniform(0.1, 0.9) * (end_s - at_s))
        if at_s >= end_s - 1:
            return
        what = rng.choice(["gone", "moved", "started"])
        if what == "gone" and all(row.gone for row in rows):
            yield Step(at_s, "gone", None)
            return
        if what == "moved" and all(row.lead_s is None for row in rows):
            end_s = at_s + rng.choice([8, 40, 90, 200, 300])
            yield Step(at_s, "moved", end_s)
        elif what == "started" and all(row.started for row in rows):
            end_s = min(end_s, at_s + rng.uniform(5, 60))
            yield Step(at_s, "started", end_s)
            return


def _faults(rng: random.Random, sources: list[str], horizon_s: float) -> tuple[Fault, ...]:
    faults = []
    for source in sources:
        if source not in FAULTS or rng.random() < 0.4:
            continue
        at_s = rng.uniform(0, max(1, horizon_s - 10))
        until_s = at_s + rng.choice([2, 10, 40, 100])
        words = f"fail {rng.choice(FAULTS[source])}"
        if source in HTTP:
            more = [f"delay {rng.choice([0.3, 2, 6])}", "drop"]
            more += ["rotate"] if source in ("aws", "kubernetes") else []
            more += ["compact", "forbid"] if source == "kubernetes" else []
            words = rng.choice([words, words, *more])
        faults.append(Fault(source, at_s, until_s, words))
    return tuple(faults)


def _jobs(rng: random.Random, horizon_s: float) -> tuple[Job, ...]:
    kinds = ["saver", "saver", "stubborn", "workers", "hands on"]
    return tuple(
        Job(
            rng.choice([0.0, rng.uniform(0, horizon_s)]),
            rng.choice(kinds),
            rng.choice([0.2, 2.0, 9.0, 25.0]),
        )
        for _ in range(rng.choice([0, 1, 2, 4]))
    )
