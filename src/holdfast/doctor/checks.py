"""All checks, in the order in which their findings are told; each is a pure function of `Facts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.doctor import checks_bucket, checks_host, checks_run, checks_script
from holdfast.doctor.facts import Facts
from holdfast.doctor.finding import Finding, Severity

Check = Callable[[Facts], Iterable[Finding]]

# By the name that a finding carries and that docs/how-to/doctor.md explains.
CHECKS: dict[str, Check] = {
    "grace": checks_run.grace,
    "notices": checks_run.notices,
    "script": checks_script.script,
    "store": checks_run.store,
    "bucket": checks_bucket.bucket,
    "cache": checks_bucket.programs,
    "room": checks_run.room,
    "scratch": checks_run.scratch,
    "memory": checks_run.memory,
    "devices": checks_host.devices,
    "ipc": checks_host.ipc,
    "clock": checks_host.clock,
    "suspend": checks_host.suspend,
    "files": checks_host.files,
    "core": checks_host.core,
    "memlock": checks_host.memlock,
    "stacks": checks_host.stacks,
    "versions": checks_host.versions,
}
_ORDER = list(Severity)


def examine(facts: Facts) -> tuple[Finding, ...]:
    """Everything that is found, the gravest first."""
    found = [finding for check in CHECKS.values() for finding in check(facts)]
    return tuple(sorted(found, key=lambda one: _ORDER.index(one.severity)))
