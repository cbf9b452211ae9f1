"""Machines that are detected, deleted and created again: the table, properties, and a small world.

The world is explored whole: a crash at every point, answers that get lost, services that refuse,
an act that is carried out long after somebody else took over. Nothing is doubled, nothing is
forgotten.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.fleet import (
    HOUR_NS,
    MINUTE_NS,
    SECOND_NS,
    ActOutcome,
    Condition,
    Maintenance,
    Resource,
    ResourceState,
    Slice,
    SliceHealth,
    SliceState,
    diagnose,
    to_rehearse,
)
from holdfast.core.hosts.recover import (
    Act,
    Action,
    Decision,
    GenerationPhase,
    RecoverPolicy,
    RecoveryRecord,
    ResourcesSeen,
    Unseen,
    answered,
    decide,
    generation_of,
    name_of,
    waiting_for,
)
from holdfast.core.ledger.kinds import WAIT_KINDS

RUN = ("lm", "c0ffee")
FREE = RecoverPolicy(may_delete=True, may_create=True)
NOW = 10**18
UP = ResourceState.UP
READY = SliceState.READY


def slices(*states, name="lm-g1"):
    return tuple(
        Slice(f"{name}-{n}", *(one if isinstance(one, tuple) else (one,)))
        for n, one in enumerate(states)
    )


def resource(*states, name="lm-g1", owner=RUN[1], state=UP, wanted=None):
    return Resource(name, state, owner, slices(*states, name=name), wanted or len(states))


def standing(condition=Condition.HEALTHY, **more):
    return RecoveryRecord(GenerationPhase.STANDING, 1, condition, NOW, **more)


def at(record, *resources, policy=FREE, now=NOW):
    return decide(policy, RUN, record, ResourcesSeen(resources), now)


# --- what is the matter -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "condition"),
    [
        (None, Condition.GONE),
        (resource(READY), Condition.HEALTHY),
        (resource((READY, SliceHealth.HEALTHY)), Condition.HEALTHY),
        (resource((READY, SliceHealth.MAINTENANCE)), Condition.MAINTENANCE),
        (resource((READY, SliceHealth.UNHEALTHY)), Condition.SICK),
        (resource((READY, SliceHealth.SILENT)), Condition.SICK),
        (resource(SliceState.REPAIRING), Condition.MAINTENANCE),
        (resource(SliceState.PREEMPTED), Condition.PREEMPTED),
        (resource(READY, SliceState.PREEMPTED), Condition.PREEMPTED),
        (resource(SliceState.PREEMPTED, SliceState.UNKNOWN), Condition.UNKNOWN),
        (resource(SliceState.PREEMPTED, SliceState.STOPPED), Condition.STOPPED),
        (resource(READY, wanted=2), Condition.INCOMPLETE),
        (resource(state=ResourceState.WAITING), Condition.WAITING),
        (resource(SliceState.CREATING, state=ResourceState.CREATING), Condition.CREATING),
        (resource(state=ResourceState.SUSPENDED), Condition.PREEMPTED),
        (resource(state=ResourceState.FAILED), Condition.PREEMPTED),
        (resource(READY, state=ResourceState.DELETING), Condition.LEAVING),
        (resource(READY, state=ResourceState.UNKNOWN), Condition.UNKNOWN),
        (Resource("lm-g1", UP, RUN[1], (), 0), Condition.UNKNOWN),
    ],
)  # fmt: skip
def test_the_gravest_condition_counts(found, condition):
    assert diagnose(found)[0] is condition


def test_a_node_and_its_only_slice_are_told_once():
    one = resource(SliceState.DELETING, state=ResourceState.DELETING)
    alone = replace(one, slices=(replace(one.slices[0], name=one.name),))
    assert diagnose(alone) == (Condition.LEAVING, "lm-g1 is being deleted")


def test_a_window_that_is_open_is_maintenance_and_one_that_is_announced_is_not():
    for is_ongoing in (True, False):
        window = Maintenance(is_ongoing=is_ongoing)
        one = Slice("lm-g1-0", READY, SliceHealth.HEALTHY, maintenance=window)
        found, reason = diagnose(Resource("lm-g1", UP, slices=(one,)))
        assert found is (Condition.MAINTENANCE if is_ongoing else Condition.HEALTHY)
        assert "lm-g1-0" in reason


# --- the table ----------------------------------------------------------------------------------

PREEMPTED = resource((READY, SliceHealth.HEALTHY), SliceState.PREEMPTED)
SICK = resource((READY, SliceHealth.SILENT))


def test_a_preempted_one_is_deleted_and_the_healthy_slices_are_named():
    action, record, reason = at(standing(), PREEMPTED)
    assert action == Action(Act.DELETE, "lm-g1", healthy=("lm-g1-0",))
    assert (record.phase, record.deleted_unix_ns) == (GenerationPhase.DELETING, (NOW,))
    assert reason == "lm-g1-1 was preempted"
    leaving = replace(PREEMPTED, state=ResourceState.DELETING)
    assert at(record, leaving).action.act is Act.WAIT
    action, record, _ = at(record)
    assert action == Action(Act.CREATE, "lm-g2")
    assert (record.phase, record.generation) == (GenerationPhase.CREATING, 2)
    assert at(record).action == Action(Act.CREATE, "lm-g2")  # it crashed before it asked
    action, record, _ = at(record, resource(READY, name="lm-g2"))
    assert (action.act, record.phase) == (Act.REST, GenerationPhase.STANDING)


@pytest.mark.parametrize(
    ("policy", "found", "act"),
    [
        (RecoverPolicy(), (PREEMPTED,), Act.DELETE),
        (RecoverPolicy(may_create=True), (PREEMPTED,), Act.DELETE),
        (RecoverPolicy(), (), Act.CREATE),
        (RecoverPolicy(may_delete=True), (), Act.CREATE),
    ],
)
def test_what_is_not_allowed_is_told_and_changes_nothing(policy, found, act):
    record = standing()
    action, after, _ = at(record, *found, policy=policy)
    assert (action.act, action.is_forbidden) == (act, True)
    assert (after.phase, after.generation, after.deleted_unix_ns) == (
        GenerationPhase.STANDING,
        1,
        (),
    )


@pytest.mark.parametrize(
    ("found", "limit_ns"),
    [
        (SICK, FREE.sick_limit_ns),
        (resource(READY, wanted=2), FREE.sick_limit_ns),
        (resource((READY, SliceHealth.MAINTENANCE)), FREE.maintenance_limit_ns),
        (resource(SliceState.CREATING, state=ResourceState.CREATING), FREE.creating_limit_ns),
    ],
)
def test_what_may_pass_is_waited_for_until_its_limit(found, limit_ns):
    action, record, _ = at(standing(), found)
    assert action.act is Act.WAIT
    assert at(record, found, now=NOW + limit_ns - 1).action.act is Act.WAIT
    action, _, reason = at(record, found, now=NOW + limit_ns)
    assert action.act is Act.DELETE
    assert reason.startswith("stuck: ")
    # It came back for a moment: the time counts anew. So it does when the clock is set back.
    well = at(record, resource(READY)).record
    assert at(well, found, now=NOW + limit_ns).action.act is Act.WAIT
    assert at(record, found, now=NOW - HOUR_NS).record.since_unix_ns == NOW - HOUR_NS


@pytest.mark.parametrize(
    "look",
    [
        Unseen("the service does not answer"),
        ResourcesSeen([resource(SliceState.UNKNOWN)]),
        ResourcesSeen([resource(SliceState.PREEMPTED, SliceState.UNKNOWN)]),
        ResourcesSeen([resource(state=ResourceState.WAITING)]),
    ],
)
def test_on_an_error_or_an_unknown_state_nothing_is_done_however_long(look):
    for phase in GenerationPhase:
        record = RecoveryRecord(phase, 1, Condition.UNKNOWN, 0)
        decision = decide(FREE, RUN, record, look, NOW)
        assert decision.action.act is Act.WAIT
        assert decision.record.phase is phase


@pytest.mark.parametrize("phase", GenerationPhase)
@pytest.mark.parametrize("owner", ["", "another"])
def test_what_does_not_carry_the_runs_label_is_left_alone(phase, owner):
    foreign = resource(SliceState.PREEMPTED, owner=owner)
    record = RecoveryRecord(phase, 1, Condition.GONE, NOW)
    action, after, reason = at(record, foreign)
    assert (action.act, after) == (Act.ASK, record)
    assert "label" in reason


def test_so_many_in_an_hour_and_no_more():
    record = standing()
    for n in range(FREE.most_deletions):
        action, after, _ = at(record, PREEMPTED, now=NOW + n)
        assert action.act is Act.DELETE
        record = replace(after, phase=GenerationPhase.STANDING)
    action, _, reason = at(record, PREEMPTED, now=NOW + HOUR_NS - 1)
    assert action.act is Act.WAIT
    assert reason == "lm-g1-1 was preempted; 4 were deleted within 1 h, so this one waits"
    assert at(record, PREEMPTED, now=NOW - HOUR_NS).action.act is Act.WAIT
    assert at(record, PREEMPTED, now=NOW + HOUR_NS).action.act is Act.DELETE
    # What a crash left half done was counted when it was decided.
    assert at(replace(record, phase=GenerationPhase.DELETING), PREEMPTED).action.act is Act.DELETE


def test_one_that_came_back_before_its_deletion_is_kept():
    record = at(standing(), PREEMPTED).record
    action, after, _ = at(record, resource(READY, READY))
    assert (action.act, after.phase) == (Act.REST, GenerationPhase.STANDING)


def test_a_stopped_one_is_a_persons_matter():
    action, _, reason = at(standing(), resource(SliceState.STOPPED))
    assert action.act is Act.ASK
    assert reason == "lm-g1-0 was stopped by somebody: start it, or delete it"


@pytest.mark.parametrize(
    ("outcome", "shortest_ns", "cap_ns"),
    [
        (ActOutcome.STOCKOUT, 30 * SECOND_NS, 10 * MINUTE_NS),
        (ActOutcome.QUOTA, 5 * MINUTE_NS, HOUR_NS),
        (ActOutcome.TROUBLE, 5 * SECOND_NS, 2 * MINUTE_NS),
        (ActOutcome.REFUSED, 30 * SECOND_NS, HOUR_NS),
    ],
)
def test_a_failed_creation_is_tried_again_ever_later(outcome, shortest_ns, cap_ns):
    record, now, waits = at(standing()).record, NOW, []
    for _ in range(12):
        record = answered(record, Act.CREATE, outcome, "no", now, 0.9)
        action, _, reason = at(record, now=record.not_before_unix_ns - 1)
        assert action.act is Act.WAIT
        assert reason.endswith(f" ({outcome}: no)")
        now = record.not_before_unix_ns
        action, record, _ = at(record, now=now)
        assert action == Action(Act.CREATE, "lm-g2")
        waits.append(record.wait_ns)
    assert waits == sorted(waits)
    assert waits[0] >= shortest_ns
    assert 0.9 * cap_ns <= waits[-1] <= cap_ns
    well = at(record, resource(READY, name="lm-g2")).record
    assert (well.wait_ns, well.why) == (0, "")


def given_up(name="lm-g1", failure=ActOutcome.QUOTA, words="8 of 8 are taken", slices=()):
    return Resource(
        name, ResourceState.FAILED, RUN[1], slices, words=words, failure=failure
    )  # fmt: skip


def test_a_request_that_was_given_up_is_deleted_and_made_again_ever_later():
    record, now, waits = RecoveryRecord(condition=Condition.WAITING, since_unix_ns=NOW), NOW, []
    for number in range(1, 13):
        name = name_of("lm", number)
        found = given_up(name)
        action, record, reason = decide(FREE, RUN, record, ResourcesSeen([found]), now, 0.9)
        assert action == Action(Act.DELETE, name)
        assert "8 of 8 are taken" in reason
        assert at(record, found, now=now).action == action  # it crashed before it asked
        action, _, reason = at(record, now=record.not_before_unix_ns - 1)
        assert (action.act, action.name) == (Act.WAIT, name_of("lm", number + 1))
        assert reason.endswith(" (quota: 8 of 8 are taken)")
        waits.append(record.not_before_unix_ns - now)
        now = record.not_before_unix_ns
        action, record, _ = at(record, now=now)
        assert action == Action(Act.CREATE, name_of("lm", number + 1))
    assert waits == sorted(waits)
    assert waits[0] >= 5 * MINUTE_NS
    assert 0.9 * HOUR_NS <= waits[-1] <= HOUR_NS
    assert record.deleted_unix_ns == ()  # `--most` is about machines, and these had none


def test_one_that_was_given_up_with_a_machine_counts_as_deleted():
    machine = slices(READY)
    _, record, _ = at(standing(), given_up(slices=machine))
    assert record.deleted_unix_ns == (NOW,)
    full = standing(deleted_unix_ns=(NOW,) * FREE.most_deletions)
    assert "so this one waits" in at(full, given_up(slices=machine)).reason
    assert at(full, given_up()).action.act is Act.DELETE


@pytest.mark.parametrize("phase", GenerationPhase)
@pytest.mark.parametrize("condition", [one for one in Condition if one is not Condition.GONE])
def test_one_that_was_there_and_is_gone_is_made_under_the_next_name(phase, condition):
    record = RecoveryRecord(phase, 1, condition, NOW)
    forbidden = at(record, policy=RecoverPolicy())
    assert forbidden.action == Action(Act.CREATE, "lm-g2", is_forbidden=True)
    action, after, _ = at(forbidden.record)  # written down meanwhile that it is gone
    assert (action, after.generation) == (Action(Act.CREATE, "lm-g2"), 2)
    assert at(after).action == Action(Act.CREATE, "lm-g2")  # nobody has seen that one yet


@pytest.mark.parametrize(
    ("phase", "condition", "wait_ns", "is_queued", "kind"),
    [
        (GenerationPhase.CREATING, Condition.WAITING, 0, True, "queue"),
        (GenerationPhase.CREATING, Condition.CREATING, 0, True, "provision"),
        (GenerationPhase.CREATING, Condition.GONE, 0, True, "queue"),
        (GenerationPhase.CREATING, Condition.GONE, 0, False, "provision"),
        (GenerationPhase.CREATING, Condition.GONE, 30 * SECOND_NS, False, "queue"),
        (GenerationPhase.CREATING, Condition.PREEMPTED, 0, False, None),
        (GenerationPhase.CREATING, Condition.UNKNOWN, 0, False, None),
        (GenerationPhase.DELETING, Condition.LEAVING, 0, True, None),
        (GenerationPhase.DELETING, Condition.GONE, 30 * SECOND_NS, True, "queue"),
        (GenerationPhase.STANDING, Condition.GONE, 30 * SECOND_NS, False, "queue"),
        (GenerationPhase.STANDING, Condition.GONE, 0, True, None),
        (GenerationPhase.STANDING, Condition.HEALTHY, 0, True, None),
        (GenerationPhase.STANDING, Condition.WAITING, 0, True, None),  # it was made, and trains
    ],
)
def test_what_a_run_without_machines_waits_for(phase, condition, wait_ns, is_queued, kind):
    record = RecoveryRecord(phase, 1, condition, NOW, wait_ns=wait_ns)
    assert waiting_for(Decision(Action(Act.WAIT), record, ""), is_queued) == kind
    assert kind is None or kind in WAIT_KINDS


def test_one_may_be_practised_on_if_it_is_ours_and_well():
    def chosen(*resources, name="lm-g1", wanted=""):
        one, reason = to_rehearse(resources, name, RUN[1], wanted)
        return reason if one is None else one.name

    one = resource(READY)
    assert chosen(one) == chosen(one, wanted="lm-g1-0") == "lm-g1-0"
    assert chosen(one, name="lm-g2") == "there is no lm-g2"
    assert "has no slice 'lm-g1-7'; it has lm-g1-0" in chosen(one, wanted="lm-g1-7")
    assert "it is left alone" in chosen(resource(READY, owner="another"))
    assert "not all is well" in chosen(resource(SliceState.REPAIRING))
    two = resource(READY, READY)
    assert chosen(two, wanted="lm-g1-1") == "lm-g1-1"
    assert "name one of lm-g1-0, lm-g1-1 with --slice" in chosen(two)


def test_one_of_an_earlier_generation_is_cleared_away_and_of_a_later_one_is_not():
    record = RecoveryRecord(GenerationPhase.STANDING, 2, Condition.HEALTHY, NOW)
    now_ours, old = resource(READY, name="lm-g2"), resource(READY, name="lm-g1")
    assert at(record, now_ours, old).action == Action(Act.DELETE, "lm-g1", ("lm-g1-0",))
    assert at(record, now_ours, old, policy=RecoverPolicy()).action.is_forbidden
    stopped = resource(SliceState.STOPPED, name="lm-g1")
    assert at(record, now_ours, stopped).action.act is Act.ASK
    unknown = resource(SliceState.UNKNOWN, name="lm-g1")
    assert at(record, now_ours, unknown).action.act is Act.WAIT
    action, _, reason = at(record, now_ours, resource(READY, name="lm-g3"))
    assert action.act is Act.ASK
    assert reason == "lm-g3 is there, and the run knows of no more than lm-g2"


def test_a_slice_whose_queue_is_gone_is_cleared_away_before_the_next_is_made():
    left = Resource("lm-g1-0", UP, RUN[1], (Slice("lm-g1-0", READY),))
    decision = at(standing(), left)
    assert decision.action == Action(Act.DELETE, "lm-g1-0", ("lm-g1-0",))
    assert decision.reason == "lm-g1-0 is of lm-g1, which is gone (lm-g1-0 is ready)"
    assert at(standing(), left, policy=RecoverPolicy(may_create=True)).action.is_forbidden
    for other in (replace(left, owner="other"), replace(left, name="lm-g1-x-0")):
        assert at(standing(), other).action == Action(Act.CREATE, "lm-g2")
    # Of a queued resource that is there, and only not in the list with it, nothing is taken.
    assert at(standing(), left, resource(READY, READY)).action.act is Act.REST
    leaving = replace(left, state=ResourceState.DELETING)
    assert at(standing(), leaving).action.act is Act.WAIT


@pytest.mark.parametrize("name", ["lm", "lm-g", "lm-gx", "lm-g01", "x-lm-g1", "lm-g1-g1", "lm-g²"])
def test_other_names_are_nobodys_generation(name):
    assert generation_of("lm", name) is None
    assert generation_of("lm", name_of("lm", 7)) == 7


# --- properties ---------------------------------------------------------------------------------

ONES = st.builds(
    Slice,
    st.just("s"),
    st.sampled_from(SliceState),
    st.sampled_from(SliceHealth),
    maintenance=st.none() | st.builds(Maintenance, is_ongoing=st.booleans()),
)
RESOURCES = st.builds(
    Resource,
    st.sampled_from(["lm-g1", "lm-g2", "lm-g3", "another"]),
    st.sampled_from(ResourceState),
    st.sampled_from([RUN[1], "", "other"]),
    st.lists(ONES, max_size=3).map(tuple),
    st.integers(1, 3),
)
RECORDS = st.builds(
    RecoveryRecord,
    st.sampled_from(GenerationPhase),
    st.integers(1, 3),
    st.sampled_from(Condition),
    st.integers(0, 2 * NOW),
    st.lists(st.integers(0, 2 * NOW), max_size=5).map(tuple),
)
POLICIES = st.builds(RecoverPolicy, st.booleans(), st.booleans())


@given(POLICIES, RECORDS, st.lists(RESOURCES, max_size=3, unique_by=lambda r: r.name))
def test_what_is_deleted_is_ours_known_and_allowed(policy, record, found):
    action, after, _ = at(record, *found, policy=policy)
    there = {one.name: one for one in found}
    if action.act is Act.DELETE:
        one = there[action.name]
        assert one.owner == RUN[1]
        assert diagnose(one)[0] not in (Condition.UNKNOWN, Condition.STOPPED, Condition.LEAVING)
        assert policy.may_delete or action.is_forbidden
        is_present = generation_of(RUN[0], one.name) == record.generation
        assert not (is_present and diagnose(one)[0] is Condition.HEALTHY)
        assert set(action.healthy) <= {s.name for s in one.slices}
    if action.act is Act.CREATE:
        assert not any(generation_of(RUN[0], one.name) for one in found)
        assert policy.may_create or action.is_forbidden
    assert 0 <= after.generation - record.generation <= 1
    if action.act not in (Act.DELETE, Act.CREATE) or action.is_forbidden:
        assert after.deleted_unix_ns == record.deleted_unix_ns
        assert after.generation == record.generation


# --- a small world, explored whole --------------------------------------------------------------

BIRTH, WELL, TAKEN, GOING, SPOILT = "birth", "well", "taken", "going", "spoilt"
BECOMES = {BIRTH: (WELL, TAKEN, SPOILT, None), WELL: (TAKEN, None), GOING: (None,)}
LAST = 3  # generations
EASY = replace(FREE, per_ns=0)  # time stands still here, so no rate is reached
SHAPE = {
    BIRTH: (ResourceState.CREATING, SliceState.CREATING),
    WELL: (UP, READY),
    TAKEN: (UP, SliceState.PREEMPTED),
    GOING: (ResourceState.DELETING, SliceState.DELETING),
}


class World(NamedTuple):
    """What is written down, what the service has, and an act of somebody who was replaced."""

    record: RecoveryRecord
    there: tuple[tuple[str, str], ...]
    late: Action | None = None


def seen(world):
    return ResourcesSeen(
        [
            given_up(n) if s is SPOILT else resource(SHAPE[s][1], name=n, state=SHAPE[s][0])
            for n, s in world.there
        ]
    )


def look(world) -> Decision:
    return decide(EASY, RUN, world.record, seen(world), NOW)


def done(there, action):
    """The service does it: a name that is taken is not made twice, what is gone is gone."""
    found = dict(there)
    if action.act is Act.CREATE:
        found.setdefault(action.name, BIRTH)
    elif action.act is Act.DELETE and action.name in found:
        found[action.name] = GOING
    return tuple(sorted(found.items()))


def steps(world, *, is_replaced):
    """All that can happen next."""
    for name, state in world.there:
        rest = dict(world.there)
        for after in BECOMES.get(state, ()):
            moved = {**rest, name: after}
            there = tuple(sorted((k, v) for k, v in moved.items() if v is not None))
            yield world._replace(there=there)
    if world.late is not None:
        yield world._replace(there=done(world.there, world.late), late=None)
    if world.record.not_before_unix_ns > NOW:
        passed = replace(world.record, not_before_unix_ns=0, wait_ns=0)
        yield world._replace(record=passed)
    action, record, _ = look(world)
    written = world._replace(record=record)
    yield written  # it crashed after it wrote, before it acted
    if action.act not in (Act.DELETE, Act.CREATE):
        return
    acted = written._replace(there=done(world.there, action))
    yield acted  # done, and it crashed, or the answer was lost
    if is_replaced and world.late is None:
        yield written._replace(late=action)  # it slept; somebody else goes on
    if action.act is Act.CREATE:
        for outcome in (ActOutcome.STOCKOUT, ActOutcome.QUOTA, ActOutcome.TROUBLE):
            later = answered(record, action.act, outcome, "", NOW, 0.0)
            yield written._replace(record=later)
            if outcome is ActOutcome.TROUBLE:
                yield acted._replace(record=later)


def explored(*, is_replaced):
    start = World(RecoveryRecord(since_unix_ns=NOW), ())
    found, todo = {start}, [start]
    while todo:
        world = todo.pop()
        for after in steps(world, is_replaced=is_replaced):
            if after.record.generation <= LAST and after not in found:
                found.add(after)
                todo.append(after)
    return found


def settled(world):
    """What comes of it when nothing more goes wrong."""
    if world.late is not None:
        world = world._replace(there=done(world.there, world.late), late=None)
    for _ in range(20):
        grown = {BIRTH: WELL, GOING: None}
        there = tuple((n, grown.get(s, s)) for n, s in world.there)
        record = replace(world.record, not_before_unix_ns=0)
        world = world._replace(record=record, there=tuple(x for x in there if x[1] is not None))
        action, record, _ = look(world)
        if action.act is Act.REST:
            return world
        world = World(record, done(world.there, action))
    return None


@pytest.mark.parametrize("is_replaced", [False, True])
def test_nothing_is_doubled_and_nothing_forgotten(is_replaced):
    worlds = explored(is_replaced=is_replaced)
    assert len(worlds) > 100
    for world in worlds:
        alive = [name for name, state in world.there if state != GOING]
        if not is_replaced:
            assert len(alive) <= 1, world
        action = look(world).action
        if action.act is Act.DELETE and not is_replaced:
            assert dict(world.there)[action.name] in (TAKEN, SPOILT), world
        end = settled(world)
        assert end is not None, world
        assert [state for _, state in end.there] == [WELL], (world, end)
        assert end.there[0][0] == name_of(RUN[0], end.record.generation)
