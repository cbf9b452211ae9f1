"""What a script may do wrong: named at once, at the place, and with what was wanted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from processes import EXIT_CONFIGURATION, EXIT_FAILED, House

Script = Callable[..., str]

START = "run = hf.start()\nstate = run.restore(init=lambda: {'x': np.zeros(2)})\n"


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        ("run.done(1, state)", "done(1) was called before any step began"),
        ("for s in run.steps(3): run.done(s + 1, state)", "done(2) was called, but step 1 is"),
        (
            "for s in run.steps(3): run.done(s, state); run.done(s, state)",
            "done(1) was called, but",
        ),
        ("for s in run.steps(3): pass", "step 1 was not finished: call run.done(1)"),
        ("for s in run.steps(3): run.done(s, state)\nrun.done(4, state)", "done(4) was called"),
        (
            "for s in run.steps(3): run.done(s, state); run.restore()",
            "restore() comes before the first step",
        ),
        ('run.framework("c")\nrun.framework("c")', "this process has two adapters for its loop"),
        ('run.framework("c").begin()\nrun.finish()', "end the loop with `while loop.finishing():`"),
        ("for s in run.steps(3, base=2): pass", "counts from 0 or from 1, not from 2"),
    ],
)
def test_steps_out_of_order(script: Script, loop: str, told: str) -> None:
    out = script(START + loop + "\n", code=EXIT_CONFIGURATION)
    assert told in out.splitlines()[-1]


def test_steps_before_restore_where_there_is_a_checkpoint(script: Script) -> None:
    script(START + "for s in run.steps(2): run.done(s, state)\n")
    out = script(
        "run = hf.start()\nfor s in run.steps(4): run.done(s, {})\n", code=EXIT_CONFIGURATION
    )
    assert "run.steps() was called before run.restore()" in out.splitlines()[-1]
    assert "0000-000000000002" in out.splitlines()[-1]


def test_steps_counted_from_0(script: Script) -> None:
    text = START + (
        "import sys\n"
        "seen = []\n"
        "for s in run.steps(int(sys.argv[1]), base=0): seen.append(s); run.done(s, state)\n"
        "print(seen, run.resume_step)\n"
    )
    assert script(text, 3) == "[0, 1, 2] 0"
    assert script(text, 5) == "[3, 4] 3"


def test_steps_after_a_checkpoint_of_ones_own(script: Script) -> None:
    text = (
        "run = hf.start()\n"
        "seen = []\n"
        "for s in run.steps(12, after=9): seen.append(s); run.done(s, {'x': 1})\n"
        "print(seen)\n"
    )
    assert script(text) == "[10, 11, 12]"


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ("{'model': {'w': np.zeros(2), 'f': lambda: 1}}", "state/model/f"),
        ("{'list': [1, {2: object()}]}", "state/list/1/2"),
        ("{'s': {1, 2}}", "state/s"),
        ("{(1, 2): 3}", "state"),
        ("np.array([object()])", "state"),
    ],
)
def test_what_cannot_be_stored_fails_at_the_first_step(
    script: Script, house: House, state: str, path: str
) -> None:
    text = (
        f"run = hf.start()\nrun.restore(init=lambda: {{}})\nstate = {state}\n"
        "for s in run.steps(100): run.done(s, state); print('did', s)\n"
    )
    out = script(text, code=EXIT_CONFIGURATION)
    assert "did 1" not in out
    assert f"Unstorable: {path}" in out.splitlines()[-1]
    assert house.sets() == []


def test_a_state_that_becomes_unstorable_costs_the_save_and_not_the_training(
    script: Script, house: House
) -> None:
    text = (
        "run = hf.start()\nstate = run.restore(init=lambda: {'x': 0})\n"
        "for s in run.steps(40):\n"
        "    state['x'] = object() if s in range(20, 25) else s\n"
        "    if s == 22: run.save(wait=True)\n"
        "    run.done(s, state)\n"
        "print('all', s)\n"
    )
    out = script(text, HOLDFAST_SAVE_EVERY_STEPS=1000)
    assert "step 22 could not be saved: state/x" in out
    assert "training goes on" in out
    assert "all 40" in out
    assert house.saved_step() == 40


def test_a_state_that_done_was_not_given_fails_at_the_first_step(
    script: Script, house: House
) -> None:
    """Every checkpoint would be empty, and the work lost at the first restart."""
    out = script(
        START + "for s in run.steps(9): run.done(s); print('did', s)\n", code=EXIT_CONFIGURATION
    )
    assert "did 1" not in out
    assert "run.done was given none: call run.done(step, state)" in out.splitlines()[-1]
    assert house.sets() == []


@pytest.mark.parametrize(
    "text",
    [
        "run.restore()\nfor s in run.steps(3): run.done(s)\n",
        "run.track(part=np.random.default_rng(1))\nrun.restore()\n"
        "for s in run.steps(3): run.done(s)\n",
        "run.restore(init=dict)\nfor s in run.steps(3): run.done(s, commit=print)\n",
    ],
)
def test_nothing_is_missing_where_the_state_is_kept_otherwise(
    script: Script, house: House, text: str
) -> None:
    script("run = hf.start()\n" + text)
    assert house.saved_step() == 3


def test_a_state_that_is_missing_later_costs_that_save_and_the_end(
    script: Script, house: House
) -> None:
    text = START + (
        "for s in run.steps(9):\n"
        "    if s in (3, 6): run.save(wait=True)\n"
        "    run.done(s, state if s < 5 else None)\n"
    )
    out = script(text, code=EXIT_CONFIGURATION, HOLDFAST_SAVE_EVERY_STEPS=1000)
    assert "step 6 could not be saved: state: run.restore returned a state" in out
    assert "Unstorable: state: run.restore returned a state" in out.splitlines()[-1]
    assert house.saved_step() == 3


def test_a_last_state_that_cannot_be_stored_is_not_the_stores_fault(script: Script) -> None:
    text = START + "for s in run.steps(3): run.done(s, state if s < 3 else {'x': object()})\n"
    assert "Unstorable: state/x" in script(text, code=EXIT_CONFIGURATION).splitlines()[-1]


def test_checkpoints_of_ones_own_are_made_of_the_last_step_too(script: Script) -> None:
    text = (
        "run = hf.start()\nmade = []\n"
        "for s in run.steps(9):\n"
        "    run.done(s, commit=made.append)\n"
        "    if s == 4: break\n"
        "run.finish()\nprint(made)\n"
    )
    assert script(text, HOLDFAST_SAVE_EVERY_STEPS=1000) == "[4]"


@pytest.mark.parametrize(
    ("init", "told"),
    [
        ("{'x': np.zeros(3)}", "at state/x: the program wants float64[3], the checkpoint has floa"),
        ("{'x': np.zeros(2, np.int8)}", "wants int8[2], the checkpoint has float64[2]"),
        ("{'y': np.zeros(2)}", "at state/y: the program wants float64[2], the checkpoint has noth"),
        ("{'x': np.zeros(2), 'z': 1}", "at state/z: the program wants plain values, the checkpo"),
        ("[np.zeros(2)]", "at state: the program wants a list of 1, the checkpoint has a dict"),
    ],
)
def test_a_state_that_does_not_fit(script: Script, house: House, init: str, told: str) -> None:
    script(START + "for s in run.steps(2): run.done(s, state)\n")
    out = script(f"run = hf.start()\nrun.restore(init=lambda: {init})\n", code=EXIT_CONFIGURATION)
    assert "StateMismatch: the checkpoint does not fit this program" in out.splitlines()[-1]
    assert told in out.splitlines()[-1]
    assert house.saved_step() == 2


@pytest.mark.parametrize("name", ["a/b", "", "..", "a\\x1b[31m"])
def test_a_name_that_cannot_be(script: Script, house: House, name: str) -> None:
    out = script(f"hf.start('{name}')\n", code=78)
    assert "cannot be a run's name" in out.splitlines()[-1]
    assert out.isprintable() or "\x1b" not in out
    assert list(house.store.iterdir()) == []


def test_one_process_is_one_run(script: Script) -> None:
    out = script("assert hf.start() is hf.start('r')\nhf.start('other')\n", code=78)
    assert "this process is already run 'r'" in out.splitlines()[-1]


@pytest.mark.real
def test_many_ranks_with_no_way_to_one_another_are_refused(python: Script) -> None:
    """Not by `start` yet: the framework may be initialised after it."""
    for rank in (0, 3):
        text = "run = hf.start()\nprint('started')\nrun.restore()\n"
        out = python(text, code=78, WORLD_SIZE=4, RANK=rank)
        assert out.splitlines()[0] == "started"
        assert "holdfast run --ranks 4" in out.splitlines()[-1]


def test_ranks_that_the_launcher_did_not_number(script: Script) -> None:
    assert "RANK is ''" in script("hf.start()\n", code=78, WORLD_SIZE=4).splitlines()[-1]


@pytest.mark.parametrize("keep", ["Keep(last=0)", "Keep(every=0)", "Keep(last=True)"])
def test_a_retention_that_keeps_nothing(script: Script, keep: str) -> None:
    assert keep.split("(")[1][:4] in script(f"hf.{keep}\n", code=EXIT_FAILED).splitlines()[-1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("'acc', 1.0", "missing 1 required positional argument: 'mode'"),
        ("'acc', 1.0, 'up'", "'up'"),
    ],
)
def test_the_best_of_what_nobody_said(script: Script, given: str, told: str) -> None:
    code = 78 if "up" in given else EXIT_FAILED
    assert told in script(START + f"run.best({given})\n", code=code).splitlines()[-1]


def test_the_script_gives_up(script: Script) -> None:
    out = script(START + "run.fail('the loss is NaN')\n", code=EXIT_FAILED)
    assert out.splitlines()[-1].endswith("The script gave up: the loss is NaN")
