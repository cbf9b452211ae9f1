"""The loop that carries decisions out: the intent first, the lease first, and nothing twice."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from holdfast.core.hosts.fleet import (
    ActOutcome,
    Condition,
    Resource,
    ResourceState,
    Slice,
    SliceHealth,
    SliceState,
)
from holdfast.core.hosts.recover import Act, GenerationPhase, RecoverPolicy
from holdfast.core.hosts.wanted import Machines
from holdfast.core.ledger.facts import WaitFact
from holdfast.errors import RunHeld, StoreUnavailable
from holdfast.journal.attempts import AttemptEnd, create_attempt, end_attempt
from holdfast.journal.clocks import RunClock
from holdfast.journal.facts.followed import FollowedJournal
from holdfast.journal.facts.lines import AttemptLost
from holdfast.journal.holder import RunHolder
from holdfast.journal.incidents import incident_of
from holdfast.journal.lease import acquire
from holdfast.journal.machines import (
    MachinesBook,
    read_machines,
    tell_loss,
    write_machines,
)
from holdfast.journal.store import RunStore
from holdfast.provision.protocol import OrderAnswer, ProviderError, ProviderRefusedError
from holdfast.provision.recovery import RunRecovery

FREE = RecoverPolicy(may_delete=True, may_create=True)
S = 10**9


class Crash(BaseException):
    """The process dies here."""


class Cloud:
    """A provider in memory: what is made is up at the next look, what is deleted is gone then."""

    def __init__(self, owner):
        self.owner = owner
        self.there = {}
        self.orders = []
        self.answers = []
        self.later = None
        self.crash_at = ""

    def describe(self, machines, name):
        if self.there.get("!"):
            raise self.there["!"]
        self.there = {n: s for n, s in self.there.items() if s is not SliceState.DELETING}
        return tuple(
            Resource(
                name,
                ResourceState.UP,
                self.owner,
                (Slice(f"{name}-0", state), Slice(f"{name}-1", SliceState.READY)),
            )
            for name, state in self.there.items()
        )

    def _order(self, verb, name, state):
        self._crash(f"before {verb}")
        self.orders.append((verb, name))
        answer = (
            self.answers.pop(0) if self.answers else OrderAnswer(ActOutcome.ACCEPTED, operation="o")
        )
        if answer.outcome is ActOutcome.ACCEPTED and self.later is None:
            self.there.setdefault(name, state)
            self.there[name] = state
        self._crash(f"after {verb}")
        return answer

    def _crash(self, where):
        if self.crash_at == where:
            self.crash_at = ""
            raise Crash

    def delete(self, machines, name):
        return self._order("delete", name, SliceState.DELETING)

    def create(self, machines, name):
        return self._order("create", name, SliceState.READY)

    def progress(self, operation):
        return self.later or OrderAnswer(ActOutcome.ACCEPTED)


class House:
    """A run with machines in a store, and one process that looks after them."""

    def __init__(self, place):
        self.folder = RunStore.at(place).create("lm")
        self.owner = self.folder.identity.run_id
        self.machines = Machines(
            "cloud-tpu", "lm", self.owner, "lm", "p", "z", "v5litepod-8", "v2-alpha"
        )
        write_machines(self.folder, self.machines)
        self.cloud = Cloud(self.owner)
        self.said = []
        self.now = 10**18
        self.born()

    def born(self, policy=FREE):
        """A new process: the old one's lease is that of the dead."""
        if getattr(self, "book", None) is not None:
            self.book.close()
        self.book = MachinesBook(self.folder)
        self.recovery = RunRecovery(
            self.machines, self.cloud, policy, self.book,
            clock=lambda: self.now, sleep=self.sleep, jitter=lambda: 0.5,
            say=lambda level, words: self.said.append(words),
        )  # fmt: skip
        return self.recovery

    def sleep(self, duration_s):
        self.now += int(duration_s * S)

    def settle(self):
        return self.recovery.run(every_s=10, limit_s=4000)


@pytest.fixture
def house(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_SCRATCH", str(tmp_path / "scratch"))
    one = House(tmp_path / "store")
    yield one
    one.book.close()
    assert not list(tmp_path.glob("scratch/*/*/*"))


def test_first_made_then_taken_then_made_again(house):
    assert house.settle().action.act is Act.REST
    assert (house.cloud.orders, house.book.is_held) == ([("create", "lm-g1")], False)
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    assert house.settle().action.act is Act.REST
    assert house.cloud.orders[1:] == [("delete", "lm-g1"), ("create", "lm-g2")]
    assert list(house.cloud.there) == ["lm-g2"]
    words = "deleting lm-g1: lm-g1-0 was preempted; the healthy lm-g1-1 with it"
    assert words in house.said


def test_by_default_nothing_is_done_and_nothing_written(house):
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    house.born(RecoverPolicy())
    before = sorted(house.folder.path.rglob("*"))
    decision = house.settle()
    assert (decision.action.act, decision.action.is_forbidden) == (Act.DELETE, True)
    assert house.cloud.orders == []
    assert sorted(house.folder.path.rglob("*")) == before


@pytest.mark.parametrize(
    "where", ["before delete", "after delete", "before create", "after create"]
)
def test_a_crash_anywhere_doubles_nothing_and_forgets_nothing(house, where):
    house.settle()
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    house.cloud.crash_at = where
    with pytest.raises(Crash):
        house.settle()
    assert house.book.load().phase is (
        GenerationPhase.DELETING if "delete" in where else GenerationPhase.CREATING
    )
    house.born()
    assert house.settle().action.act is Act.REST
    assert list(house.cloud.there) == ["lm-g2"]
    assert house.cloud.orders.count(("delete", "lm-g1")) == 1
    assert house.cloud.orders.count(("create", "lm-g2")) == 1


def test_a_run_that_shows_life_keeps_its_machines(house, monkeypatch):
    monkeypatch.setattr("holdfast.journal.lease.DYING_EVERY_S", 0)
    house.settle()
    lease = acquire(house.folder)
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    decision = house.recovery.step()
    assert decision.action.act is Act.WAIT
    assert "is held by" in decision.reason
    assert house.cloud.orders == [("create", "lm-g1")]
    lease.release()
    assert house.settle().action.act is Act.REST


def test_what_changed_before_the_lease_was_ours_is_seen(house):
    house.settle()
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED

    class Late(MachinesBook):
        def hold(self):
            super().hold()
            house.cloud.there["lm-g1"] = SliceState.READY  # it came back meanwhile

    house.book.close()
    house.book = house.recovery.book = Late(house.folder)
    assert house.recovery.step().action.act is Act.WAIT
    assert house.recovery.step().action.act is Act.REST
    assert house.cloud.orders == [("create", "lm-g1")]


def test_the_lease_is_free_for_the_job_once_its_machine_is_being_made(house):
    assert house.recovery.step().action.act is Act.CREATE
    assert not house.book.is_held
    acquire(house.folder).release()


@pytest.mark.parametrize("is_held", [False, True])
def test_one_that_somebody_deleted_is_made_again_under_the_next_name(house, is_held, monkeypatch):
    monkeypatch.setattr("holdfast.journal.lease.DYING_EVERY_S", 0)
    house.settle()
    del house.cloud.there["lm-g1"]
    house.born()
    if is_held:  # the run shows life for a while; that it is gone is seen meanwhile
        lease = acquire(house.folder)
        assert house.recovery.step().action.act is Act.WAIT
        house.born()
        assert house.recovery.step().action.act is Act.WAIT
        lease.release()
    assert house.settle().action.act is Act.REST
    assert house.cloud.orders == [("create", "lm-g1"), ("create", "lm-g2")]


def test_what_is_refused_is_not_asked_for_again_at_once_by_the_next_process(house):
    house.cloud.answers = [OrderAnswer(ActOutcome.REFUSED, "there is no network 'x'")] * 2
    assert house.settle().action.act is Act.ASK
    asked = []
    for _ in range(240):  # somebody starts it again every 15 s
        house.born()
        decision = house.recovery.step()
        asked.append(decision.action.act)
        if decision.action.act is Act.WAIT:
            assert "(refused: there is no network 'x')" in decision.reason
        if house.cloud.there:
            break
        house.sleep(15)
    assert len(house.cloud.orders) == 3
    assert asked.count(Act.WAIT) > 5


def test_a_record_of_an_older_version_is_read(house):
    house.settle()
    seen = house.folder.path / "machines" / "seen.json"
    raw = json.loads(seen.read_text())
    assert raw.pop("has_stood") is True
    seen.write_text(json.dumps(raw))
    assert house.book.load().phase is GenerationPhase.CREATING
    del house.cloud.there["lm-g1"]
    assert house.settle().action.act is Act.REST
    assert list(house.cloud.there) == ["lm-g2"]


def test_who_was_taken_over_does_nothing_more(house):
    house.settle()
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    house.book.hold()
    claim = house.folder.lease_dir / f"{house.book._lease.epoch + 1:06d}.json"
    claim.write_text("{}")
    with pytest.raises(RunHeld):
        house.recovery.step()
    assert house.cloud.orders == [("create", "lm-g1")]
    claim.unlink()


def test_creations_that_fail_are_tried_again_later_and_later(house):
    house.cloud.answers = [
        OrderAnswer(ActOutcome.QUOTA, "no quota"),
        OrderAnswer(ActOutcome.STOCKOUT, "no machines"),
        OrderAnswer(ActOutcome.TROUBLE, "no answer"),
    ]
    times = []
    create = house.cloud.create
    house.cloud.create = lambda *a: times.append(house.now) or create(*a)
    assert house.settle().action.act is Act.REST
    waits = [(b - a) // S for a, b in itertools.pairwise(times)]
    assert waits[0] >= 300
    assert house.said[1] == "lm-g1 could not be created (quota: no quota)"
    assert house.book.load().wait_ns > 0


def test_a_creation_that_fails_later_is_a_stock_out_too(house):
    house.cloud.later = OrderAnswer(ActOutcome.STOCKOUT, "no more capacity")
    house.recovery.step()
    assert house.recovery.step().action.act is Act.WAIT
    assert "lm-g1 could not be created (stock-out: no more capacity)" in house.said
    assert len(house.cloud.orders) == 1
    house.cloud.later = None
    assert house.settle().action.act is Act.REST
    assert house.cloud.orders == [("create", "lm-g1")] * 2


def test_what_is_being_made_and_not_seen_yet_is_waited_for(house):
    house.cloud.later = OrderAnswer(ActOutcome.ACCEPTED)
    house.cloud.progress = lambda operation: None
    assert house.recovery.step().action.act is Act.CREATE
    decision = house.recovery.step()
    assert (decision.action.act, decision.reason) == (Act.WAIT, "lm-g1 is being made")
    assert house.cloud.orders == [("create", "lm-g1")]
    house.cloud.progress = lambda operation: OrderAnswer(ActOutcome.REFUSED, "no such type")
    decision = house.settle()
    assert decision.action.act is Act.ASK
    assert (len(house.cloud.orders), house.book.is_held) == (1, False)


def test_what_is_refused_is_a_persons_matter(house):
    house.cloud.answers = [OrderAnswer(ActOutcome.REFUSED, "permission denied")]
    decision = house.settle()
    assert decision.action.act is Act.ASK
    assert (len(house.cloud.orders), house.book.is_held) == (1, False)


def test_a_run_that_is_done_wants_no_machines(house):
    house.settle()
    house.recovery.is_done = lambda: True
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    decision = house.settle()
    assert decision.action.act is Act.REST
    assert decision.reason.startswith("the run is done")
    assert (len(house.cloud.orders), house.book.is_held) == (1, False)


def test_limits_outlive_the_process(house):
    house.settle()
    sick = Slice("lm-g1-0", SliceState.READY, SliceHealth.SILENT)
    resource = Resource("lm-g1", ResourceState.UP, house.owner, (sick,))
    describe, house.cloud.describe = house.cloud.describe, lambda *a: (resource,)
    assert house.recovery.step().action.act is Act.WAIT
    house.now += FREE.sick_limit_ns
    house.born()
    assert house.recovery.step().action.act is Act.DELETE
    house.cloud.describe = describe


def test_a_refusal_is_the_end_unless_it_comes_after_an_answer(house):
    house.cloud.there = {"!": ProviderRefusedError("no such project")}
    with pytest.raises(ProviderRefusedError, match="no such project"):
        house.recovery.step()
    house.cloud.there = {}
    assert house.recovery.step().action.act is Act.CREATE
    house.cloud.there = {"!": ProviderRefusedError("no such role, for now")}
    decision = house.recovery.step()
    assert decision.action.act is Act.WAIT
    assert "no such role, for now" in decision.reason


def test_no_answer_is_waited_out(house):
    house.settle()
    house.cloud.there = {"!": ProviderError("it does not answer")}
    decision = house.recovery.step()
    assert (decision.action.act, decision.reason) == (
        Act.WAIT,
        "it does not answer; nothing is decided on that",
    )


def test_a_store_that_is_away_for_a_while_is_waited_for_but_not_at_the_first_look(house):
    house.settle()
    path = house.folder.path / "machines" / "record.json"
    whole = path.read_text()
    path.write_text("{")
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    decision = house.recovery.step()
    assert decision.action.act is Act.WAIT
    assert decision.reason.endswith("nothing is decided on that")
    assert len(house.cloud.orders) == 1
    with pytest.raises(StoreUnavailable, match="is damaged"):
        house.born().step()
    path.write_text(whole)
    assert house.settle().action.act is Act.REST
    house.book.hold()
    leases = house.folder.lease_dir
    leases.rename(leases.with_name("away"))
    house.recovery.pause(10.0)
    assert "lease" in house.said[-1]
    leases.with_name("away").rename(leases)
    house.recovery.pause(10.0)


def test_an_intent_of_a_later_lease_stands(house):
    house.settle()
    path = house.folder.path / "machines" / "record.json"
    path.write_text(path.read_text().replace('"epoch": 1', '"epoch": 99'))
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    with pytest.raises(RunHeld, match="under lease 99"):
        house.settle()
    assert house.cloud.orders == [("create", "lm-g1")]


def told(house):
    """The facts that were brought home, with times as seconds of the house's clock."""
    found = []
    for path in sorted(house.folder.journal_dir.glob("machines-*.hfj")):
        source = FollowedJournal(path, RunClock())
        found += source.poll().statements
        source.rest()
    return found


def waits(house):
    return [
        (one.kind, round((one.start_ns - 10**18) / S), round((one.end_ns - 10**18) / S))
        for one in told(house)
        if isinstance(one, WaitFact)
    ]


def test_what_is_waited_for_is_put_on_record_in_pieces(house):
    house.settle()
    assert waits(house) == [("provision", 0, 10)]
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    house.cloud.answers = [
        OrderAnswer(ActOutcome.ACCEPTED),
        *[OrderAnswer(ActOutcome.STOCKOUT, "none")] * 3,
    ]
    house.settle()
    after = waits(house)[1:]
    assert [kind for kind, _, _ in after] == ["queue"] * len(after)
    ends = [end for _, _, end in after]
    assert [start for _, start, _ in after[1:]] == ends[:-1]  # nothing is missing in between
    assert len(after) > 1
    assert ends[-1] == (house.now - 10**18) // S


def test_what_looks_take_counts_as_waiting(house, monkeypatch):
    house.cloud.there["!"] = ProviderError("it does not answer")
    looks = []

    def slowly():
        looks.append(house.now)
        house.now += 60 * S

    describe = house.cloud.describe
    monkeypatch.setattr(house.cloud, "describe", lambda *words: (slowly(), describe(*words))[1])
    house.recovery.run(every_s=10, limit_s=150)
    assert len(looks) == 4  # at 0, 70, 140 and 210 s


def test_who_dies_in_a_wait_leaves_the_pieces_before(house):
    house.cloud.answers = [OrderAnswer(ActOutcome.QUOTA, "no more")]
    house.recovery.run(every_s=10, limit_s=150)
    assert waits(house) == [("queue", 0, 60), ("queue", 60, 120)]
    house.recovery.close()
    assert [kind for kind, _, _ in waits(house)[2:]] == ["queue"]


def test_whoever_may_make_nothing_puts_nothing_on_record(house):
    house.born(RecoverPolicy())
    house.settle()
    house.recovery.close()
    assert told(house) == []


def test_a_store_that_takes_no_facts_keeps_nobody_from_making_machines(house, monkeypatch):
    def refuse(*_, **__):
        raise StoreUnavailable("it is full")

    monkeypatch.setattr("holdfast.journal.replicate.Replicator.sync", refuse)
    assert house.settle().action.act is Act.REST
    assert told(house) == []
    monkeypatch.undo()
    house.book.close()
    assert waits(house) == [("provision", 0, 10)]


def test_only_an_attempt_that_was_left_open_is_told_its_loss(house):
    house.settle()
    assert tell_loss(house.folder, "nothing was launched yet", "host_lost") is None
    for number in range(2):
        create_attempt(house.folder, number, parent=None, resume_step=0, restore_set=None)
    end_attempt(house.folder, 0, AttemptEnd("failed", "a bug", (1,), 1))
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    house.settle()
    assert incident_of(house.folder, 0) is None
    told = incident_of(house.folder, 1)
    assert told["words"] == "its machines were lost: lm-g1-0 was preempted"
    assert (told["cause"], told["exits"]) == ("machine_preempted", [None])
    assert tell_loss(house.folder, "later", "host_lost") == (1, "machine_preempted")
    end_attempt(house.folder, 1, AttemptEnd("failed", "a bug", (1,), 1))
    create_attempt(house.folder, 2, parent=None, resume_step=0, restore_set=None)
    end_attempt(house.folder, 2, AttemptEnd("failed", "a bug", (1,), 1))
    assert tell_loss(house.folder, "it was over", "host_lost") is None
    assert incident_of(house.folder, 2) is None


@pytest.mark.parametrize(
    ("cause", "late_s", "is_explained"),
    [("host_lost", 20, True), ("host_lost", 4000, False), ("failed", 20, False)],
)
@pytest.mark.parametrize("has_stamp", [False, True])
def test_silence_is_explained_afterwards(
    house, monkeypatch, cause, late_s, is_explained, has_stamp
):
    """The others saw a host fall silent, and ended the attempt; its service says why."""
    house.settle()
    create_attempt(house.folder, 0, parent=None, resume_step=0, restore_set=None)
    ended = AttemptEnd(cause, "nothing was heard of host 1", (None,), house.now - late_s * S)
    end_attempt(house.folder, 0, ended)
    if has_stamp:
        one = Slice("lm-g1-0", SliceState.READY, maintained_unix_ns=house.now)
        resource = Resource("lm-g1", ResourceState.UP, house.owner, (one,))
        monkeypatch.setattr(house.cloud, "describe", lambda *_: (resource,))
    else:
        house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    house.settle()
    house.settle()
    found = [said for said in told(house) if isinstance(said, AttemptLost)]
    why = "machine_maintenance" if has_stamp else "machine_preempted"
    assert [(one.attempt, one.cause) for one in found] == ([(0, why)] if is_explained else [])


def test_what_is_written_is_read_and_damage_is_told(house):
    assert read_machines(house.folder) == house.machines
    other = Machines("cloud-tpu", "lm", house.owner, "lm", "p", "z", "v6e-8", "v2-alpha")
    assert write_machines(house.folder, other) == house.machines
    path = house.folder.path / "machines" / "record.json"
    for rubbish in ("{}", '{"epoch": 1}', "[", '{"deleted_unix_ns": 1}'):
        path.write_text(rubbish)
        with pytest.raises(StoreUnavailable, match="is damaged"):
            house.book.load()
    path.unlink()
    path.with_name("machines.json").write_text('{"provider": 1}')
    with pytest.raises(StoreUnavailable, match="is damaged"):
        read_machines(house.folder)


def of_another_host(house, monkeypatch):
    """The run is held by a supervisor of a machine that can only be watched; how long it took."""
    import holdfast.journal.lease as leases

    holder = replace(RunHolder.current(), host="h1", boot_id="another", pid=4711)
    acquire(house.folder, holder)
    slept = []
    watch = leases._watch

    def watched(folder, epoch, first, silent_after_s, clock, sleep):
        slept.append(silent_after_s)
        return watch(folder, epoch, first, 0.0, clock, lambda _s: None)

    monkeypatch.setattr(leases, "_watch", watched)
    return slept


@pytest.mark.parametrize(("is_gone", "waits_s"), [(True, 0.0), (False, 30.0)])
def test_nobody_watches_a_holder_whose_machine_is_known_to_be_gone(
    house, monkeypatch, is_gone, waits_s
):
    house.settle()
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    watched_s = of_another_host(house, monkeypatch)
    house.book.knows_gone = lambda holder: is_gone and holder.boot_id == "another"
    house.settle()
    assert watched_s == [waits_s]
    assert list(house.cloud.there) == ["lm-g2"]


def test_what_still_runs_is_let_go_before_the_lease_is_taken(house):
    house.settle()
    house.cloud.there["lm-g1"] = SliceState.PREEMPTED
    asked = []
    house.recovery.let_go = lambda decision: asked.append(
        (decision.action.name, decision.record.condition, house.book.is_held)
    )
    house.settle()
    assert asked == [("lm-g1", Condition.PREEMPTED, False)]
