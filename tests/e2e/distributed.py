"""Two ranks that wait for each other in collectives, whatever framework does that for them.

The same tests for JAX and for PyTorch: each file names its trainer, and the rows that it leaves to
the other one: where the framework matters little, CI sees a row once, and `make faults` twice. A
trainer prints the digest of its state after each step; a step that is done again after a restart,
or in a run that was stopped, must have the digest that it has in a run that nothing disturbed.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import (
    EXIT_DONE,
    EXIT_SAVED,
    FAR,
    House,
    Process,
    house_in,
    is_alive,
    kill,
    ranks_of,
    step_of,
)

Digests = dict[tuple[str, int], str]
KNOWN_STEPS = 60
# As for the fault matrix; each test takes seconds of importing the framework.
FULL = os.environ.get("FAULTS") == "full"
REPEATS = 5 if FULL else 1
OURS = re.compile(
    r"holdfast: |\[\d\] (started|initialized|from \d+$|begins \d+$|did \d+ |final |\[Gloo\] )"
)


def digests(out: str) -> Iterator[tuple[str, int, str]]:
    """(rank, step, digest) of every step that was done."""
    for rank, step, digest in re.findall(r"\[(\d)\] did (\d+) (\w+)", out):
        yield rank, int(step), digest


def strange(out: str, also: str = "holdfast: ") -> list[str]:
    """What neither we nor the trainer print (nor `also`): a framework's complaints."""
    lines = [line for line in out.splitlines() if line and not OURS.match(line)]
    return [line for line in lines if not re.match(also, line)]


class Ranks:
    """A house in which two ranks of one trainer train; and what each step's digest must be."""

    def __init__(self, house: House, trainer: Path) -> None:
        self.house = house
        self.trainer = trainer
        self.undisturbed: Digests = {}
        self.standby = "off"  # where no attempt follows, it would only import the framework again

    def run(self, *options: object, steps: int = FAR, **env: object) -> Process:
        options = ("--standby", self.standby, *options)
        return self.house.run("--ranks", 2, *options, steps=steps, trainer=self.trainer, **env)

    def learn(self, steps: int = KNOWN_STEPS) -> Digests:
        """Train without any disturbance."""
        out = self.run(steps=steps, name="undisturbed").wait(EXIT_DONE)
        self.undisturbed = {(rank, step): digest for rank, step, digest in digests(out)}
        assert len(self.undisturbed) == 2 * steps, out
        return self.undisturbed

    def check(self, out: str) -> None:
        """Every step is what it was in the run without disturbance, on each rank."""
        for rank, step, digest in digests(out):
            assert self.undisturbed[rank, step] == digest, f"rank {rank}, step {step}:\n{out}"

    def training(self, *, step: int = 5, **env: object) -> Process:
        """A run whose ranks have both done this step, and wait for permission."""
        self.house.allow(step)
        run = self.run(**env)
        for rank in (0, 1):
            run.saw(rf"\[{rank}\] did {step} ")
        return run

    def steps_until_saved(self, run: Process, step: int) -> int:
        """Let them go on until a set is there; the step that both have done then."""
        while not self.house.sets():
            step += 1
            self.house.allow(step)
            for rank in (0, 1):
                run.saw(rf"\[{rank}\] did {step} ")
        return step

    def signal(self, run: Process, who: str, number: int = signal.SIGTERM) -> None:
        """A signal to each of these: `run` is the supervisor, a number is a rank."""
        pids = {"run": run.pid, **{str(n): pid for n, pid in enumerate(ranks_of(run))}}
        for one in who.split():
            kill(pids[one], number)

    def saved(self, name: str = "r") -> int:
        """The step of the newest set, which has both ranks' shards."""
        newest = self.house.sets(name)[-1]
        shards = sorted(path.name for path in newest.glob("*.safetensors"))
        assert shards == ["rank-00000.safetensors", "rank-00001.safetensors"]
        return step_of(newest)

    def stops(self, run: Process, name: str = "r") -> int:
        """It saves and leaves as it should; the step that both ranks have saved."""
        run.saw("saving, then stopping")
        self.house.allow(FAR)
        out = run.wait(EXIT_SAVED)
        assert strange(out) == [], out
        self.check(out)
        saved = self.saved(name)
        for rank in ("0", "1"):  # nobody is ahead of what is saved, nobody behind
            last = max(step for one, step, _ in digests(out) if one == rank)
            assert last in (saved, saved - 1), out
        return saved

    def resumes(self, saved: int) -> None:
        """Both go on from there, and end as if nothing had happened."""
        self.house.allow(FAR)
        out = self.run(steps=saved + 5).wait(EXIT_DONE)
        assert strange(out) == [], out
        assert re.findall(r"from (\d+)$", out, re.MULTILINE) == [str(saved)] * 2, out
        self.check(out)
        for rank in ("0", "1"):
            assert f"[{rank}] final {self.undisturbed[rank, saved + 5]}" in out

    def starts_again(self, run: Process, pids: list[int], saved: int = 0) -> str:
        """The ranks are replaced, both start from that set or a newer one, and finish."""
        run.saw("Attempt 1: ")
        assert not any(map(is_alive, pids))
        self.house.allow(FAR)
        out = run.wait(EXIT_DONE)
        starts = re.findall(r"from (\d+)$", out, re.MULTILINE)
        assert starts[-1] == starts[-2], out
        assert int(starts[-1]) >= saved, out
        self.check(out)
        assert len(re.findall(r"^\[\d\] final ", out, re.MULTILINE)) == 2, out
        return out


class Distributed:
    """The tests; a subclass sets `trainer`, and which rows it leaves to the other one in CI."""

    trainer: Path
    left_to_the_other: frozenset[str]

    @pytest.fixture(scope="class")
    @classmethod
    def undisturbed(cls, tmp_path_factory: pytest.TempPathFactory) -> Digests:
        folder = tmp_path_factory.mktemp("undisturbed")
        with house_in(folder) as house:
            return Ranks(house, cls.trainer).learn()

    @pytest.fixture
    def ranks(self, house: House, undisturbed: Digests) -> Ranks:
        ranks = Ranks(house, self.trainer)
        ranks.undisturbed = undisturbed
        return ranks

    # --- asked to stop ------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "who", ["run", "1", "0 1", "run run 0 0 1 1"] if FULL else ["1", "run run 0 0 1 1"]
    )
    def test_sigterm(self, ranks: Ranks, who: str) -> None:
        """To the run, to a rank, to both, to everybody, twice: one save, one step, and 75."""
        run = ranks.training()
        ranks.signal(run, who)
        ranks.resumes(ranks.stops(run))

    def test_sigterm_to_a_rank_that_waits_for_the_other(self, ranks: Ranks) -> None:
        run = ranks.training()
        ranks.house.allow(6, 5)
        run.saw(r"\[0\] begins 6")
        ranks.signal(run, "0")
        ranks.house.allow(FAR)
        ranks.resumes(ranks.stops(run))

    def test_sigterm_while_they_train(self, ranks: Ranks) -> None:
        """Nobody is held: the order meets the ranks wherever they are."""
        run = ranks.run()
        run.saw(r"\[1\] did 5 ")
        run.send(signal.SIGTERM)
        run.wait(EXIT_SAVED)
        until = ranks.saved() + 5
        ranks.learn(until)
        ranks.check(run.text)
        ranks.resumes(until - 5)

    @pytest.mark.parametrize("code", [EXIT_DONE, EXIT_SAVED])
    def test_ends_in_peace_again_and_again(self, ranks: Ranks, code: int) -> None:
        """Whoever leaves first, the frameworks' goodbyes are quiet and change no exit code."""
        for number in range(REPEATS):
            name = f"r{number}"
            if code == EXIT_DONE:
                ranks.house.allow(3)
                assert strange(ranks.run(steps=3, name=name).wait(EXIT_DONE)) == []
            else:
                run = ranks.training(step=2, name=name)
                run.send(signal.SIGTERM)
                ranks.stops(run, name)

    @pytest.mark.parametrize(
        ("phase", "who"),
        [
            ("import", "run"),
            ("start", "run"),
            ("join", "run"),
            ("join", "0"),
            ("join", "1"),
            ("step", "0"),
            ("step", "run 0 1"),
        ],
    )
    def test_before_the_first_step_nothing_is_saved(
        self, ranks: Ranks, phase: str, who: str
    ) -> None:
        """Rank 1 is held there, and rank 0 waits for it: in its framework's start, or in step 1."""
        ranks.house.allow(1 if phase == "step" else 0)
        run = ranks.run(HOLD=phase, HOLD_RANK=1)
        run.saw(rf"\[1\] at {phase}$")
        run.saw(r"\[0\] begins 1$" if phase == "step" else r"\[0\] started")
        ranks.signal(run, who)
        out = run.wait(EXIT_SAVED)
        assert strange(out, also=rf"\[1\] at {phase}$") == [], out
        assert ranks.house.sets() == []

    # --- killed -------------------------------------------------------------------------------

    @pytest.mark.contract("end to end: JAX and PyTorch, SIGKILL of one rank of two")
    @pytest.mark.parametrize(
        ("victim", "waiting"),
        [(0, None), (0, 1), (1, 0)] if FULL else [(0, None), (1, 0)],
    )
    def test_sigkill(self, ranks: Ranks, victim: int, waiting: int | None) -> None:
        """The other is ended at once: this test does not live to see a framework's time-out."""
        ranks.standby = "auto"
        run = ranks.training(steps=KNOWN_STEPS, SAVE_AT=4)
        step = ranks.steps_until_saved(run, 5)
        if waiting is not None:
            ranks.house.allow(*((step + 1, step) if waiting == 0 else (step, step + 1)))
            run.saw(rf"\[{waiting}\] begins {step + 1}$")
        pids = ranks_of(run)
        kill(pids[victim])
        run.saw(f"rank {victim}: killed by SIGKILL")
        ranks.starts_again(run, pids, ranks.house.saved_step())

    @pytest.mark.parametrize(
        ("phase", "victim"),
        [("join", 0), ("join", 1), ("step", 0)] if FULL else [("join", 1), ("step", 0)],
    )
    def test_sigkill_before_the_first_step(self, ranks: Ranks, phase: str, victim: int) -> None:
        run = ranks.run(steps=5, HOLD=phase, HOLD_RANK=1)
        run.saw(rf"\[1\] at {phase}$")
        run.saw(r"\[0\] begins 1$" if phase == "step" else r"\[0\] started")
        pids = ranks_of(run)
        ranks.house.go()
        kill(pids[victim])
        ranks.starts_again(run, pids)

    # --- failed -------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("rank", "how"),
        [(0, "raise"), (1, "raise"), (1, "exit")] if FULL else [(0, "raise"), (1, "exit")],
    )
    def test_one_rank_fails(self, ranks: Ranks, rank: int, how: str) -> None:
        """Its framework may want to say goodbye to the others first; they wait in a collective."""
        ranks.standby = "auto"
        once = ranks.house.folder / "once"
        crash = {"CRASH_AT": 6, "CRASH_RANK": rank, "CRASH_ONCE": once, "CRASH_HOW": how}
        run = ranks.run(steps=9, SAVE_AT=4, **crash)
        run.saw(rf"holdfast: ! rank {rank}: ")
        out = ranks.starts_again(run, [])
        assert ("ValueError" in out) == (how == "raise")
