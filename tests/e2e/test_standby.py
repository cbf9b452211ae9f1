"""Restarts with interpreters that wait for them, as `holdfast run` prepares them."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress

import pytest
from processes import (
    EXIT_DONE,
    EXIT_SAVED,
    FAR,
    TRAINER,
    House,
    Process,
    children,
    expected_digest,
    guards_of,
    is_alive,
    kill,
    ranks_of,
    reaper_of,
)

pytestmark = pytest.mark.real

STEPS = 8
FROM = r"^(?:\[\d\] )?from \d+$"  # a rank's word, when it has restored


def waiting(run: Process) -> list[int]:
    """The pids of the interpreters that wait for the next attempt."""
    guards = guards_of(run)[1:]
    return [pid for guard in guards for reaper in children(guard) for pid in children(reaper)]


def prepared(house: House, ranks: int = 1, *options: object, **env: object) -> Process:
    """A run that has done a few steps, and whose next attempt is prepared."""
    house.allow(STEPS - 2)
    run = house.run("--ranks", ranks, "--save-every", 2, *options, steps=STEPS, **env)
    run.saw(f"did {STEPS - 2}$", ranks)
    house.eventually(lambda: len(waiting(run)) == ranks)
    return run


def finished(house: House, run: Process, ranks: int = 1) -> None:
    """The run ends as if nothing had happened, and leaves no process behind."""
    house.allow(FAR)
    out = run.wait(EXIT_DONE)
    assert out.count(f"final {expected_digest(STEPS)}") == ranks, out


def restart(house: House, attempt: int = 0) -> dict[str, object]:
    """What is on record of the restart after an attempt."""
    return json.loads(
        (house.store / "r" / "attempts" / f"{attempt:04d}" / "restart.json").read_text()
    )


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_ranks_are_those_that_waited(house: House, ranks: int) -> None:
    run = prepared(house, ranks)
    standbys = waiting(run)
    kill(ranks_of(run)[-1])
    run.saw("Attempt 1: ")
    run.saw(FROM, 2 * ranks)
    assert sorted(ranks_of(run)) == sorted(standbys)
    finished(house, run, ranks)
    story = restart(house)
    assert story["woken"] == list(range(ranks))
    assert story["cold"] == {}


def test_each_attempt_has_its_own(house: House) -> None:
    run = prepared(house)
    for attempt in (1, 2):
        (standby,) = waiting(run)
        kill(*ranks_of(run))
        run.saw(f"Attempt {attempt}: ")
        run.saw(FROM, attempt + 1)
        assert ranks_of(run) == [standby]
        house.allow(STEPS - 2 + attempt)
        if attempt == 1:
            house.eventually(lambda: len(waiting(run)) == 1)
    finished(house, run)


def test_where_the_interpreter_was_killed_the_rank_starts_cold(house: House) -> None:
    run = prepared(house, 2)
    victim, other = waiting(run)
    kill(victim)
    house.eventually(lambda: waiting(run) == [other])
    kill(ranks_of(run)[0])
    run.saw(FROM, 4)
    assert other in ranks_of(run)
    finished(house, run, 2)
    assert len(restart(house)["woken"]) == len(restart(house)["cold"]) == 1


@pytest.mark.parametrize("victim", ["guard", "reaper", "both"])
def test_a_prepared_tree_that_is_killed_is_made_anew(house: House, victim: str) -> None:
    run = prepared(house)
    _, guard = guards_of(run)
    (reaper,) = children(guard)
    (standby,) = waiting(run)
    for pid in {"guard": [guard], "reaper": [reaper], "both": [reaper, guard]}[victim]:
        with suppress(ProcessLookupError):  # the guard ends with the reaper, perhaps by now
            kill(pid)
    house.eventually(lambda: not is_alive(standby))
    house.eventually(lambda: len(waiting(run)) == 1)
    (again,) = waiting(run)
    kill(*ranks_of(run))
    run.saw(FROM, 2)
    assert ranks_of(run) == [again]
    finished(house, run)


def test_the_end_of_the_reaper_that_has_the_ranks_leaves_them_waiting(house: House) -> None:
    run = prepared(house)
    standbys = waiting(run)
    reaper, guard = reaper_of(run), guards_of(run)[0]
    kill(reaper)
    with suppress(ProcessLookupError):  # it ends with the reaper, perhaps by now
        kill(guard)
    run.saw(FROM, 2)
    assert ranks_of(run) == standbys
    finished(house, run)


def test_a_stop_ends_the_interpreters(house: House) -> None:
    run = prepared(house)
    standbys = waiting(run)
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    house.eventually(lambda: not any(map(is_alive, standbys)))
    house.allow(FAR)
    run.wait(EXIT_SAVED)


def test_a_supervisor_that_is_killed_leaves_no_interpreter(house: House) -> None:
    run = prepared(house)
    pids = [*guards_of(run), *ranks_of(run), *waiting(run)]
    run.send(signal.SIGKILL)
    house.eventually(lambda: not any(map(is_alive, pids)))
    house.allow(FAR)
    house.run(steps=STEPS).wait(EXIT_DONE)


def test_none_where_it_is_off(house: House) -> None:
    house.allow(4)
    run = house.run("--standby", "off", "--save-every", 2, steps=STEPS)
    run.saw("did 4$")
    kill(*ranks_of(run))
    run.saw("Attempt 1: ")
    run.saw(FROM, 2)
    house.allow(6)
    run.saw("did 6$")
    assert waiting(run) == []
    finished(house, run)
    assert restart(house)["woken"] == []


def test_a_command_behind_a_shell_just_starts(house: House) -> None:
    house.allow(4)
    inner = f"exec {sys.executable} {TRAINER} {STEPS}"
    run = house.holdfast(
        "run", "--name", "r", "--save-every", 2, "--", "sh", "-c", inner, ALLOW=house.allow_file
    )
    run.saw("did 4$")
    kill(*ranks_of(run))
    run.saw(FROM, 2)
    assert waiting(run) == []
    finished(house, run)
