"""Whatever sources tell, and whenever: no run loses a step where a deadline allowed a save."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.core import events as ev
from holdfast.core.notices.board import Notice, NoticeAction, NoticeState
from holdfast.core.run.machine import RunPolicy
from holdfast.core.save import policy as saves
from holdfast.sim.clock import MS, SECOND
from holdfast.sim.virtual.shape import Shape
from holdfast.sim.virtual.world import VirtualWorld

shapes = st.builds(
    Shape,
    ranks=st.integers(1, 2),
    until=st.just(10**6),
    step_ns=st.sampled_from([500 * MS, 900 * MS]).map(lambda ns: (ns,)),
    copy_ns=st.sampled_from([1 * MS, 50 * MS]),
    write_ns=st.sampled_from([100 * MS, 4 * SECOND]),
    flush_ns=st.sampled_from([100 * MS, 3 * SECOND]),
    buffers=st.sampled_from([0, 0, 3]),
)
told = st.tuples(
    st.integers(0, 8),  # seconds after the one before
    st.sampled_from(["gce", "aws", "slurm"]),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(NoticeAction),
    st.sampled_from([NoticeState.SCHEDULED, NoticeState.SCHEDULED, NoticeState.WITHDRAWN]),
    st.sampled_from([22, 30, 45]),  # seconds ahead: at least twice what is needed
    st.booleans(),  # told, or promised
)


LONG_WRITE = Shape(
    ranks=1, until=1_000_000, step_ns=(500 * MS,), copy_ns=MS, write_ns=4 * SECOND,
    flush_ns=100 * MS, buffers=0,
)  # fmt: skip
CALLED_OFF_TOO_LATE = [
    (0, "gce", "", NoticeAction.REBOOT, NoticeState.SCHEDULED, 22, False),
    (13, "gce", "", NoticeAction.FREEZE, NoticeState.SCHEDULED, 22, False),
]
LONG_FLUSH = Shape(
    ranks=2, until=1_000_000, step_ns=(500 * MS,), copy_ns=MS, write_ns=100 * MS,
    flush_ns=3 * SECOND, buffers=3,
)  # fmt: skip
A_FREEZE_FIRST = [
    (0, "gce", "a", NoticeAction.FREEZE, NoticeState.SCHEDULED, 22, False),
    (5, "gce", "", NoticeAction.FREEZE, NoticeState.SCHEDULED, 22, False),
    (5, "gce", "", NoticeAction.REBOOT, NoticeState.SCHEDULED, 22, False),
]
ASKED_FOR_WHILE_ANOTHER_IS_WRITTEN = [  # and begun, it would be in the way of the last one
    (0, "gce", "", NoticeAction.DRAIN, NoticeState.SCHEDULED, 22, False),
    (8, "gce", "a", NoticeAction.FREEZE, NoticeState.SCHEDULED, 22, False),
    (7, "aws", "a", NoticeAction.REBOOT, NoticeState.SCHEDULED, 22, False),
]
SOON_AND_NOT_THE_VENDORS_OWN = [  # a save at once would be in the way of the last one
    *[(wait_s, "gce", name, NoticeAction.FREEZE, NoticeState.SCHEDULED, 22, False)
      for wait_s, name in ((0, ""), (0, ""), (2, "a"), (5, ""))],
    (5, "gce", "a", NoticeAction.REBOOT, NoticeState.SCHEDULED, 22, False),
]  # fmt: skip


@settings(max_examples=20)
@example(LONG_WRITE, SOON_AND_NOT_THE_VENDORS_OWN)
@example(LONG_WRITE, CALLED_OFF_TOO_LATE)
@example(LONG_WRITE, ASKED_FOR_WHILE_ANOTHER_IS_WRITTEN)
@example(LONG_FLUSH, A_FREEZE_FIRST)
@given(shapes, st.lists(told, min_size=1, max_size=6))
def test_no_step_is_lost_that_a_deadline_left_time_for(shape: Shape, notes: list[tuple]) -> None:
    policy = RunPolicy(shape.ranks, saves.EverySteps(20), save_in_memory=saves.EverySteps(5))
    world = VirtualWorld(shape, policy)
    world.open()
    world.run_until(lambda: world.machine.saving.save_time.is_measured, 10**15)
    deadlines: dict[tuple[str, str, str], int] = {}  # of ends that stand, by who tells of them
    dates: list[int] = []  # of all that was told, ends or not
    promised: list[tuple[object, ...]] = []
    for wait_s, source, name, action, state, ahead_s, is_told in notes:
        world.run_for(wait_s * SECOND)
        if world.finish is not None:
            break
        now_ns, ahead_ns = world.now_ns, ahead_s * SECOND
        notice = Notice(source, action, now_ns, state, event_id=name, topic="it")
        deadline = {"deadline_ns": now_ns + ahead_ns} if is_told else {"lead_ns": ahead_ns}
        notice = replace(notice, **deadline)
        dates.append(now_ns + ahead_ns)
        if state is NoticeState.WITHDRAWN or not action.is_end:
            if world.machine.stop is not None:
                break  # it is saving its last step by now, and leaves all the same
            deadlines.pop(notice.key, None)
        elif is_told or (notice.key, notice.lead_ns, action) not in promised:
            deadlines[notice.key] = now_ns + ahead_ns
        promised = [one for one in promised if one[0] != notice.key]
        if state is NoticeState.SCHEDULED and not is_told:  # told again, it moves nothing
            promised.append((notice.key, notice.lead_ns, action))
        world.feed(ev.Noticed(now_ns, notice))
    if world.finish is None and not deadlines:
        world.run_for(50 * SECOND)
        assert world.finish is None, "it left, and nobody had asked for that"
        return
    world.run_until(lambda: False, max(deadlines.values(), default=world.now_ns))
    assert world.finish is not None, "the host was taken"
    assert world.finish.exit_code == 75
    # The worst of what is told of a host counts, by the earliest date that was told of it: with too
    # little time until then, what is in memory goes first, and people hear what is at risk.
    is_sooner = min(dates) < min(deadlines.values(), default=0)
    if is_sooner and any("are left, and a save" in words for words in world.said):
        return
    # What a rank does in the millisecond until it is killed, with nothing to save, nobody knew of.
    known = world.machine.saving.fastest_step
    assert max(one.step for one in world.store.sets) == known >= world.step - 1, "steps were lost"
