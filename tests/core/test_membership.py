"""Which hosts a run has: who gets which slot, who is lost, who is refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.membership import (
    Assign,
    HostLimits,
    Lose,
    Membership,
    MemberState,
    Move,
    RefuseHost,
    Tell,
)

S = 1_000_000_000
LIMITS = HostLimits(suspect_ns=2 * S, lost_ns=10 * S, gather_ns=60 * S)


def acts(moves: list[Move]) -> list[Move]:
    """What is done; what is said is looked at where it matters."""
    return [move for move in moves if not isinstance(move, Tell)]


def of_two(spares: int = 0) -> Membership:
    """Hosts 0 and 1 are there."""
    members = Membership(2, spares, LIMITS)
    assert acts(members.joined(0, 1, "b")) == [Assign(1, "b")]
    assert not members.is_complete
    assert members.missing == (0,)
    assert acts(members.joined(0, 0, "a")) == [Assign(0, "a")]
    assert members.is_complete
    return members


def test_each_host_has_the_slot_of_its_number() -> None:
    members = of_two(spares=1)
    assert acts(members.joined(1, 2, "spare")) == []
    assert members.members["spare"].state is MemberState.SPARE
    assert acts(members.joined(2, 0, "a")) == []  # it has only dialled again


def test_a_silent_host_is_suspect_and_then_lost_and_a_spare_takes_its_place() -> None:
    members = of_two(spares=1)
    members.joined(0, 2, "spare")
    assert members.next_look_ns() == 2 * S
    for at_s in range(1, 3):
        members.heard(at_s * S, "a")
        members.heard(at_s * S, "spare")
    assert members.look(2 * S) == [Tell("warning", "Nothing was heard of host 1 for 2 s")]
    assert members.members["b"].state is MemberState.SUSPECT
    for at_s in range(3, 11):
        members.heard(at_s * S, "a")
        members.heard(at_s * S, "spare")
    words = "nothing was heard of it for 10 s"
    assert members.look(10 * S) == [
        Lose(1, 1, "b", words),
        Tell("warning", f"Host 1 is lost: {words}"),
        Assign(1, "spare"),
        Tell("info", "Host 2, a spare, takes the place of host 1"),
    ]
    assert members.heard(11 * S, "b") == []  # it was given up
    assert acts(members.joined(12 * S, 1, "b again")) == []
    assert members.members["b again"].state is MemberState.SPARE


def test_a_suspect_that_speaks_is_no_suspect() -> None:
    members = of_two()
    members.heard(2 * S, "a")
    members.look(2 * S)
    assert members.heard(3 * S, "b") == [Tell("info", "Host 1 is heard again")]
    assert members.members["b"].state is MemberState.ASSIGNED


def test_without_a_spare_the_slot_waits_for_the_next_host() -> None:
    members = of_two()
    assert acts(members.gone(5 * S, "b", "it was powered off")) == [
        Lose(1, 1, "b", "it was powered off")
    ]
    assert members.missing == (1,)
    assert acts(members.joined(9 * S, 1, "b again")) == [Assign(1, "b again")]


def test_a_second_process_of_an_index_waits_until_the_first_is_gone() -> None:
    members = of_two()
    assert acts(members.joined(3 * S, 1, "another")) == []
    assert members.members["another"].state is MemberState.WAITING
    members.heard(9 * S, "another")
    members.heard(9 * S, "a")
    moves = members.look(10 * S)
    assert acts(moves) == [
        Lose(1, 1, "b", "nothing was heard of it for 10 s"),
        Assign(1, "another"),
    ]


def test_a_second_process_of_an_index_is_refused_while_the_first_lives() -> None:
    members = of_two()
    members.joined(3 * S, 1, "another")
    for at_s in range(4, 14):
        for incarnation in ("a", "b", "another"):
            members.heard(at_s * S, incarnation)
    words = (
        "another process runs as host 1, and is alive; give each host an index of its own, or this "
        "run another name"
    )
    assert acts(members.look(13 * S)) == [RefuseHost("another", words)]
    assert members.is_complete


def test_a_host_of_no_such_number_is_refused() -> None:
    members = Membership(2, 1, LIMITS)
    words = "there is no host 3: the run has hosts 0 to 2"
    assert acts(members.joined(0, 3, "d")) == [RefuseHost("d", words)]


def test_a_spare_takes_the_place_of_a_host_that_does_not_come() -> None:
    members = Membership(2, 1, LIMITS)
    members.joined(0, 0, "a")
    assert acts(members.joined(1 * S, 2, "spare")) == []
    members.heard(59 * S, "a")
    members.heard(59 * S, "spare")
    assert members.next_look_ns() == 60 * S
    assert acts(members.look(60 * S)) == [Assign(1, "spare")]


def test_hosts_that_end_what_they_ran_have_their_slots_again_and_a_spare_the_one_that_is_lost() -> (
    None
):
    """The controller that they had is gone with host 1; they join one after the other."""
    members = Membership(2, 2, LIMITS)
    members.gather_until(5 * S, 5 * S, {0: 0})
    assert acts(members.joined(5 * S, 2, "first spare")) == [Assign(1, "first spare")]
    assert acts(members.joined(5 * S, 3, "spare")) == []
    assert acts(members.look(6 * S)) == []
    assert acts(members.joined(7 * S, 0, "a")) == [Assign(0, "a")]


def test_who_had_taken_the_place_of_another_has_it_again() -> None:
    members = Membership(2, 1, LIMITS)
    members.gather_until(5 * S, 5 * S, {0: 0, 1: 2})
    assert acts(members.joined(5 * S, 1, "was lost before")) == []
    assert acts(members.joined(6 * S, 2, "c")) == [Assign(1, "c")]
    assert acts(members.joined(6 * S, 0, "a")) == [Assign(0, "a")]


def test_a_host_that_does_not_return_is_waited_for_as_long_as_one_that_is_silent() -> None:
    members = Membership(1, 1, LIMITS)
    members.gather_until(5 * S, 5 * S, {0: 0})
    members.joined(14 * S, 1, "spare")
    members.slept(1 * S)
    assert acts(members.look(15 * S)) == []
    assert members.next_look_ns() == 16 * S
    assert acts(members.look(16 * S)) == [Assign(0, "spare")]


def test_a_host_in_quarantine_is_not_waited_for() -> None:
    members = Membership(1, 1, LIMITS)
    members.set_quarantine(0, {0: "bad"})
    members.gather_until(5 * S, 5 * S, {0: 0})
    assert acts(members.joined(5 * S, 1, "spare")) == [Assign(0, "spare")]


def test_silence_does_not_count_while_the_controller_sleeps() -> None:
    members = of_two()
    members.slept(100 * S)
    assert members.look(101 * S) == []


def of_many(slots: int, spares: int = 0) -> Membership:
    """All of them are there."""
    members = Membership(slots, spares, LIMITS)
    for index in range(slots + spares):
        members.joined(0, index, f"host {index}")
    return members


def test_all_that_are_overdue_are_judged_together_and_told_in_one_sentence() -> None:
    members = of_many(20, spares=2)
    members.heard(2 * S, "host 0")
    members.heard(2 * S, "host 21")
    words = "Nothing was heard of 19 hosts for 2 s or longer: 1, 2, 3, 4, 5, 6, 7, 8 …"
    assert members.look(2 * S) == [Tell("warning", words)]
    heard = dict.fromkeys(["host 0", "host 1", "host 2", "host 21"], 10 * S)
    again = members.heard_lately(10 * S, heard)
    assert again == [Tell("info", "2 hosts are heard again: 1, 2")]
    moves = members.look(10 * S)
    (told,) = (one.words for one in moves if isinstance(one, Tell) and one.level == "warning")
    which = "3, 4, 5, 6, 7, 8, 9, 10 …"
    assert told == f"18 hosts are lost, {which}: nothing was heard of them for 10 s or longer"
    assert [one.slot for one in moves if isinstance(one, Lose)] == list(range(3, 20))
    # The other spare is lost as well: it takes nobody's place.
    assert [one for one in moves if isinstance(one, Assign)] == [Assign(3, "host 21")]


def test_a_suspect_whose_link_has_nothing_new_is_not_heard_again() -> None:
    members = of_two()
    members.heard(9 * S, "a")
    members.look(3 * S)
    assert members.heard_lately(10 * S, {"b": 1}) == []
    assert members.members["b"].state is MemberState.SUSPECT


@given(
    st.lists(st.tuples(st.integers(1, 300), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 100),
)
def test_words_that_lie_unread_are_no_silence_and_a_dead_host_is_found_once_all_is_read(
    turns: list[tuple[int, bool]], dies_ds: int
) -> None:
    """Two hosts speak each second, one of them until it dies; the controller reads now and then."""
    members, tenth = of_many(2), S // 10
    at_ds, read_ds, dead_heard_ds = 0, 0, 0
    for wait_ds, reads in turns:
        at_ds += wait_ds
        if reads:  # a word of this second lies there, or has come since the last reading
            heard = ["host 0"] if at_ds // 10 > read_ds // 10 else []
            if min(at_ds, dies_ds) // 10 > read_ds // 10:
                heard.append("host 1")
                dead_heard_ds = at_ds
            read_ds = at_ds
            members.heard_lately(read_ds * tenth, dict.fromkeys(heard, read_ds * tenth))
        due_ns = members.next_look_ns()
        members.look(at_ds * tenth, read_ds * tenth)
        assert members.members["host 0"].state is MemberState.ASSIGNED
        is_found = members.members["host 1"].state is MemberState.LOST
        assert is_found == (read_ds - dead_heard_ds >= 100)
        if is_found:
            assert due_ns is not None
            return
        due_ns = members.next_look_ns()
        assert due_ns is not None
        assert due_ns > at_ds * tenth  # it is no use to look again at once


def test_a_silent_spare_that_takes_a_slot_is_suspect_at_once() -> None:
    members = Membership(1, 1, LIMITS)
    members.joined(0, 0, "host 0")
    members.joined(4 * S, 1, "host 1")
    members.look(11 * S)
    assert members.members["host 0"].state is MemberState.LOST
    assert members.members["host 1"].state is MemberState.SUSPECT
    due_ns = members.next_look_ns()
    assert due_ns is not None
    assert due_ns > 11 * S


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "hear", "closed", "gone", "look", "wait", "sleep"]),
        st.integers(0, 4),
        st.integers(0, 2),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 3), st.integers(0, 2))
def test_whatever_happens_each_slot_has_one_host_and_each_loss_is_told_once(
    steps: list[Step], slots: int, spares: int
) -> None:
    members, at_ns = Membership(slots, spares, LIMITS), 0
    held: dict[int, str] = {}  # by what was decided: slot → incarnation
    for what, index, which in steps:
        incarnation = f"{index}.{which}"
        moves: list[Move] = []
        if what == "join":
            moves = members.joined(at_ns, index, incarnation)
        elif what == "hear":
            moves = members.heard(at_ns, incarnation)
        elif what == "closed":
            moves = members.closed(at_ns, incarnation)
        elif what == "gone":
            moves = members.gone(at_ns, incarnation, "seen")
        elif what == "sleep":
            at_ns += S
            members.slept(S)
        elif what == "wait":
            at_ns += (1 + 3 * which) * S
        else:
            moves = members.look(at_ns)
            due_ns = members.next_look_ns()
            assert due_ns is None or due_ns > at_ns
        for move in moves:
            if isinstance(move, Assign):
                assert move.slot not in held
                assert move.incarnation not in held.values()
                assert members.members[move.incarnation].index < slots + spares
                held[move.slot] = move.incarnation
            elif isinstance(move, Lose):
                del held[move.slot]
        assert members.missing == tuple(slot for slot in range(slots) if slot not in held)
        there = [
            (one.index, one.incarnation)
            for one in members.members.values()
            if one.state in (MemberState.SPARE, MemberState.ASSIGNED, MemberState.SUSPECT)
        ]
        assert len({index for index, _ in there}) == len(there)
        assert set(held.values()) <= {incarnation for _, incarnation in there}
        for slot, holder in held.items():
            assert members.members[holder].slot == slot
        # That nobody is looked at too late, though who is due is not counted anew at each word.
        due_ns = members.next_look_ns()
        for one in members.members.values():
            assert not one.is_there or (due_ns is not None and due_ns <= members._due_ns(one))


def test_a_host_in_quarantine_has_no_slot_until_it_is_released() -> None:
    members = of_two(spares=1)
    members.joined(0, 2, "spare")
    words = "it is in quarantine (slow)"
    assert members.set_quarantine(S, {1: "slow"}) == [
        Lose(1, 1, "b", words),
        Tell("warning", f"Host 1 gives up its part: {words}"),
        Assign(1, "spare"),
        Tell("info", "Host 2, a spare, takes the place of host 1"),
    ]
    assert members.set_quarantine(S, {1: "slow"}) == []
    told = [Tell("warning", "Host 1 is in quarantine (slow)")]
    assert members.joined(2 * S, 1, "b again") == told
    assert members.members["b again"].state is MemberState.QUARANTINED
    assert acts(members.gone(3 * S, "spare", "off"))[0].slot == 1  # nobody can take its place
    assert members.missing == (1,)
    assert acts(members.set_quarantine(4 * S, {})) == [Assign(1, "b again")]


def test_a_spare_in_quarantine_takes_nobodys_place() -> None:
    members = of_two(spares=1)
    members.set_quarantine(0, {2: "slow"})
    members.joined(0, 2, "spare")
    assert acts(members.gone(S, "a", "off")) == [Lose(0, 0, "a", "off")]
    assert acts(members.set_quarantine(2 * S, {})) == [Assign(0, "spare")]
    members.joined(3 * S, 0, "a again")
    assert members.members["a again"].state is MemberState.SPARE
    members.set_quarantine(4 * S, {0: "slow"})
    assert members.members["a again"].state is MemberState.QUARANTINED
    members.set_quarantine(5 * S, {})
    assert members.members["a again"].state is MemberState.SPARE


def test_a_spare_does_not_wait_for_a_host_in_quarantine() -> None:
    members = Membership(2, 1, LIMITS)
    members.set_quarantine(0, {1: "slow"})
    assert acts(members.joined(0, 2, "spare")) == [Assign(1, "spare")]
    assert acts(members.joined(0, 0, "a")) == [Assign(0, "a")]
    assert members.is_complete


def test_a_spare_that_fits_no_slot_is_not_looked_at_again_and_again() -> None:
    members = Membership(2, 1, LIMITS)
    members.joined(0, 0, "a", "one")
    members.joined(0, 1, "b", "one")
    members.joined(0, 2, "other", "two")
    members.gone(1, "b", "seen")
    at_ns = 61 * S
    for one in ("a", "other"):
        members.heard(at_ns, one)
    assert acts(members.look(at_ns)) == []
    due_ns = members.next_look_ns()
    assert due_ns is not None
    assert due_ns > at_ns
