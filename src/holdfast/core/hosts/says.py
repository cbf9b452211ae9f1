"""What an agent and the controller of several hosts send each other, each as one register. Pure.

With `HostSays` goes the report of a host (`core.hosts.report`), with `ControllerSays` the order
(`core.hosts.order`): beside these they say who speaks, and which slot of the run's placement the
host has. A message holds all that is true, so the newest one is enough.

Times are on the sender's clock, and `sent_ns` too (`core.hosts.clocks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from holdfast.core.hosts.copies import NOWHERE, CopyPlaces, HeldPart
from holdfast.core.hosts.messages import (
    decode_order,
    decode_report,
    encode_order,
    encode_report,
)
from holdfast.core.hosts.order import Attention, HostOrder
from holdfast.core.hosts.preflight import Neighbour, PreflightAnswer, PreflightOrder
from holdfast.core.hosts.report import HostReport
from holdfast.core.notices.board import Notice
from holdfast.core.plain_json import Parts, packed_json
from holdfast.core.value import value

PROTOCOL = 9


class Asking(StrEnum):
    """What somebody on a host has asked of the whole run."""

    STOP = "stop"  # save and leave, by a deadline if there is one
    INTERRUPT = "interrupt"  # Ctrl-C: the second one means now
    STOP_NOW = "stop now"


@value
class HostAsks:
    """`number`: counts what this agent was asked. `deadline_ns`: on its clock."""

    number: int
    what: Asking
    source: str
    deadline_ns: int | None = None


@value
class HeldSlot:
    """What a host runs, for a controller that takes over. `slot`: which part of the attempt.

    `order`, `verdict`: the words in its ranks' pages (`core.save.word`); 0: there is none.
    `attention`: as it was ordered last, its deadline on the host's clock.
    """

    slot: int
    order: int
    verdict: int
    attention: Attention


@value
class HostSays:
    """An agent. `number`: counts its messages. `assignment`: the number of the one it acts on.

    `agent`: its first incarnation; what it was asked is counted over all of them.

    `difference_ns`: what it has measured between the controller's clock and its own.

    `runs`: what it would run, and with what, as pairs of a name and a value: the same on all hosts.
    It is told until the controller is heard after that, which has it then.

    `held`: what it runs; None: it has no slot. `address` and `ports`: where its ranks can be met,
    should one of them be rank 0. `heard`: the number of the controller's newest message, by which
    this was said. `asks` and `notices` hold for as long as the run lives. `copies`: what of sets
    lies in its memory, and `copy_port`, where others get that; 0: nowhere. `preflight`: what came
    of the last one that was ordered. `boot`: whose clock its times are on. `slice`: which one of
    several it belongs to; "": nobody says. `wall_ns`: by how much its wall clock is ahead of that.
    `chips`: how many accelerators it has; 0: nobody says.
    """

    index: int
    incarnation: str
    agent: str
    number: int
    sent_ns: int
    difference_ns: int | None = None
    assignment: int = 0
    runs: tuple[tuple[str, str], ...] = ()
    address: str = ""
    ports: tuple[int, ...] = ()
    asks: tuple[HostAsks, ...] = ()
    notices: tuple[Notice, ...] = ()
    held: HeldSlot | None = None
    heard: int = 0
    copies: tuple[HeldPart, ...] = ()
    copy_port: int = 0
    preflight: PreflightAnswer | None = None
    boot: str = ""
    slice: str = ""
    wall_ns: int = 0
    chips: int = 0


@value
class Assignment:
    """A host has this slot, as a new and empty one. `begins_at`: the wants after that are its own.

    `number`: it is another assignment when this is another number. `goes_on`: the host has the slot
    already, by an earlier controller, and goes on with what it runs.
    """

    number: int
    slot: int
    begins_at: int
    goes_on: bool = False


@value
class Over:
    """The run is over for this controller: with which exit code, and in words.

    `leaves_memory`: a set in memory is newer than all that is durable.
    """

    exit_code: int
    words: str
    leaves_memory: bool = True


@value
class ControllerSays:
    """To one host. `assignment` None: it is a spare, and ends what it runs.

    `is_undecided`: whether what it runs goes on is not known yet. `is_given_up`: it was taken for
    lost, or what it runs is of no use, and it is to join as another one. `refused`: why it is no
    part of the run. `difference_ns`: what the controller has measured
    between the host's clock and its own. `places`: where it gets parts of sets in memory.
    `preflight`: what it is to do for the one under way.
    """

    number: int
    sent_ns: int
    difference_ns: int | None = None
    assignment: Assignment | None = None
    is_given_up: bool = False
    refused: str | None = None
    over: Over | None = None
    is_undecided: bool = False
    places: CopyPlaces = NOWHERE
    preflight: PreflightOrder | None = None


_FORM = Parts(
    "part",
    (
        HostSays, HeldSlot, HostAsks, Notice, ControllerSays, Assignment, Over,
        PreflightOrder, PreflightAnswer, Neighbour,
    ),
    is_brief=True,
)  # fmt: skip


def encode_host(says: HostSays, report: HostReport) -> dict[str, Any]:
    """As an agent sends it."""
    return {"protocol": PROTOCOL, "says": _FORM.write(says), "report": encode_report(report)}


def decode_host(data: object, read: int = 0) -> tuple[HostSays, HostReport]:
    """Without the report's facts up to number `read`, which are known.

    Raises ValueError for what is none, or one of another version.
    """
    fields = _checked(data)
    says: HostSays = _FORM.read(HostSays, fields.get("says"))
    return says, decode_report(fields.get("report"), read)


def encode_controller(says: ControllerSays, order: bytes | None) -> bytes:
    """As the controller sends it. `order`: as `order_json` gives it, the same for all hosts."""
    own = packed_json({"protocol": PROTOCOL, "says": _FORM.write(says)})
    return b"".join((own[:-1], b',"order":', b"null" if order is None else order, b"}"))


def order_json(order: HostOrder) -> bytes:
    """An order, as a part of what is sent to every host: it is written once."""
    return packed_json(encode_order(order))


def decode_controller(data: object) -> tuple[ControllerSays, HostOrder | None]:
    """Raises ValueError for what is none, or one of another version."""
    fields = _checked(data)
    says: ControllerSays = _FORM.read(ControllerSays, fields.get("says"))
    order = fields.get("order")
    return says, None if order is None else decode_order(order)


def _checked(data: object) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError("it is no object")
    if data.get("protocol") != PROTOCOL:
        raise ValueError(
            f"it speaks protocol {data.get('protocol')!r}, and this Holdfast {PROTOCOL}: "
            "have one version on all hosts"
        )
    return data
