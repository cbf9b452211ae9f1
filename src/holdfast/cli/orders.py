"""What a run's hosts were asked of: read, told to people, and given back (`holdfast release`)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

from holdfast.config import inherited_environment
from holdfast.core.durations import in_words
from holdfast.core.hosts.engine import EngineHost, HostStage, Submission
from holdfast.engines.protocol import Engine, Ordered, OrderStanding
from holdfast.engines.registry import checked_options, engine_module
from holdfast.errors import ConfigurationError, HoldfastError, StoreUnavailable
from holdfast.journal import fields
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.submitted import FILE, agree_to_order, kept, stored

QUEUE = "queue"


class KnownOrder(NamedTuple):
    """A run's order, and the engine that has taken it."""

    engine: Engine
    ordered: Ordered


def order_json(ordered: Ordered, *, is_released: bool = False) -> dict[str, Any]:
    """An order as plain data, for a file. `is_released`: its hosts were given back."""
    return {
        "submission": ordered.submission.to_json(),
        "job": ordered.job,
        "words": ordered.words,
        "submitted_unix_ns": ordered.submitted_unix_ns,
        "is_released": is_released,
    }


def asked_of(folder: RunFolder) -> str:
    """`asked of slurm (job 17)`, in the store's words; "": its hosts are asked of no engine now."""
    order = stored(folder)
    if order is None or order.get("is_released"):
        return ""
    try:
        engine = fields.text(fields.field(order, "submission"), "engine")
        return f"asked of {engine} ({fields.text(order, 'words')})"
    except (ValueError, TypeError):
        return f"{FILE} is damaged"


def standing_json(folder: RunFolder) -> dict[str, Any] | None:
    """What a run's engine says of it, for scripts; None: nobody has submitted it to one."""
    try:
        if stored(folder) is None:
            return None
        engine, ordered = known_order(folder)
        standing = engine.standing(ordered)
    except HoldfastError as error:
        return {"trouble": str(error)}
    told = standing._asdict() | {"hosts": [asdict(one) for one in standing.hosts]}
    return {"name": ordered.submission.engine, "job": ordered.job, **told}


def order_lines(folder: RunFolder, now_unix_ns: int) -> list[str]:
    """What a run's engine says of it, for people; empty: nobody has submitted it to one."""
    try:
        if stored(folder) is None:
            return []
        engine, ordered = known_order(folder)
        standing = engine.standing(ordered)
    except HoldfastError as error:
        return [f"what its engine says is not known: {error}"]
    since = standing.since_unix_ns
    state = f"{ordered.submission.engine} ({ordered.words}): {standing.state}"
    state += "" if since is None else f", for {in_words(max(0, now_unix_ns - since))}"
    if not standing.is_over and not any(_is_there(one) for one in standing.hosts):
        state += _expected(folder, standing, now_unix_ns)
    unwell = (one for one in standing.hosts if not _is_well(one))
    return [state, *(f"  {host_line(one, now_unix_ns)}" for one in unwell)]


def _is_there(host: EngineHost) -> bool:
    return host.stage in (HostStage.READY, HostStage.DRAINING)


def _is_well(host: EngineHost) -> bool:
    return host.stage is HostStage.READY and not host.reason


def host_line(host: EngineHost, now_unix_ns: int) -> str:
    """How one of an engine's hosts is, for people."""
    number = "" if host.index is None else f" (host {host.index})"
    line = f"{host.name}{number} is {host.stage}"
    line += f": {host.reason}" if host.reason else ""
    if host.deadline_unix_ns is not None:
        line += f", in {in_words(max(0, host.deadline_unix_ns - now_unix_ns))}"
    return line


def _expected(folder: RunFolder, standing: OrderStanding, now_unix_ns: int) -> str:
    """When hosts are expected, by the engine; and how long that has taken before."""
    from holdfast.journal.machine_facts import past_waits_ns

    words = ""
    if standing.expected_unix_ns is not None:
        words = f"; expected in {in_words(max(0, standing.expected_unix_ns - now_unix_ns))}"
    before = [
        ns for one in RunStore(folder.path.parent).runs()[0] for ns in past_waits_ns(one, QUEUE)
    ]
    if before:
        import statistics

        words += f"; it took {in_words(statistics.median(before))} before (of {len(before)})"
    return words


def known_order(folder: RunFolder, *, accept_stored: bool = False) -> KnownOrder:
    """The order that this user knows; raises ConfigurationError where there is none.

    `accept_stored`: what the store says is right.
    """
    if accept_stored and (found := stored(folder)) is not None:
        agree_to_order(folder, found)
    raw, why_not = kept(folder)
    if raw is None:
        raise ConfigurationError(why_not)
    try:
        submission = Submission.from_json(fields.field(raw, "submission"))
        ordered = Ordered(
            submission,
            fields.text(raw, "job"),
            fields.text(raw, "words"),
            fields.whole(raw, "submitted_unix_ns"),
        )
    except ValueError as error:
        raise StoreUnavailable(
            f"{folder.path / FILE} is damaged ({error}); move it away"
        ) from error
    options = dict(submission.options)
    checked_options(submission.engine, options)
    engine = engine_module(submission.engine).make(options, inherited_environment())
    return KnownOrder(engine, ordered)
