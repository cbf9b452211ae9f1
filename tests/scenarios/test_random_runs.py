"""Whatever happens to a run, and whenever: what must be true of every one of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from plain_ledger import account

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import exits
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hang import deadline as hang
from holdfast.core.history.line import to_lines
from holdfast.core.history.text import parse_text
from holdfast.core.ledger import facts
from holdfast.core.run import restart
from holdfast.core.run.machine import RunPolicy, State
from holdfast.core.save import policy as saves
from holdfast.sim.clock import MS, SECOND
from holdfast.sim.virtual.shape import PlannedFailure, Shape
from holdfast.sim.virtual.world import VirtualWorld

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from run_facts import facts_of

sys.path.pop(0)

# After a stop with a deadline: a tree that will not die takes ten seconds to be given up.
LATE_NS = 12 * SECOND
# After one without: a step, two saves, and thirty seconds for ranks that do not leave.
PATIENCE_NS = 100 * SECOND
EXITS = (
    Exit(signal=9),
    Exit(signal=11),
    Exit(code=0),
    Exit(code=1, report=RankReport("ValueError", "", "train.py:41", "")),
    Exit(code=1, report=RankReport("OSError", "", "train.py:9", "")),
    Exit(code=1, report=RankReport("DeclaredFailure", "NaN", "train.py:7", "", True, 20, 2)),
    Exit(code=1, report=RankReport("DeclaredFailure", "NaN", "train.py:8", "", True, None, 1)),
    Exit(code=75),
    Exit(code=78),
    Exit(code=143),
)

times = st.sampled_from([0, 1, 20, 50, 130, 400, 1000, 3000]).map(lambda ms: ms * MS)
speeds = st.lists(st.sampled_from([1, 7, 60, 900]).map(lambda ms: ms * MS), min_size=1).map(tuple)
shapes = st.builds(
    Shape,
    ranks=st.integers(1, 3),
    until=st.sampled_from([0, 1, 7, 40, 300]),
    step_ns=st.lists(st.sampled_from([1, 7, 60, 900]).map(lambda ms: ms * MS), min_size=1).map(
        tuple
    ),
    ends_at=st.sampled_from([0, 0, 5]),
    import_ns=times,
    restore_ns=times,
    copy_ns=times,
    write_ns=times,
    leave_ns=times,
    together=st.booleans(),
    has_session=st.sampled_from([True, True, True, False]),
    plain_ns=times,
    on_sigterm=st.sampled_from(["exit 143", "exit 0", "exit 1", "ignore"]),
    buffers=st.sampled_from([0, 0, 1, 2, 3, 3, 3]),
    seal_ns=times,
    flush_ns=times,
)
saves_in_memory = st.sampled_from(
    [saves.Never(), saves.EverySteps(1), saves.EverySteps(5), saves.IN_MEMORY]
)
policies = st.builds(
    RunPolicy,
    ranks=st.just(1),
    save=st.sampled_from(
        [saves.Never(), saves.EverySteps(3), saves.EverySteps(20), saves.EverySeconds(1.0)]
    ),
    save_in_memory=saves_in_memory,
    restart=st.sampled_from([restart.DEFAULT, restart.BackOff() | restart.Budget(4)]),
    hang=st.sampled_from([hang.OFF, hang.HangPolicy(), hang.HangPolicy(step_ns=4 * SECOND)]),
)
ranks = st.integers(0, 2)
things = st.one_of(
    st.tuples(st.just("wait"), times),
    st.tuples(st.just("wait"), times),
    st.tuples(st.just("wait until running"), st.just(0)),
    st.tuples(st.just("exit"), st.tuples(ranks, st.sampled_from(EXITS))),
    st.tuples(
        st.just("fail"),
        st.builds(PlannedFailure, ranks, st.integers(1, 40), st.sampled_from(EXITS)),
    ),
    st.tuples(
        st.just("hang"),
        st.builds(
            PlannedFailure, ranks, st.integers(1, 40), st.sampled_from(["train.py:9", "device"])
        ),
    ),
    st.tuples(st.sampled_from(["stop", "continue"]), ranks),
    st.tuples(st.just("suspend"), times),
    st.tuples(st.just("notice"), times),
    st.tuples(st.just("sigterm"), ranks),
    st.tuples(st.just("save"), st.just(0)),
    st.tuples(st.just("store"), st.sampled_from(["full", "away", "fenced", "ok", "bad"])),
    st.tuples(
        st.just("rollback"),
        st.tuples(st.sampled_from([0, 3, 20, 100, "best"]), st.integers(0, 2)),
    ),
    st.tuples(st.just("reaper"), st.just(0)),
    st.tuples(st.just("memory"), st.sampled_from(["lost", "bad", "cannot be sealed", "ok"])),
    st.tuples(st.sampled_from(["interrupt", "now", "stuck"]), st.just(0)),
)


class Watched:
    """A world, and what was true when things happened."""

    def __init__(self, shape: Shape, policy: RunPolicy) -> None:
        policy = replace(policy, ranks=shape.ranks)
        self.world = VirtualWorld(shape, policy, tell=self.tell)
        self.stopped_while: State | None = None
        self.finish_by_ns: int | None = None
        self.is_interrupted = False
        self.is_gone = True
        self.ended: list[int] = []  # the attempts of which it is on record that the training ended

    def tell(self, at_ns: int, event: ev.Event, answer: tuple[act.Action, ...], _: str) -> None:
        if isinstance(event, ev.StopAsked | ev.StopNowAsked | ev.Interrupted):
            self._note_stop(at_ns, event)
        if isinstance(event, ev.Launched):
            self.is_gone = False
        if isinstance(event, ev.TreeGone | ev.HostLost):
            self.is_gone = True
        if any(isinstance(action, act.Launch) for action in answer):
            assert self.is_gone, "a new attempt while the old one is there"
        self.ended += [one.attempt for one in answer if isinstance(one, act.EndTraining)]
        assert len(self.ended) == len(set(self.ended)), "an end is told twice"

    def _note_stop(
        self, at_ns: int, event: ev.StopAsked | ev.StopNowAsked | ev.Interrupted
    ) -> None:
        if self.stopped_while is None:
            self.stopped_while = self.world.machine.state
        by_ns = at_ns + PATIENCE_NS
        is_now = isinstance(event, ev.StopNowAsked)
        if isinstance(event, ev.Interrupted):
            is_now, self.is_interrupted = self.is_interrupted, True
        if is_now:
            by_ns = at_ns + LATE_NS
        elif isinstance(event, ev.StopAsked) and event.deadline_ns is not None:
            by_ns = max(at_ns, event.deadline_ns) + LATE_NS
        self.finish_by_ns = min(by_ns, self.finish_by_ns or by_ns)

    def do(self, what: str, how: object) -> None:
        """One thing that happens."""
        world, live = self.world, self.world.live
        match what, how:
            case "wait", int(ns):
                world.run_for(ns)
            case "wait until running", _:
                running = lambda: world.machine.state is State.RUNNING  # noqa: E731
                world.run_until(running, world.now_ns + 10 * SECOND)
            case "exit", (rank, Exit() as end) if live and rank < len(live.ranks):
                world.end_rank(rank, end)
            case "stop" | "continue", int(rank) if live and rank < len(live.ranks):
                live.by_rank[rank].stop() if what == "stop" else live.by_rank[rank].go_on()
            case "suspend", int(ns):
                world.clock.suspend(20 * ns)
                world.slept(20 * ns)
                if self.finish_by_ns is not None:
                    self.finish_by_ns += 20 * ns
            case "fail" | "hang", PlannedFailure() as failure:
                world.failures.append(failure)
            case "notice", int(grace_ns):
                world.notice("SIGTERM", 10 * grace_ns)
            case "sigterm", int(rank) if live and rank < len(live.ranks):
                live.by_rank[rank].sigterm()
            case "save", _:
                world.save()
            case "store", str(state):
                self._change_store(state)
            case "rollback", (int() | str() as to, int(skip)):
                world.roll_back(to, skip)
            case "reaper", _ if live:
                world.kill_reaper()
            case "interrupt", _:
                world.interrupt()
            case "now", _:
                world.stop_now("SIGQUIT")
            case "stuck", _:
                world.host_sticks = True
            case "memory", str(state):
                self._change_memory(state)

    def _change_store(self, state: str) -> None:
        store = self.world.store
        if state == "bad" and store.sets:
            newest = max(store.sets, key=lambda one: one.name)
            store.unreadable[newest.name] = f"{newest.name} is corrupt"
        store.is_full, store.is_away = state == "full", state == "away"
        store.is_fenced = state == "fenced"

    def _change_memory(self, state: str) -> None:
        memory, store = self.world.memory, self.world.store
        if state == "lost" and self.world.live is None and not any(memory.busy.values()):
            memory.lose()  # a host that ranks are on is not lost alone
        elif state == "bad":
            store.spoiling |= {one.name: f"{one.name} is corrupt" for _, one in memory.sets()}
        self.world.seals_fail = state == "cannot be sealed"

    # --- what must be true ------------------------------------------------------------------

    def check(self) -> None:
        world = self.world
        assert world.finish is not None
        code = world.finish.exit_code
        assert code in (0, 1, 69, 75, 78)
        if self.finish_by_ns is not None:
            assert world.finished_ns <= self.finish_by_ns, "a stop took too long"
        if self.stopped_while in (State.RUNNING, State.KILLING, State.WAITING):
            is_held = any(end.cause == "store_unavailable" for end in world.ends[-1:])
            other = world.machine.attempt == -1 or self.ended_by_launch() or is_held
            assert code in (0, 75) or other
        if code == 0 and world.machine.saving.joined:
            last = world.shape.last_step
            steps = [one.step for one in world.store.sets]
            assert last in steps or world.shape.until == 0, "done, and the last step is not saved"
            went_back = any(one.rollback for one in world.store.attempts)
            assert went_back or max(steps, default=0) <= last, "it trained on after its end"
        self.check_attempts()
        self.check_sets()
        self.check_ledger()

    def ended_by_launch(self) -> bool:
        """A stop that came while an attempt that never launched was being cleaned away."""
        return any(isinstance(event, ev.LaunchFailed) for event in self.world.inputs)

    def check_attempts(self) -> None:
        world = self.world
        starts = [f["attempt"] for f in world.recorded if f["fact"] == "attempt_start"]
        ends = [f["attempt"] for f in world.recorded if f["fact"] == "attempt_end"]
        assert starts == ends == sorted(set(starts))
        on_record = [record.attempt for record in world.store.attempts]
        assert [end.attempt for end in world.ends] == on_record
        assert {end.cause for end in world.ends} <= set(exits.HISTORY_CAUSE.values())
        if world.finish and world.finish.exit_code == 0:
            assert [end.cause for end in world.ends].index("done") == len(world.ends) - 1

    def check_sets(self) -> None:
        """Every set is complete, and every attempt begins where the lineage ends."""
        world = self.world
        for one in world.store.sets:
            for rank in range(world.shape.ranks):
                assert (one.attempt, one.step, rank) in world.store.shards, "a partial set"
        for launch in world.launches:
            steps = [0, *(one.step for one in world.store.sets if one.attempt < launch.attempt)]
            if launch.resume.buffer is not None:
                assert (launch.resume.parent, launch.resume.step) in world.memory.ever
                steps.append(launch.resume.step)
            assert launch.resume.step <= max(steps), "it resumes from what was never saved"
        granted = [name for one in world.launches if one.rollback for name in one.rollback.ids]
        assert len(granted) == len(set(granted)), "a wish was granted twice"
        asked = {wish.id: wish for wish in world.store.wishes}
        for launch in world.launches:
            if launch.rollback is not None and isinstance(launch.rollback.to, int):
                assert launch.resume.step <= launch.rollback.to, "it did not go back far enough"
                assert launch.resume.skip_batches in {
                    asked[name].skip_batches for name in launch.rollback.ids
                }

    def check_ledger(self) -> None:
        """What was recorded is a legal history; every nanosecond and every step counts once."""
        told = facts_of(self.world)
        assert parse_text("".join(to_lines(told))).facts
        busy = sorted(
            (fact.start_ns, fact.end_ns or 0)
            for fact in told
            if isinstance(fact, facts.AttemptFact | facts.WaitFact)
        )
        assert all(before[1] <= after[0] for before, after in pairwise(busy)), "they overlap"
        result = account(told, self.world.now_ns)  # which raises unless the kinds add up
        last = [f for f in told if isinstance(f, facts.RestoreFact | facts.StepsFact)]
        if last:
            number = max(fact.attempt for fact in last)
            mine = [fact for fact in last if fact.attempt == number]
            reached = max(f.step if isinstance(f, facts.RestoreFact) else f.last for f in mine)
            assert result.steps_kept == reached, "a step was counted twice, or not at all"


# A seal that is over when the next attempt runs: its set is off the lineage, and overwritten.
@example(
    shape=Shape(
        until=1, step_ns=(MS,), import_ns=0, restore_ns=0, copy_ns=0, buffers=2, seal_ns=130 * MS
    ),
    policy=RunPolicy(ranks=1, save=saves.Never(), save_in_memory=saves.Never()),
    happening=[("wait", 130 * MS), ("rollback", (0, 0))],
)
# All steps are done, a stop has a deadline, and the store does not take the last one.
@example(
    shape=Shape(
        until=1,
        step_ns=(MS,),
        import_ns=0,
        restore_ns=0,
        copy_ns=0,
        buffers=1,
        seal_ns=0,
        flush_ns=0,
    ),
    policy=RunPolicy(ranks=1, save=saves.Never(), save_in_memory=saves.Never()),
    happening=[("wait", 50 * MS), ("notice", MS), ("store", "away")],
)
@given(shape=shapes, policy=policies, happening=st.lists(things, max_size=14))
def test_whatever_happens(
    shape: Shape, policy: RunPolicy, happening: list[tuple[str, object]]
) -> None:
    run = Watched(shape, policy)
    world = run.world
    world.open()
    for what, how in happening:
        if world.finish is None:
            run.do(what, how)
    world.store.is_full = False
    if world.finish is None:
        world.run_for(5 * SECOND)
    if world.finish is None:
        world.notice("SIGTERM", 20 * SECOND)
        world.run_until(lambda: False, world.now_ns + 200 * SECOND)
    run.check()


@given(
    shape=st.builds(
        Shape,
        ranks=st.integers(1, 3),
        until=st.sampled_from([30, 400]),
        step_ns=speeds,
        copy_ns=times,
        write_ns=times,
        buffers=st.sampled_from([0, 1, 2, 3]),
        seal_ns=times,
        flush_ns=times,
    ),
    policy=policies,
    at_ns=st.integers(0, 8 * SECOND),
    asks=st.lists(st.tuples(st.sampled_from(["notice", "ctrl-c", "save"]), times), min_size=1),
)
def test_a_stop_in_peace_loses_nothing(
    shape: Shape, policy: RunPolicy, at_ns: int, asks: list[tuple[str, int]]
) -> None:
    """No failure, and time enough: what was completed is saved, by whomever and however often."""
    run = Watched(shape, policy)
    world = run.world
    world.open()
    world.run_for(at_ns)
    interrupts = 0
    for who, after_ns in [*asks, ("notice", 0)]:
        if world.finish is not None:
            break
        if who == "notice":
            world.notice("SIGTERM", 60 * SECOND)
        elif who == "save":
            world.save()
        elif not interrupts:
            interrupts += 1
            world.interrupt()
        world.run_for(after_ns)
    world.run_until(lambda: False, world.now_ns + 100 * SECOND)
    assert world.finish is not None
    assert world.finish.exit_code in (0, 75)
    run.check()
    saved = max((one.step for one in world.store.sets), default=0)
    # All but a step that was under way when nothing else was left to save: it ends unsaved.
    assert saved >= world.machine.high_water - 1
    assert len(world.launches) <= 1
