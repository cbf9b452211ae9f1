"""The script's own numbers on their way into the journal: what is kept, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.journal.facts.run import RunFacts
from holdfast.journal.layout import Identity, Word
from holdfast.journal.metric_log import MetricLog
from holdfast.journal.sidecar import SidecarWriter
from holdfast.journal.writer import JournalWriter
from holdfast.runs.curves import curves_of
from holdfast.session import metrics as module
from holdfast.session.metrics import KEPT_EVERY_NS, KEPT_VALUES, Metrics


class Told:
    """What rank 0 tells in one attempt, and what is read of it."""

    def __init__(self, run: Path) -> None:
        self.run = run
        folder = run / "attempts" / "0000" / "journal"
        folder.mkdir(parents=True)
        identity = Identity("r", 0, "i", 0, "host", 0, "boot")
        self.writer = JournalWriter.create(folder / "rank-00000.hfj", identity)
        self.metrics = Metrics(self.writer)

    def tell(self, step: int, given: Any) -> None:
        self.metrics.offer(step, given)
        self.metrics.write()

    def read(self) -> dict[str, list[tuple[int, float]]]:
        log = MetricLog(self.run)
        log.refresh()
        return {
            name: [pair for of in told.values() for pair in zip(of.step, of.value, strict=True)]
            for name, told in log.by_name.items()
        }


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    one = Told(tmp_path)
    yield one
    one.writer.close()


class OnDevice:
    """A FAKE of a device's scalar: it tells when it is fetched, and may be gone."""

    shape = ()

    def __init__(self, words: Any, value: float | None) -> None:
        self.words = words
        self.value = value

    def item(self) -> float:
        """What frameworks call it."""
        assert self.words.load(Word.AWAITED) == 7
        assert self.words.load(Word.AWAITED_AT) > 0
        if self.value is None:
            raise RuntimeError("it was deleted")
        return self.value


def test_numbers_of_all_kinds(told: Told) -> None:
    given = {"loss": 0.1, "n": 3, "f32": np.float32(0.5), "one": np.ones(1), "yes": True}
    told.tell(7, {**given, "device": OnDevice(told.writer.page, 0.25)})
    numbers = {"loss": 0.1, "n": 3.0, "f32": 0.5, "one": 1.0, "yes": 1.0, "device": 0.25}
    assert told.read() == {name: [(7, value)] for name, value in numbers.items()}
    assert told.writer.page.load(Word.AWAITED_AT) == 0


def test_numbers_of_frameworks(told: Told) -> None:
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    told.tell(1, {"torch": torch.tensor(0.5, requires_grad=True), "jax": jnp.float32(0.25)})
    assert told.read() == {"torch": [(1, 0.5)], "jax": [(1, 0.25)]}


def test_nothing_is_fetched_in_the_loop(told: Told) -> None:
    class Untouchable:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    given = {"loss": Untouchable()}
    told.metrics.offer(1, given)
    given["loss"] = 1.0  # the script's own dict, used again


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"loss": "0.5"}, "metric 'loss' of step 7 cannot be kept: str is not one number"),
        ({"loss": np.zeros(3)}, "ndarray is not one number"),
        ({"loss": None}, "metric 'loss' of step 7"),
        ({"loss": 10**400}, "metric 'loss' of step 7"),
        ({"": 1.0}, "a name is text of up to 80 printable characters"),
        ({3: 1.0}, "a name is text"),
        ({"a\nb": 1.0}, "a name is text"),
        ({"x" * 81: 1.0}, "a name is text"),
        ({f"n{n}": 1.0 for n in range(65)}, "it holds 65 names, and 64 are kept"),
        (3.5, "give a dict of names and numbers"),
        (["loss"], "give a dict of names and numbers"),
    ],
)
def test_what_is_no_number_costs_the_number_and_a_sentence(
    told: Told, capsys: pytest.CaptureFixture[str], given: Any, words: str
) -> None:
    told.tell(7, given)
    told.tell(7, given)
    out = capsys.readouterr().err
    assert words in out
    assert out.count("\n") == 1
    assert told.read() == {}


def test_a_device_that_has_it_no_more(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told.tell(7, {"gone": OnDevice(told.writer.page, None), "here": 1.0})
    assert "metric 'gone' of step 7 cannot be kept: it was deleted" in capsys.readouterr().err
    assert told.read() == {"here": [(7, 1.0)]}
    assert told.writer.page.load(Word.AWAITED_AT) == 0


def test_names_that_never_repeat_are_bounded(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in range(1, 200):
        told.tell(step, {f"loss at {step}": 1.0})
    assert len(told.read()) == module.MOST_NAMES
    assert capsys.readouterr().err.count("\n") == module.MOST_SENTENCES


def test_what_is_no_finite_number_is_kept_as_what_it_is(told: Told) -> None:
    for step, value in enumerate((math.nan, math.inf, -math.inf, 1e308), 1):
        told.tell(step, {"loss": value})
    assert repr(told.read()["loss"]) == "[(1, nan), (2, inf), (3, -inf), (4, 1e+308)]"


def test_a_long_attempt_is_thinned(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the first, then one in ten seconds; a name that comes rarely is kept whole."""
    clock = [0]
    monkeypatch.setattr(module, "now_ns", lambda: clock[0])
    steps = KEPT_VALUES + 1000
    for step in range(1, steps + 1):
        clock[0] += KEPT_EVERY_NS // 10
        told.tell(step, {"loss": 1.0} | ({"accuracy": 0.5} if step % 100 == 0 else {}))
    read = told.read()
    assert len(read["loss"]) == KEPT_VALUES + 100
    assert read["loss"][-1][0] == KEPT_VALUES + 1000
    assert len(read["accuracy"]) == steps // 100


def test_of_steps_done_again_in_an_attempt_the_later_count(told: Told) -> None:
    for step in (1, 2, 3, 2):
        told.tell(step, {"loss": float(step * 10)})
    assert told.read() == {"loss": [(1, 10.0), (2, 20.0)]}


def test_what_others_wrote_there_is_passed_over(told: Told) -> None:
    """And whoever reads the rest of the journal passes over these lines."""
    for line in (
        {"metrics": 3, "step": 1, "at_ns": 1},
        {"metrics": {"loss": "NaN", "x\n": 1, "deep": {"er": 1}}, "step": 1, "at_ns": 1},
        {"metrics": {"loss": 1}, "step": -1, "at_ns": 1},
        {"metrics": {"loss": 1}, "step": 1, "at_ns": "now"},
        {"metrics": {"loss": 1}},
    ):
        told.writer._sidecar.write(line)
    told.tell(2, {"loss": 0.5})
    assert told.read() == {"loss": [(2, 0.5)]}
    facts = RunFacts(told.run, _Nothing())
    facts.refresh()
    assert facts.notes() == []


class _Nothing:
    """A sink for facts."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_what_is_new_is_read_where_the_last_look_ended(told: Told) -> None:
    log = MetricLog(told.run)
    for step in range(1, 5):
        told.tell(step, {"loss": float(step)})
        log.refresh()
        assert list(log.by_name["loss"][0].step) == list(range(1, step + 1))
    assert log.by_name["loss"][0].at_s[0] > 1.7e9  # unix time


def test_a_log_that_follows_says_what_a_first_look_says(tmp_path: Path) -> None:
    """Whatever has arrived by then: torn tails, and earlier attempts after later ones."""
    whole: list[tuple[Path, bytes]] = []
    for number in (2, 0, 1):
        folder = tmp_path / "made" / "attempts" / f"{number:04}" / "journal"
        folder.mkdir(parents=True)
        identity = Identity("r", number, "i", 0, "host", 0, "boot")
        with JournalWriter.create(folder / "rank-00000.hfj", identity) as writer:
            for step in (1, 2, 3, 2):
                writer.record_metrics(step, {"loss": step + number / 4, f"of {number}": 1.0}, 1)
        whole += [(path, path.read_bytes()) for path in sorted(folder.iterdir(), reverse=True)]
    follows = MetricLog(tmp_path / "seen")
    for path, data in whole:
        place = tmp_path / "seen" / path.relative_to(tmp_path / "made")
        place.parent.mkdir(parents=True, exist_ok=True)
        cuts = range(0, len(data), 7) if path.suffix == ".jsonl" else ()
        for size in (*cuts, len(data)):
            place.write_bytes(data[:size])
            follows.refresh()
            first = MetricLog(tmp_path / "seen")
            first.refresh()
            assert follows.by_name == first.by_name
            assert curves_json(follows) == curves_json(first)
    assert set(follows.by_name) == {"loss", "of 0", "of 1", "of 2"}


def curves_json(log: MetricLog) -> list[tuple[str, dict[str, Any]]]:
    return [(one.name, one.to_json()) for one in curves_of(log, {0: 1, 2: 3})]


def test_a_full_disk_costs_the_numbers(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SidecarWriter, "write", lambda *_: None)
    told.tell(1, {"loss": 1.0})
    assert told.read() == {}
    assert told.writer.page.load(Word.DROPPED) == 1
