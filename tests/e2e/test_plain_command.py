"""Commands that know nothing of Holdfast: run, restarted, told to stop, and cleared away."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from processes import EXIT_DONE, EXIT_FAILED, EXIT_SAVED, House, is_alive, kill, ranks_of

pytestmark = pytest.mark.real

SERVICE = "JAX_ENABLE_PREEMPTION_SERVICE"


def test_it_runs(house: House) -> None:
    command = ("sh", "-c", "echo hello; echo ${LOCAL_RANK-none} of ${WORLD_SIZE-none}")
    assert "none of none" in house.holdfast("run", "--", *command).wait(EXIT_DONE)
    # A single rank is one of several if somebody says so.
    assert "0 of 1" in house.holdfast("run", "--ranks", "1", "--", *command).wait(EXIT_DONE)


@pytest.mark.parametrize(("users", "shown"), [({}, "false"), ({SERVICE: "1"}, "1")])
def test_jax_leaves_sigterm_to_us_unless_the_user_says_otherwise(
    house: House, users: dict[str, str], shown: str
) -> None:
    show = ("sh", "-c", f"echo its service: ${SERVICE}")
    assert f"its service: {shown}" in house.holdfast("run", "--", *show, **users).wait(EXIT_DONE)


@pytest.mark.contract("end to end: a command that knows nothing of us")
def test_it_is_restarted_when_it_fails(house: House) -> None:
    text = "if [ -e ran ]; then echo fine; else touch ran; kill -9 $$; fi"
    out = house.holdfast("run", "--name", "r", "--", "sh", "-c", text).wait(EXIT_DONE)
    assert "killed by SIGKILL" in out
    assert "fine" in out


def test_the_same_exit_code_twice_is_given_up(house: House) -> None:
    out = house.holdfast("run", "--name", "r", "--", "sh", "-c", "echo no; exit 3")
    text = out.wait(EXIT_FAILED)
    assert text.splitlines().count("no") == 2
    assert "exited with code 3" in text.splitlines()[-1]


def test_it_gets_the_sigterm(house: House) -> None:
    text = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done"
    run = house.holdfast("run", "--name", "r", "--", "sh", "-c", text)
    run.saw("up")
    run.send(signal.SIGTERM)
    assert "bye" in run.wait(EXIT_SAVED)


def test_one_that_ignores_sigterm_is_gone_at_the_deadline(house: House) -> None:
    text = "trap '' TERM; echo up; while :; do sleep 0.01; done"
    run = house.holdfast("run", "--name", "r", "--grace", "0.3", "--", "sh", "-c", text)
    run.saw("up")
    (rank,) = ranks_of(run)
    run.send(signal.SIGTERM)
    assert "the deadline came" in run.wait(EXIT_SAVED)
    assert not is_alive(rank)


PATIENT = """
import sys
from holdfast.cli.main import main
from holdfast.core.run import restart

restart.BackOff.__init__.__defaults__ = 300.0, 2.0, 300.0  # first_s, factor, cap_s
sys.exit(main())
"""


def test_sigterm_in_the_back_off_ends_it(house: House) -> None:
    command = ("run", "--name", "r", "--", "sh", "-c", "kill -9 $$")
    run = house.start(sys.executable, house.script(PATIENT), *command)
    run.saw("Restarting in 5 min")
    run.send(signal.SIGTERM)
    assert "nothing was running" in run.wait(EXIT_SAVED)


DETACHED = """
import os, sys, time
said, says = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, b"orphan %d\\n" % os.getpid())
        os.write(says, b".")
        while True:
            time.sleep(1)
    os._exit(0)
os.wait()
os.read(said, 1)  # the attempt does not end before its orphan is known
os.write(1, b"up\\n")
if sys.argv[1] == "stay":
    while True:
        time.sleep(1)
"""


@pytest.mark.parametrize("end", ["done", "supervisor killed", "reaper's rank killed"])
def test_double_forked_sessions_do_not_outlive_the_attempt(house: House, end: str) -> None:
    script = house.script(DETACHED)
    what = "leave" if end == "done" else "stay"
    run = house.holdfast("run", "--name", "r", "--", sys.executable, script, what)
    orphan = int(run.saw(r"orphan (\d+)")[1])
    if end == "done":
        run.wait(EXIT_DONE)
    elif end == "supervisor killed":
        run.saw("up")
        run.send(signal.SIGKILL)
        house.eventually(lambda: not is_alive(orphan))
        run = house.holdfast("run", "--name", "r", "--", "true")  # brings home what was left
        run.wait(EXIT_DONE)
    else:
        run.saw("up")
        kill(ranks_of(run)[0])
        run.saw("orphan", 2)
        run.send(signal.SIGQUIT)
        run.wait(EXIT_SAVED)
    assert not is_alive(orphan)


def test_its_folder_and_environment_are_those_of_the_caller(house: House) -> None:
    text = "pwd; echo $MY_VARIABLE"
    out = house.holdfast("run", "--", "sh", "-c", text, MY_VARIABLE="as given").wait(EXIT_DONE)
    assert f"{Path(house.folder).resolve()}" in out
    assert "as given" in out
