"""Checks of a run store in a bucket. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.checks_run import skewed
from holdfast.doctor.facts import Facts, ObjectStore
from holdfast.doctor.finding import Finding, Severity

SLOW_READ_S = 0.5
# What does not work, what that will cost, and what to do: by the request that failed.
_FAILS = {
    "opened": (
        "cannot be opened",
        "no run will start",
        "set what is missing in the environment that starts the run",
    ),
    "written": (
        "cannot be written",
        "no run will start, and none can save",
        "let the identity create objects below the prefix",
    ),
    "read": (
        "cannot be read",
        "no run can resume from its checkpoint",
        "let the identity read objects below the prefix",
    ),
    "listed": (
        "cannot be listed",
        "no run finds its checkpoints",
        "let the identity list the bucket below the prefix",
    ),
    "claimed": (
        "does not answer a claim",
        "a run that cannot take its lease does not start",
        "let the identity create objects below the prefix",
    ),
    "deleted": (
        "keeps what is deleted",
        "old checkpoints stay, and are paid for",
        "let the identity delete objects below the prefix; no hold or retention policy there",
    ),
}


def bucket(facts: Facts) -> Iterator[Finding]:
    """A bucket that does not do what a run asks of it, does it slowly, or in another time."""
    place = facts.bucket
    if place is None:
        return
    if place.trouble:
        what, why, fix = _FAILS[place.step]
        left = f"; and remove {place.left}" if place.left else ""
        yield Finding(
            "bucket",
            Severity.ERROR,
            f"the run store {place.url} {what}: {place.trouble}",
            why,
            f"{fix}{left}",
        )
    yield from _manners(place)
    if facts.mirror is not None and facts.mirror.trouble:
        yield Finding(
            "bucket",
            Severity.ERROR,
            f"the folder of working copies {facts.mirror.path} cannot be written: "
            f"{facts.mirror.trouble}",
            "records go to the bucket by way of it, so no run will start",
            "name a local folder of yours: --mirror",
        )


def programs(facts: Facts) -> Iterator[Finding]:
    """Compiled programs, which go to a bucket only under a seal."""
    if facts.cache_key_trouble:
        yield Finding(
            "cache",
            Severity.ERROR,
            facts.cache_key_trouble,
            "no run will start",
            "mend the file, or leave --cache-key-file out",
        )
    elif facts.bucket is not None and facts.keeps_programs and not facts.has_cache_key:
        yield Finding(
            "cache",
            Severity.NOTE,
            f"compiled programs stay on their host: others may write {facts.bucket.url}, and a "
            "program is code",
            "a run of JAX that moves to another host compiles everything there again",
            "name a secret that the run's hosts share: --cache-key-file",
        )


def _manners(place: ObjectStore) -> Iterator[Finding]:
    """How it does what it does."""
    if place.is_exclusive is False:
        yield Finding(
            "bucket",
            Severity.ERROR,
            f"the run store {place.url} overwrites an object that exists",
            "two supervisors could hold one run, and write into each other's attempts",
            "use a store that honours conditional writes (If-None-Match), or a shared folder",
        )
    if place.took_s is not None and place.took_s > SLOW_READ_S:
        yield Finding(
            "bucket",
            Severity.WARNING,
            f"a small read of the run store {place.url} takes {place.took_s:.2g} s",
            "a start asks for dozens of objects, one after the other, and a save waits for some",
            "use a bucket in the region of this host",
        )
    yield from skewed(
        "bucket",
        place.url,
        place.skew_s,
        "requests are signed with this host's time: minutes too far, and all are refused",
        "run a time service: chrony, systemd-timesyncd",
    )
