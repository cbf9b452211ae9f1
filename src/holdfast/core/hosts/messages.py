"""Orders and reports as plain data, for a wire; read back with suspicion.

The receiver of an order gets what is wanted; what the controller remembers beside it stays with the
controller.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hang.events import RankLook, RankStack
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.order import Attention, HostOrder, Hurry, Want, subject_of_want
from holdfast.core.hosts.placement import NOWHERE, Meeting, Placement
from holdfast.core.hosts.register import Register
from holdfast.core.hosts.report import HostReport, RankState, subject_of_fact
from holdfast.core.plain_json import Parts
from holdfast.core.run.rollback import Rollback, Wish
from holdfast.core.save import events as news
from holdfast.core.save.corruption import Replica, ReplicaDifference

T = TypeVar("T")

_FORM = Parts(
    "part",
    (
        act.Launch, Placement, Meeting, act.CarryOut, act.PublishCommitted, act.Relay, act.Kill,
        act.StandBy, act.Examine, act.CollectStacks, act.Seal, act.Flush, act.Replicate,
        act.AbandonFlush, act.Profile, Hurry,
        news.PublishOrder, news.PublishVerdict, ev.Resume, Rollback, Wish,
        ev.Launched, ev.LaunchFailed, ev.RankExited, ev.TreeGone, ev.HostLost, ev.Suspended,
        ev.Examined, ev.StacksCollected, ev.Sealed, ev.SealFailed, ev.Replicated,
        ev.NotReplicated, ev.Flushing, ev.Flushed,
        ev.FlushFailed, ev.Waited, ev.StopAsked, Exit, RankReport, RankLook, RankStack,
        RankEvidence, ReplicaDifference, Replica,
    ),
    is_brief=True,
)  # fmt: skip
_NUMBER = _FORM.reader(int)
_RANKS, _ENDED = _FORM.reader(tuple[RankState, ...]), _FORM.reader(tuple[RankEvidence, ...])
_WANTS, _FACTS = _FORM.reader(list[tuple[int, Want]]), _FORM.reader(list[tuple[int, ev.Event]])


def encode_order(order: HostOrder) -> dict[str, Any]:
    """An order as a host is sent it. Where the ranks are stands beside the launch, in brief."""
    wants: Register[Any] = Register()
    runs = None
    for number, want in order.wants.numbered():
        wants.newest = number - 1
        if isinstance(want, act.Launch):
            runs = _FORM.write(want.placement.runs)
            want = replace(want, placement=NOWHERE)
        wants.put(number, want)
    wants.newest = order.wants.newest
    return {
        "number": order.number,
        "attention": _FORM.write(order.attention),
        "wants": _entries(wants),
        "placement": runs,
    }


def decode_order(data: object) -> HostOrder:
    """Raises ValueError for what is no order, or one of a newer version."""
    fields = _mapping(data)
    wants: Register[Want] = _register(fields.get("wants"), _WANTS, subject_of_want)
    attention: Attention = _FORM.read(Attention, fields.get("attention"))
    runs = _FORM.read(list[tuple[int, int, int]] | None, fields.get("placement"))
    if runs is not None:
        placement = Placement.of_runs(runs)

        def placed(want: Want) -> Want:
            return replace(want, placement=placement) if isinstance(want, act.Launch) else want

        wants.change_each(placed)
    return HostOrder(_FORM.read(int, fields.get("number")), attention, wants)


def encode_report(report: HostReport) -> dict[str, Any]:
    """A report as a controller is sent it."""
    return {
        "number": report.number,
        "attempt": report.attempt,
        "ranks": _FORM.write(report.ranks),
        "facts": _entries(report.facts),
        "ended": _FORM.write(report.ended),
    }


def decode_report(data: object, read: int = 0) -> HostReport:
    """Without the facts up to number `read`, which are known.

    Raises ValueError for what is no report, or one of a newer version.
    """
    fields = _mapping(data)
    number, attempt = _NUMBER(fields.get("number")), _NUMBER(fields.get("attempt"))
    facts = _register(fields.get("facts"), _FACTS, subject_of_fact, read)
    ranks, ended = _RANKS(fields.get("ranks")), _ENDED(fields.get("ended"))
    return HostReport(number, attempt, ranks, facts, ended)


def _entries(register: Register[Any]) -> dict[str, Any]:
    entries = [[number, _FORM.write(entry)] for number, entry in register.numbered()]
    return {"newest": register.newest, "entries": entries}


def _register(
    data: object,
    read_entries: Callable[[Any], list[tuple[int, T]]],
    subject: Callable[[T], Hashable],
    read: int = 0,
) -> Register[T]:
    fields = _mapping(data)
    entries = fields.get("entries")
    if read and isinstance(entries, list):
        entries = [one for one in entries if not _is_read(one, read)]
    pairs = read_entries(entries)
    register: Register[T] = Register()
    for number, entry in pairs:
        if number <= register.newest:
            raise ValueError(f"entry {number} comes after entry {register.newest}")
        register.newest = number - 1
        register.put(subject(entry), entry)
    newest: int = _NUMBER(fields.get("newest"))
    if newest < register.newest:
        raise ValueError(f"the newest entry is {newest}, and entry {register.newest} is there")
    register.newest = newest
    return register


def _is_read(entry: object, read: int) -> bool:
    number = entry[0] if isinstance(entry, list) and entry else None
    return type(number) is int and number <= read


def _mapping(data: object) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{data!r} is no message")
    return data
