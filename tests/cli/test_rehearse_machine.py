"""`holdfast rehearse machine`: what is asked of the cloud, and what comes of it.

The provider is a fake in memory, and the clock its own; the run is in a store as its processes
write it. Cloud TPU's emulator answers in tests/provision/inside.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli import rehearse_machine
from holdfast.cli.rehearse import rehearse
from holdfast.core.hosts.fleet import ActOutcome, Resource, ResourceState, Slice, SliceState
from holdfast.core.hosts.wanted import Machines
from holdfast.errors import EXIT_DONE, EXIT_UNAVAILABLE, EXIT_USER_FAILURE, HoldfastError
from holdfast.journal.agreed import agree
from holdfast.journal.machines import write_machines
from holdfast.journal.store import RunStore
from holdfast.provision.protocol import OrderAnswer, ProviderError

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))  # --import-mode=importlib leaves it out
from under_way import UnderWay, under_way

sys.path.pop(0)
S = 1_000_000_000
SLICE = "r-g1-0"


class FakeCloud:
    """A provider that has the run's machine, and does as it is told. Time goes by between looks."""

    def __init__(self, run: UnderWay) -> None:
        self.run = run
        self.slices: tuple[Slice, ...] = (Slice(SLICE, SliceState.READY),)
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.answer = OrderAnswer(ActOutcome.ACCEPTED, operation="o")
        self.progressed: OrderAnswer | None = None
        self.at_s = 0.0
        self.then: dict[float, Callable[[], Any]] = {}

    def describe(self, machines: Machines, name: str) -> tuple[Resource, ...]:
        return (Resource(name, ResourceState.UP, machines.owner, self.slices),)

    def simulate_maintenance(self, name: str, workers: tuple[str, ...]) -> OrderAnswer:
        self.asked.append((name, workers))
        return self.answer

    def progress(self, operation: str) -> OrderAnswer | None:
        assert operation == "o"
        return self.progressed

    # What the command takes for the module `time`.

    def monotonic(self) -> float:
        return self.at_s

    def sleep(self, duration_s: float) -> None:
        self.at_s += duration_s
        for at_s in [at_s for at_s in self.then if at_s <= self.at_s]:
            self.then.pop(at_s)()

    def warn_run(self, source: str, within_s: int | None = None) -> None:
        deadline_ns = None if within_s is None else self.run.at_ns + within_s * S
        self.run.fact("notice", at_ns=self.run.at_ns, deadline_ns=deadline_ns, source=source)


@pytest.fixture
def cloud(store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    with under_way(store) as run:
        owner = run.folder.identity.run_id
        machines = Machines("cloud-tpu", "r", owner, "r", "p", "z", "v5litepod-8", "v2-alpha")
        write_machines(run.folder, machines)
        agree(run.folder, machines)
        fake = FakeCloud(run)

        @contextmanager
        def found(*_: object) -> Iterator[FakeCloud]:
            yield fake

        monkeypatch.setattr(rehearse_machine, "cloud", found)
        monkeypatch.setattr(rehearse_machine, "time", fake)
        yield fake


def ask(*words: str, code: int = EXIT_DONE) -> str:
    result = CliRunner().invoke(rehearse, ["machine", "r", *words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_without_a_yes_nothing_is_asked_for(cloud: FakeCloud) -> None:
    said = ask("--worker", "1", "--worker", "2")
    what = f"maintenance of workers 1, 2 of {SLICE}"
    assert said == f"would have {what} simulated; nothing was done, see --yes\n"
    assert cloud.asked == []


@pytest.mark.parametrize(
    ("within_s", "words"),
    [(None, "without a deadline"), (90, "90 s ahead of its deadline")],
)
def test_it_waits_until_the_run_has_heard_what_is_new(
    cloud: FakeCloud, within_s: int | None, words: str
) -> None:
    cloud.warn_run("slurm", 5)  # that was before
    cloud.then = {
        4.0: lambda: setattr(cloud, "progressed", OrderAnswer(ActOutcome.ACCEPTED)),
        20.0: lambda: cloud.warn_run("gce", within_s),
    }
    said = ask("--yes")
    assert f"asked for maintenance of worker 0 of {SLICE}; waiting for run 'r'" in said
    assert f"run 'r' has heard of it from gce, {words}; holdfast report r tells more\n" in said
    assert cloud.asked == [(SLICE, ("0",))]
    assert cloud.at_s == 20.0


def test_a_run_that_hears_nothing_is_not_waited_for_for_ever(cloud: FakeCloud) -> None:
    said = ask("--yes", "--every", "5", "--limit", "60", code=EXIT_USER_FAILURE)
    assert "run 'r' has heard nothing within 60 s: see what it listens to (--notice)" in said
    assert cloud.at_s == 60.0


def test_what_the_cloud_refuses_is_said_at_once_or_as_soon_as_it_says_so(cloud: FakeCloud) -> None:
    no = OrderAnswer(ActOutcome.REFUSED, "no such worker")
    cloud.then = {8.0: lambda: setattr(cloud, "progressed", no)}
    said = ask("--yes", code=EXIT_UNAVAILABLE)
    assert said.endswith("maintenance is not simulated (refused: no such worker)\n")
    cloud.answer = no
    said = ask("--yes", code=EXIT_UNAVAILABLE)
    assert said == (
        f"maintenance of worker 0 of {SLICE} is not simulated (refused: no such worker)\n"
    )


def test_a_machine_that_is_not_well_is_left_alone(cloud: FakeCloud) -> None:
    cloud.slices = (replace(cloud.slices[0], state=SliceState.REPAIRING),)
    said = ask("--yes", code=EXIT_UNAVAILABLE)
    assert said.startswith(f"nothing was asked for: not all is well as it is: {SLICE} is being")
    assert cloud.asked == []


def test_what_cannot_be_known_is_asked_of_nobody(
    cloud: FakeCloud, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_silent(*_: object) -> None:
        raise ProviderError("Cloud TPU does not answer")

    monkeypatch.setattr(cloud, "describe", is_silent)
    RunStore(store).create("bare")
    for words, sentence in (
        (("r", "--yes"), "Cloud TPU does not answer"),
        (("bare", "--yes"), "has no machines of its own"),
        (("nosuch", "--yes"), "nosuch"),
    ):
        result = CliRunner().invoke(rehearse, ["machine", *words])
        assert isinstance(result.exception, HoldfastError), result.output
        assert sentence in str(result.exception)
    wrong = CliRunner().invoke(rehearse, ["machine", "r", "--worker", "first"])
    assert "'first' is not" in wrong.output
    assert cloud.asked == []
