"""Whether a host that has failed is fit to train, before the next attempt. Pure.

    orders = plan(number, nonce, suspects={1}, places=[...])  # by incarnation
    judged = judge(begun_ns, at_ns, orders, answers)

A host that is suspected looks at itself, and exchanges bytes with its neighbours in the ring of the
hosts that train; these only answer. So a dead network card, or a network cut one way, is found
before a framework's rendezvous hangs on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from holdfast.core.durations import SECOND_NS, in_words
from holdfast.core.value import value

LIMIT_NS = 20 * SECOND_NS  # for the host itself
ANSWER_LIMIT_NS = 30 * SECOND_NS  # for its word to arrive


@value
class Neighbour:
    """Another host, and where it answers."""

    index: int
    address: str
    port: int


@value
class PreflightOrder:
    """What one host does in a preflight. `number`: of the preflight, in this controller's life.

    `nonce`: the hosts know each other by it, with the run's secret. `checks`: whether it looks at
    itself. `dials`: with whom it exchanges bytes; it answers whoever knows the nonce.
    """

    number: int
    nonce: str
    checks: bool
    dials: tuple[Neighbour, ...] = ()


@value
class PreflightAnswer:
    """What came of it. `failure`: "" if the host is fit. `words`: what was tried.

    `of_store`: what has failed is the run store, which may be away for all.
    """

    number: int
    failure: str
    words: str
    took_ns: int
    of_store: bool = False


@value
class HostPlace:
    """A host that trains. `port` 0: it has told none."""

    slot: int
    index: int
    incarnation: str
    address: str = ""
    port: int = 0


def plan(
    number: int, nonce: str, suspects: Collection[int], places: Sequence[HostPlace]
) -> dict[str, PreflightOrder]:
    """What each host is to do, by incarnation; others have nothing to do. `suspects`: indices."""
    ring = sorted(places, key=lambda one: one.slot)
    orders: dict[str, PreflightOrder] = {}
    for where, one in enumerate(ring):
        if one.index not in suspects:
            continue
        dials = _neighbours(ring, where, suspects)
        known = tuple(Neighbour(n.index, n.address, n.port) for n in dials)
        orders[one.incarnation] = PreflightOrder(number, nonce, True, known)
        for other in dials:
            orders.setdefault(other.incarnation, PreflightOrder(number, nonce, False))
    return orders


def _neighbours(
    ring: Sequence[HostPlace], where: int, suspects: Collection[int]
) -> tuple[HostPlace, ...]:
    """One on each side, if it can be met: those that nothing speaks against, if there are any."""
    others = [ring[(where + step) % len(ring)] for step in range(1, len(ring))]
    others = [one for one in others if one.address and one.port]
    trusted = [one for one in others if one.index not in suspects] or others
    ends = (trusted[0], trusted[-1]) if trusted else ()
    return tuple(dict.fromkeys(ends))


@value
class Judged:
    """`failed`: why, by incarnation. `waits`: somebody has not answered yet, and may.

    `of_store`: one has failed for want of the run store.
    """

    passed: dict[str, PreflightAnswer]
    failed: dict[str, str]
    waits: bool
    of_store: bool = False


def judge(
    begun_ns: int,
    at_ns: int,
    orders: Mapping[str, PreflightOrder],
    answers: Mapping[str, PreflightAnswer | None],
) -> Judged:
    """What is known of those that look at themselves. Who says nothing has failed after a while."""
    passed, failed, waits, of_store = {}, {}, False, False
    for incarnation, order in orders.items():
        if not order.checks:
            continue
        answer = answers.get(incarnation)
        if answer is not None and answer.number == order.number:
            if answer.failure:
                failed[incarnation] = answer.failure
                of_store = of_store or answer.of_store
            else:
                passed[incarnation] = answer
        elif at_ns - begun_ns >= ANSWER_LIMIT_NS:
            failed[incarnation] = f"it gave no answer within {in_words(ANSWER_LIMIT_NS)}"
        else:
            waits = True
    return Judged(passed, failed, waits, of_store)
