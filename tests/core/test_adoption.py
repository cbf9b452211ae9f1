"""Whether a controller that takes over goes on with what runs."""

from __future__ import annotations

import pytest

from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.adoption import Gathering, LastOrdered, Verdict, believed, waits_ns
from holdfast.core.hosts.members import HostLimits
from holdfast.core.hosts.order import CALM, Attention
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.says import HeldSlot
from holdfast.core.save.adopted import newest_epoch, newest_words
from holdfast.core.save.word import MAX_EPOCH, Order, pack

S = 1_000_000_000
STOPPING = Attention(is_stopping=True, deadline_ns=30 * S, source="SIGTERM on host 1")


def gathering(slots: int = 2, spares: int = 1) -> Gathering:
    return Gathering(4, range(slots), slots + spares, 10 * S)


def held(slot: int, order: int = 0, verdict: int = 0, attention: Attention = CALM) -> HeldSlot:
    return HeldSlot(slot, order, verdict, attention)


def report(*facts: ev.Event, attempt: int = 4) -> HostReport:
    made = HostReport(1, attempt)
    for fact in facts or (ev.Launched(0, attempt),):
        made.note(fact)
    return made


def test_what_all_hosts_run_goes_on() -> None:
    gathered = gathering()
    gathered.heard(0, "a", held(0), report())
    assert gathered.judge(0)[0] is Verdict.WAIT
    gathered.heard(2, "c", held(1), report())  # a spare, in the place of host 1
    assert gathered.judge(0) == (Verdict.ADOPT, "all its hosts are there")
    assert {slot: one.index for slot, one in gathered.holders.items()} == {0: 0, 1: 2}


ENDED = ev.RankExited(0, 4, 1, 0, Exit(code=1))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ((ev.Launched(0, 4), ENDED), "a rank on host 1 has ended"),
        ((ev.Launched(0, 4), ev.TreeGone(0, 4)), "a rank on host 1 has ended"),
        ((ev.LaunchFailed(0, 4, 70, "no memory"),), "a rank on host 1 has ended"),
        ((ev.Suspended(0, S),), "host 1 had not started all its ranks"),
    ],
)
def test_what_is_not_whole_is_ended_once_all_its_hosts_are_heard(
    facts: tuple[ev.Event, ...], reason: str
) -> None:
    """Not before: what the others have in memory is what the next attempt begins from."""
    gathered = gathering()
    gathered.heard(1, "b", held(1), report(*facts))
    gathered.heard(2, "c", None, HostReport())
    assert gathered.judge(10 * S - 1)[0] is Verdict.WAIT
    assert gathered.judge(10 * S) == (Verdict.END, reason)
    gathered.heard(0, "a", held(0), report())
    assert gathered.judge(0) == (Verdict.END, reason)


def test_who_is_not_heard_is_waited_for_as_long_as_a_host_is_before_it_is_lost() -> None:
    gathered = gathering()
    gathered.heard(0, "a", held(0), report())
    gathered.heard(2, "c", None, HostReport())
    assert gathered.judge(10 * S - 1)[0] is Verdict.WAIT
    verdict, reason = gathered.judge(10 * S)
    assert (verdict, reason) == (
        Verdict.END,
        "nothing was heard of the host that runs its part 1",
    )


def test_the_host_of_a_silent_controller_is_waited_for_as_long_as_one_that_lives_needs() -> None:
    """It has been silent for longer than a host that is lost; the others have just been called."""
    gathered = Gathering(4, range(3), 4, 10 * S, silent={0: 2 * S})
    gathered.heard(1, "b", held(1), report())
    assert (gathered.until_ns, gathered.judge(9 * S)[0]) == (10 * S, Verdict.WAIT)
    gathered.heard(3, "d", held(2), report())
    assert (gathered.until_ns, gathered.judge(2 * S - 1)[0]) == (2 * S, Verdict.WAIT)
    reason = "nothing was heard of the host that runs its part 0"
    assert gathered.judge(2 * S) == (Verdict.END, reason)
    gathered.heard(0, "a", held(0), report())
    assert gathered.judge(2 * S)[0] is Verdict.ADOPT


def test_of_several_hosts_that_are_silent_the_last_is_waited_for() -> None:
    gathered = Gathering(4, range(3), 4, 10 * S, silent={0: 3 * S, 1: 5 * S})
    assert gathered.until_ns == 10 * S
    gathered.heard(2, "c", held(2), report())
    assert gathered.until_ns == 5 * S
    gathered.heard(1, "b", held(1), report())
    assert gathered.judge(3 * S - 1)[0] is Verdict.WAIT
    assert gathered.judge(3 * S)[0] is Verdict.END


@pytest.mark.parametrize(
    ("silent_s", "waits_s"), [(0, 10), (3, 7), (8, 2), (9.5, 2), (1000, 2)], ids=str
)
def test_what_the_controller_before_has_waited_counts_but_one_that_lives_may_dial(
    silent_s: float, waits_s: int
) -> None:
    assert waits_ns(HostLimits(), round(silent_s * S)) == waits_s * S


def test_a_controller_that_heard_less_than_half_may_be_the_one_that_was_cut_off() -> None:
    assert believed({1: 5}, 2) == {1: 5}
    assert believed({0: 9, 1: 5}, 3) == {}
    assert believed({}, 0) == {}


def test_once_all_hosts_are_heard_nobody_else_is_waited_for() -> None:
    gathered = gathering()
    gathered.heard(0, "a", held(0), report())
    gathered.heard(1, "b", None, HostReport())  # its agent was started anew
    assert gathered.judge(0)[0] is Verdict.WAIT
    gathered.heard(2, "c", None, HostReport())
    assert gathered.judge(0) == (Verdict.END, "no host runs its part 1 any more")


def test_who_runs_an_older_attempt_has_no_part_of_this_one() -> None:
    gathered = gathering(slots=1, spares=1)
    gathered.heard(0, "old", held(0), report(attempt=3))
    gathered.heard(1, "new", held(0), report())
    assert gathered.judge(0)[0] is Verdict.ADOPT
    assert gathered.holders[0].incarnation == "new"


def test_what_was_ordered_last_on_any_host_is_what_goes_on() -> None:
    gathered = gathering()
    first, second = pack(6, 40), pack(7, 44, Order.STOP)
    gathered.heard(0, "a", held(0, second, attention=STOPPING), report())
    gathered.heard(1, "b", held(1, first, pack(6, 40, Order.ABORTED)), report())
    assert gathered.judge(0)[0] is Verdict.ADOPT
    assert gathered.found == LastOrdered(second, 0, STOPPING)


def test_the_outcome_counts_that_any_host_knows() -> None:
    order, verdict = pack(7, 44, Order.STOP), pack(7, 44, Order.COMMITTED | Order.STOP)
    assert newest_words([(order, 0), (order, verdict)]) == (order, verdict)
    assert newest_words([(0, 0)]) == (0, 0)


@pytest.mark.parametrize(
    ("epochs", "newest"),
    [((), 0), ((0, 0), 0), ((3, 0), 3), ((3, 4), 4), ((MAX_EPOCH, 1), 1), ((2, MAX_EPOCH - 1), 2)],
)
def test_epochs_begin_again_when_their_bits_are_used_up(
    epochs: tuple[int, ...], newest: int
) -> None:
    assert newest_epoch(epochs) == newest
