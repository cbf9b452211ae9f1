"""What a run's hosts were asked of: read, told to people, and given back (`holdfast release`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.config import inherited_environment
from holdfast.core.hosts.engine import Submission
from holdfast.engines.protocol import Engine, Ordered
from holdfast.engines.registry import checked_options, engine_module
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.journal import fields
from holdfast.journal.store import RunFolder
from holdfast.journal.submitted import FILE, agree_to_order, kept, stored


class KnownOrder(NamedTuple):
    """A run's order, and the engine that has taken it."""

    engine: Engine
    ordered: Ordered


def order_json(ordered: Ordered) -> dict[str, Any]:
    """An order as plain data, for a file."""
    return {
        "submission": ordered.submission.to_json(),
        "job": ordered.job,
        "words": ordered.words,
        "submitted_unix_ns": ordered.submitted_unix_ns,
    }


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
    except (ValueError, AttributeError) as error:
        raise StoreUnavailable(
            f"{folder.path / FILE} is damaged ({error}); move it away"
        ) from error
    options = dict(submission.options)
    checked_options(submission.engine, options)
    engine = engine_module(submission.engine).make(options, inherited_environment())
    return KnownOrder(engine, ordered)
