"""Going back, in the store: what is chosen, skipped, kept and settled, against a dumb oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.events import Resume
from holdfast.core.run.rollback import Rollback, Rollbacks, Target, Wish
from holdfast.core.save.choose import (
    NoChoice,
    Rejected,
    SeenSets,
    Skip,
    StoredSet,
    choose,
    newest_up_to,
)
from holdfast.errors import ConfigurationError
from holdfast.journal.attempts import AttemptRecord, create_attempt, lineage, skips
from holdfast.journal.control import ControlInbox, request
from holdfast.journal.lease import acquire
from holdfast.journal.rank_reports import report_path
from holdfast.journal.rollbacks import clear_settled, leave_wish, standing_wishes
from holdfast.journal.store import RunFolder, RunStore
from holdfast.snapshot.catalog import Catalog
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.retention import plan
from holdfast.snapshot.sets import SetInfo, set_name


def info(attempt: int, step: int, tags: tuple[str, ...] = ()) -> SetInfo:
    return SetInfo(Path(set_name(attempt, step)), attempt, step, 1, 10, 0, tags)


CHAIN = [(3, None), (2, 450), (0, 300)]
SETS = [
    info(0, 100),
    info(0, 300, ("best",)),
    info(0, 400),
    info(1, 350),
    info(2, 400),
    info(3, 500),
]


@pytest.mark.parametrize(
    ("to", "bad", "pins", "chosen"),
    [
        (None, [], {}, (3, 500)),
        (10_000, [], {}, (3, 500)),
        (500, [], {}, (3, 500)),
        (499, [], {}, (2, 400)),
        (399, [], {}, (0, 300)),
        (400, [(2, 400)], {}, (0, 300)),
        (0, [], {}, None),
        ("mine", [], {"mine": set_name(2, 400)}, (2, 400)),
        ("mine", [(2, 400)], {"mine": set_name(2, 400)}, (0, 300)),
        ("best", [], {}, (0, 300)),  # the manifest remembers the tag
        ("best", [], {"best": set_name(0, 400)}, (0, 300)),  # that one is on a branch given up
        (99, [], {}, NoChoice.NONE_SUCH),
        (-5, [], {}, NoChoice.NONE_SUCH),
        ("worst", [], {}, NoChoice.NONE_SUCH),
        ("worst", [], {"worst": set_name(1, 350)}, NoChoice.NONE_SUCH),
    ],
)
def test_what_a_wish_comes_to(
    to: Target, bad: list[tuple[int, int]], pins: dict[str, str], chosen: object
) -> None:
    reasons = {set_name(*one): "torn" for one in bad}
    found, why = newest_up_to(to, SETS, CHAIN, reasons, pins)
    if isinstance(found, NoChoice):
        assert found is chosen
        assert "the lineage has steps 100, 300, 400, 500" in why
        return
    assert (found and (found.attempt, found.step)) == chosen
    assert why


def test_where_nothing_was_ever_made_it_is_from_scratch_and_said() -> None:
    found, why = newest_up_to(400, [], CHAIN, {}, {})
    assert found is None
    assert why == "starting from scratch (no checkpoint yet), though step 400 was asked for"


# --- random lives of a run ----------------------------------------------------------------------


happenings = st.one_of(
    st.tuples(st.just("train"), st.integers(1, 3)),
    st.tuples(st.just("save"), st.just(0)),
    st.tuples(st.just("die"), st.just(0)),
    st.tuples(st.just("zombie"), st.integers(1, 9)),
    st.tuples(st.just("back"), st.tuples(st.integers(0, 12), st.integers(0, 3))),
)


@given(st.lists(happenings, max_size=25))
def test_the_chosen_set_and_its_data_against_a_dumb_oracle(
    story: list[tuple[str, object]],
) -> None:
    records: list[AttemptRecord] = []
    sets: list[SetInfo] = []
    step = 0
    made: set[str] = set()
    counting: list[str] = []  # the oracle: the sets that count, oldest first
    branch: dict[str, object] = {"skip": 0, "from": None}  # and where the last wish forked

    def start(to: int | None, skip: int | None) -> None:
        nonlocal step
        chain = [(part.attempt, part.up_to_step) for part in lineage(records)]
        chosen, _ = newest_up_to(to, sets, chain, {}, {})
        assert not isinstance(chosen, NoChoice)
        name = chosen.name if chosen else None
        known = (batches for restored, _, batches in skips(records) if restored == name)
        skipped = next(known, 0) if skip is None else skip
        step = chosen.step if chosen else 0
        records.append(
            AttemptRecord(
                len(records), chosen.attempt if chosen else None, step, name, 1, 1, 1, "", 0,
                skip_batches=skipped,
                rollback=None if to is None else Rollback(("x",), to, ""),
            )
        )  # fmt: skip
        # The oracle: the last set that counts is where it goes on, and its branch's skip holds.
        if to is not None:
            counting[:] = [other for other in counting if 0 < int(other[5:]) <= to]
            branch.update({"skip": skip, "from": counting[-1] if counting else None})
        newest = counting[-1] if counting else None
        assert name == newest
        assert skipped == (branch["skip"] if newest == branch["from"] else 0)

    start(None, None)
    for what, how in story:
        number = len(records) - 1
        if what == "train":
            assert isinstance(how, int)
            step += how
        elif what == "save" and step > records[-1].resume_step:
            if set_name(number, step) not in made:
                sets.append(info(number, step))
                made.add(sets[-1].name)
                counting.append(sets[-1].name)
        elif what == "die":
            start(None, None)
        elif what == "zombie" and number:
            assert isinstance(how, int)
            dead = records[-1].parent if records[-1].parent is not None else 0
            late = records[-1].resume_step + how  # after the place where the line forked
            if dead != number and set_name(dead, late) not in made:
                sets.append(info(dead, late))
                made.add(sets[-1].name)
        elif what == "back":
            to, skip = how  # type: ignore[misc]
            if to and counting and int(counting[0][5:]) > to:
                chain = [(part.attempt, part.up_to_step) for part in lineage(records)]
                assert newest_up_to(to, sets, chain, {}, {})[0] is NoChoice.NONE_SUCH
                continue
            start(to, skip)
    chain = [(part.attempt, part.up_to_step) for part in lineage(records)]
    doomed, _ = plan(sets, {}, Keep(last=2), chain=chain)
    assert not set(counting[-1:]) & {one.name for one in doomed}


# --- a real store -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunStore(tmp_path / "store").create("r")


def begin(folder: RunFolder, rollbacks: Rollbacks | None = None) -> int:
    """The next attempt, from what the store says."""
    rollbacks = rollbacks or Rollbacks()
    rollbacks.add(standing_wishes(folder))
    wish, _ = rollbacks.take_up()
    resume, _ = Catalog(folder).choose(wish)
    _, record = rollbacks.settle()
    number = len(list(folder.attempts_dir.iterdir()))
    create_attempt(
        folder,
        number,
        parent=resume.parent,
        resume_step=resume.step,
        restore_set=resume.set_name,
        skip_batches=resume.skip_batches,
        rollback=record,
    )
    return number


def test_a_request_stands_until_an_attempt_names_it(folder: RunFolder) -> None:
    begin(folder)
    asked = request(folder, "rollback", to="0", skip_batches=3)
    (wish,) = standing_wishes(folder)
    assert (wish.id, wish.to, wish.skip_batches) == (asked.args["id"], 0, 3)
    number = begin(folder)  # and its controller dies before it has removed the request
    assert standing_wishes(folder) == ()
    assert list(folder.control_dir.iterdir())
    clear_settled(folder)
    assert list(folder.control_dir.iterdir()) == []
    again = request(folder, "rollback", to=0)  # the same number, and another request
    assert again.number == asked.number
    assert [wish.id for wish in standing_wishes(folder)] == [again.args["id"]]
    assert number == 1


def test_the_inbox_tells_of_it_once_and_leaves_it(folder: RunFolder) -> None:
    asked = request(folder, "rollback", to="best")
    lease = acquire(folder)
    inbox = ControlInbox(folder, lease.epoch)
    assert [one.args for one in inbox.take().requests] == [asked.args]
    assert inbox.take().requests == ()
    assert len(list(folder.control_dir.iterdir())) == 1


def test_a_scripts_wish_is_settled_by_the_next_attempt(folder: RunFolder) -> None:
    from holdfast.session.crash import describe, write_report

    begin(folder)
    told = {"declared": True, "rollback_to": 0, "skip_batches": 2}
    path = report_path(folder, 0, 0)
    assert write_report(path, describe(ValueError("loss is NaN")) | told)
    assert [wish.id for wish in standing_wishes(folder)] == ["fail-0000-00000"]
    begin(folder)
    assert standing_wishes(folder) == ()


def test_what_a_process_left_before_it_was_this_attempt_is_not_its_word(folder: RunFolder) -> None:
    from holdfast.session.crash import describe, write_report

    told = {"declared": True, "rollback_to": 0, "skip_batches": 2}
    folder.ranks_dir(0).mkdir(parents=True)
    assert write_report(report_path(folder, 0, 0), describe(ValueError("earlier")) | told)
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None)
    assert standing_wishes(folder) == ()


def test_retention_leaves_what_somebody_wants_to_go_back_to(
    folder: RunFolder, save: Callable[..., SetInfo]
) -> None:
    begin(folder)
    for step in (1, 2, 3, 4):
        made = save({"w": step}, step=step)
        made.path.rename(folder.ckpt_dir / made.name)
    request(folder, "rollback", to=2)
    Catalog(folder, lease=acquire(folder)).collect(Keep(last=1), [])
    left = sorted(path.name for path in folder.ckpt_dir.iterdir() if path.is_dir())
    assert left == [set_name(0, 2), set_name(0, 4)]


def test_retention_leaves_the_newest_set_in_which_replicas_were_equal(
    folder: RunFolder, save: Callable[..., SetInfo]
) -> None:
    begin(folder)
    for step in (1, 2, 4, 5, 6):
        made = save({"w": step}, step=step)
        made.path.rename(folder.ckpt_dir / made.name)
    catalog = Catalog(folder, lease=acquire(folder))
    for compared, steps in ((3, (2, 5, 6)), (5, (5, 6)), (None, (5, 6))):
        catalog.compared_step = compared
        catalog.collect(Keep(last=2), [])
        left = sorted(path.name for path in folder.ckpt_dir.iterdir() if path.is_dir())
        assert left == [set_name(0, step) for step in steps]


def test_a_controllers_own_wish_stands_until_an_attempt_settles_it(folder: RunFolder) -> None:
    begin(folder)
    wish = Wish("corruption-0000-9", 5, 0, "silent corruption by step 9", is_from_script=False)
    leave_wish(folder, wish)
    assert standing_wishes(folder) == (wish,)
    begin(folder)
    assert standing_wishes(folder) == ()


@pytest.mark.parametrize("words", ["x" * 2001, 5])
def test_words_of_a_wish_have_their_limits(folder: RunFolder, words: object) -> None:
    with pytest.raises(ConfigurationError, match="must be a text of 2000 characters at most"):
        request(folder, "rollback", to=2, words=words)


def test_a_skip_behind_a_checkpoint_that_is_lost_is_named(
    folder: RunFolder, save: Callable[..., SetInfo]
) -> None:
    """The fork's checkpoint is damaged: an older one is taken, and nobody is left to guess."""
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None)
    fork = set_name(0, 20)
    for step in (10, 20):
        made = save({"w": step}, step=step)
        made.path.rename(folder.ckpt_dir / made.name)
    create_attempt(folder, 1, parent=0, resume_step=20, restore_set=fork, skip_batches=7)
    catalog = Catalog(folder)
    resume, words = catalog.choose()
    assert (resume.step, resume.skip_batches) == (20, 7)
    assert "are not" not in words
    rejected = Rejected().add(fork, "a flipped bit", in_memory=False)
    resume, words = choose(catalog.look(), None, rejected)
    assert isinstance(resume, Resume)
    assert (resume.step, resume.skip_batches) == (10, 0)
    assert "the 7 batches after step 20 were to be skipped, and are not" in words


def test_a_skip_that_can_be_repeated_is_not_lost() -> None:
    def attempt(number: int, parent: int | None, step: int, skip: int) -> AttemptRecord:
        name = None if parent is None else set_name(parent, step)
        return AttemptRecord(number, parent, step, name, 1, 1, 1, "", 0, skip_batches=skip)

    records = [attempt(0, None, 0, 0), attempt(1, 0, 20, 7), attempt(2, 0, 20, 7)]
    there = SeenSets("r", 2, ((2, None), (0, 20)), (StoredSet(0, 10), StoredSet(0, 20)),
                 skips=tuple(Skip(*one) for one in skips(records)))  # fmt: skip
    resume, words = choose(there)
    assert (resume, "are not" in words) == (Resume(set_name(0, 20), 20, 0, 7), False)
    resume, words = choose(replace(there, bad=((set_name(0, 20), "torn"),)))
    assert (resume, "are not" in words) == (Resume(set_name(0, 10), 10, 0), True)
