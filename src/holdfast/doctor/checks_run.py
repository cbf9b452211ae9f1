"""Checks of what a run needs: time, warnings, room and places to write. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.facts import Facts
from holdfast.doctor.finding import Finding, Severity

LEAVING_S = 2.0  # what the ranks get to leave, once all is saved
LEAST_MARGIN_S = 1.0
SLOW_FSYNC_S = 0.1
SKEW_S = 2.0
SLOW_AT_FIRST = {"azure": "; its very first answer may take two minutes: ask again then"}
IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


def grace(facts: Facts) -> Iterator[Finding]:
    """A grace period that a save, as it was measured, does not fit into."""
    run = facts.run
    if run is None:
        return
    need_s = run.need_s
    if need_s is None:
        yield Finding(
            "grace",
            Severity.NOTE,
            f"run {run.name!r} has not told yet how long a durable save takes",
            "it is not known whether it fits into the grace period",
            "let it save once, then ask again; or rehearse: holdfast rehearse",
        )
        return
    margin_s = max(LEAST_MARGIN_S, need_s / 2)
    wanted_s = LEAVING_S + need_s + margin_s
    if facts.grace_s >= wanted_s:
        return
    is_short = facts.grace_s < LEAVING_S + need_s
    what = f"--grace is {facts.grace_s:g} s, and a save of run {run.name!r} takes {need_s:.3g} s"
    yield Finding(
        "grace",
        Severity.ERROR if is_short else Severity.WARNING,
        what,
        "a SIGTERM or a short notice ends the run before its last save is durable"
        if is_short
        else "on a slow day the last save will not be durable in time",
        f"have whoever sends SIGTERM wait {wanted_s:.0f} s or more, and say so with --grace",
    )


def notices(facts: Facts) -> Iterator[Finding]:
    """Sources that do not answer, and hosts that nobody would warn."""
    for source in facts.sources:
        if not source.has_answered:
            yield Finding(
                "notices",
                Severity.ERROR,
                f"the source of notices {source.name} ({source.why}) does not answer: "
                f"{source.trouble}",
                "maintenance and preemption will come without a warning",
                f"open the way to it, or leave it out: --notice without {source.name}"
                f"{SLOW_AT_FIRST.get(source.name, '')}",
            )
        elif source.trouble:
            yield Finding(
                "notices",
                Severity.WARNING,
                f"the source of notices {source.name} ({source.why}) answers in part: "
                f"{source.trouble}",
                "what that part tells of comes without a warning",
                "open the way to that too, or give the identity the right to look",
            )
    if not facts.sources:
        off = "--notice is off" if not facts.listens else "no source of notices is found here"
        yield Finding(
            "notices",
            Severity.NOTE,
            off,
            "SIGTERM alone will warn the run",
            "on a cloud, name its source: --notice gce; else a file: --notice file:PATH"
            if facts.listens
            else "--notice auto, or a source's name; or a file: --notice file:PATH",
        )


def store(facts: Facts) -> Iterator[Finding]:
    """A run store that cannot be written, is slow to sync, or lives in another time."""
    place = facts.store
    if place is None:
        return
    if place.trouble:
        yield Finding(
            "store",
            Severity.ERROR,
            f"the run store {place.path} cannot be written: {place.trouble}",
            "no run will start, and none can save",
            "make it writable for this user, or name another: --store",
        )
        return
    if place.fsync_s is not None and place.fsync_s > SLOW_FSYNC_S:
        yield Finding(
            "store",
            Severity.WARNING,
            f"an fsync in the run store {place.path} takes {place.fsync_s:.2g} s",
            "each save waits for several, one after the other",
            "use a faster disk for --store, or save to memory more often than to disk",
        )
    yield from skewed(
        "store",
        place.path,
        place.skew_s,
        "ages of runs and checkpoints on screens are off by that",
        "run a time service (chrony, systemd-timesyncd) on both",
    )


def skewed(check: str, where: str, skew_s: float | None, why: str, fix: str) -> Iterator[Finding]:
    """A run store whose clock is ahead of this host's by `skew_s`, if that is worth a word."""
    if skew_s is None or abs(skew_s) <= SKEW_S:
        return
    side = "ahead of" if skew_s > 0 else "behind"
    what = f"the clock of the run store {where} is {abs(skew_s):.1f} s {side} this host's"
    yield Finding(check, Severity.WARNING, what, why, fix)


def room(facts: Facts) -> Iterator[Finding]:
    """A store without room for the checkpoints that are to be kept, and the one being written."""
    place, state_bytes = facts.store, facts.state_bytes
    if place is None or place.free_bytes is None or not state_bytes:
        return
    wanted = facts.keep_last + 1
    has = place.free_bytes // state_bytes
    if has < wanted:
        yield Finding(
            "room",
            Severity.ERROR if has < 2 else Severity.WARNING,
            f"the run store {place.path} has {size(place.free_bytes)} free, and a checkpoint takes "
            f"{size(state_bytes)}",
            f"it is full after {has} more; --keep {facts.keep_last} wants {wanted} at a time",
            "free space there, keep fewer (--keep), or name another --store",
        )


def scratch(facts: Facts) -> Iterator[Finding]:
    """Live journals on a filesystem that may answer late or never."""
    place = facts.scratch
    if place is None:
        return
    if place.is_remote:
        yield Finding(
            "scratch",
            Severity.ERROR,
            f"the scratch folder {place.path} is on {place.filesystem}",
            "a record of a step would wait for a network, so no run starts with it",
            "name a local folder: --scratch /var/tmp",
        )
    elif place.trouble:
        yield Finding(
            "scratch",
            Severity.ERROR,
            f"the scratch folder {place.path} cannot be written: {place.trouble}",
            "no run will start",
            "name a local folder of yours: --scratch",
        )


def memory(facts: Facts) -> Iterator[Finding]:
    """A memory tier that is a disk, or too small for the state."""
    tier = facts.memory
    if tier is None or not tier.buffers:
        return
    if tier.filesystem and tier.filesystem not in IN_MEMORY:
        yield Finding(
            "memory",
            Severity.WARNING,
            f"the memory folder {tier.folder} is on {tier.filesystem}, which is no memory",
            "each copy to it costs a write to disk",
            "--memory-dir /dev/shm, or --memory off",
        )
    if tier.room_bytes is None or not facts.state_bytes:
        return
    fits = tier.room_bytes // facts.state_bytes
    if fits >= tier.buffers:
        return
    says = f"{tier.why}, of which snapshots may take {size(tier.room_bytes)}"
    yield Finding(
        "memory",
        Severity.NOTE if fits else Severity.WARNING,
        f"{fits or 'none'} of {tier.buffers} snapshots of {size(facts.state_bytes)} fit into "
        f"memory: {says}",
        "fewer are kept, and one that is being written holds up the next"
        if fits
        else "there is no memory tier: a failure costs what was done since the last durable save",
        f"give it {size(int(tier.buffers * facts.state_bytes / 0.75))} (a container's "
        "memory folder has a size of its own: --shm-size, or an emptyDir of medium Memory)",
    )


def size(nbytes: int) -> str:
    """A number of bytes for people."""
    for unit, one in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if nbytes >= one:
            return f"{nbytes / one:.3g} {unit}"
    return f"{nbytes / 1024:.3g} KiB"
