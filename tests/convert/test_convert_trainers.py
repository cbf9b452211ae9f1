"""Logs that real runs of Hugging Face's Trainer and PyTorch Lightning left: killed, and resumed.

`logs/huggingface`: 200 steps, a line of the log each 10, evaluated and saved each 50; killed in
step 115, resumed from 100. `logs/lightning`: 256 steps, killed in step 130, resumed from 100.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from converting import account_of, converted, spans, steps

from holdfast.convert.asked import ConvertOptions
from holdfast.convert.formats import kind_of
from holdfast.core.ledger.facts import AttemptFact, RunFact
from holdfast.errors import ConfigurationError

LOGS = Path(__file__).parent / "logs"
S = 10**9


def test_hugging_faces_event_files(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(LOGS / "huggingface", folder)
    for step, at_s in ((50, 1795376558.77), (100, 1795376560.36), (200, 1895376560.36)):
        (folder / f"checkpoint-{step}").mkdir()
        for name, late_s in (("model.safetensors", 0.0), ("trainer_state.json", 0.01)):
            (folder / f"checkpoint-{step}" / name).write_bytes(b"")
            os.utime(folder / f"checkpoint-{step}" / name, (at_s, at_s + late_s))
    assert kind_of(folder) == "huggingface"
    done = converted(folder, "huggingface")
    account = account_of(done)
    assert (account["steps_kept"], account["lost_steps"]) == (200, 10)
    first, second = (f for f in done.facts if isinstance(f, AttemptFact))
    assert (first.cause, second.cause) == ("unknown", "done")
    assert second.end_ns is not None
    # What the Trainer itself measured of its second run.
    assert (second.end_ns - second.start_ns) / S == pytest.approx(3.2646, abs=0.01)
    assert account["badput_s"]["custom:eval"] == pytest.approx(
        0.1406 + 0.1257 + 0.1423 + 0.121, abs=0.01
    )
    saves = [s for s in spans(done.facts) if s.kind == "save"]
    assert [round((s.end_ns or 0) - s.start_ns, -7) for s in saves] == [10_000_000] * 2
    assert any("checkpoint-200" in note and "newer than the run" in note for note in done.notes)


def test_hugging_faces_console(tmp_path: Path) -> None:
    logs = [LOGS / "huggingface" / f"console-{n}.txt" for n in (1, 2)]
    assert kind_of(logs[0]) == "huggingface"
    done = converted(logs, "huggingface", asked=ConvertOptions(start_ns=1000 * S))
    account = account_of(done)
    assert account["start_s"] == 1000.0
    assert account["steps_kept"] == 200
    assert account["lost_steps"] in range(4, 20)  # the bar does not say where it resumed
    assert account["elapsed_s"] == pytest.approx(6.0)
    assert any("upper bound" in note for note in done.notes)
    # Of a second the first step tells when it was over; the others ended some time in it.
    rows = [(r.first, r.last, r.start_ns // S - 1000) for r in steps(done.facts)]
    assert rows[:4] == [(1, 37, 0), (38, 62, 1), (63, 98, 2), (99, 114, 3)]


def test_the_bar_of_the_training_is_the_one_with_a_loss(tmp_path: Path) -> None:
    """An evaluation ahead of the training has a bar of its own."""
    path = tmp_path / "console.txt"
    path.write_text(
        "".join(f" {n}%|█| {n}/7 [00:0{n}<00:01]\r" for n in range(8))
        + "\n{'eval_loss': 2.0, 'eval_runtime': 7.1}\n"
        + "".join(f" {n}%|█| {n}/40 [1:00:0{n}<00:40]\r" for n in range(6))
        + "\n{'loss': 1.5, 'epoch': 0.1}\n"
        + "".join(f" {n}%|█| {n}/40 [1:00:0{n}<00:40]\r" for n in range(6, 10))
    )
    done = converted(path, "huggingface")
    assert account_of(done)["steps_kept"] == 9


def test_checkpoints_alone(tmp_path: Path) -> None:
    """No event files: steps are known by the checkpoints' times only."""
    for step in (100, 200, 300, 400):
        (tmp_path / f"checkpoint-{step}").mkdir()
        for name, at_s in (
            ("model.safetensors", 10.0 * step),
            ("trainer_state.json", 10.0 * step + 5),
        ):
            (tmp_path / f"checkpoint-{step}" / name).write_bytes(b"{}")
            os.utime(tmp_path / f"checkpoint-{step}" / name, (at_s, at_s))
    account = account_of(converted(tmp_path, "huggingface"))
    assert (account["steps_kept"], account["badput_s"]["save"]) == (400, 20.0)
    assert account["productive_s"] == pytest.approx(4000.0 - 15, abs=6)


def test_a_state_without_times_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text('{"log_history": []}')
    with pytest.raises(ConfigurationError, match="no times"):
        converted(tmp_path / "trainer_state.json", "huggingface")


def test_lightnings_event_files() -> None:
    assert kind_of(LOGS / "lightning") == "lightning"
    done = converted(LOGS / "lightning", "lightning")
    account = account_of(done)
    assert (account["steps_kept"], account["lost_steps"]) == (250, 30)
    rows = steps(done.facts)
    assert [(r.first, r.last) for r in rows[:3]] == [(1, 10), (11, 20), (21, 30)]
    assert next(r for r in rows if r.attempt == 1).first == 101
    assert {s.kind for s in spans(done.facts)} == {"custom:eval"}


def test_lightnings_csv_has_no_times(tmp_path: Path) -> None:
    folder = tmp_path / "lightning_logs" / "version_0"
    folder.mkdir(parents=True)
    shutil.copy(LOGS / "lightning" / "version_0" / "metrics.csv", folder)
    assert kind_of(tmp_path) == "lightning"
    with pytest.raises(ConfigurationError, match="has no times"):
        converted(tmp_path, "lightning")
    with pytest.raises(ConfigurationError, match="times or durations"):
        converted(folder / "metrics.csv", "table")


def test_a_linked_event_file_is_known_by_the_links_name(tmp_path: Path) -> None:
    data = LOGS / "huggingface" / "runs" / "first" / "events.out.tfevents.1"
    shutil.copy(data, tmp_path / "blob")
    (tmp_path / "events.out.tfevents.1").symlink_to(tmp_path / "blob")
    assert kind_of(tmp_path / "events.out.tfevents.1") == "tensorboard"


def test_any_event_files() -> None:
    done = converted(LOGS / "lightning", "tensorboard")
    assert account_of(done)["steps_kept"] == 250
    with pytest.raises(ConfigurationError, match="no step was found"):
        converted(LOGS / "lightning", "tensorboard", asked=ConvertOptions(tag="none_such"))


def test_pax_says_whether_steps_are_valid_and_evaluates_nothing() -> None:
    """`logs/pax`: a value each 10 steps; killed at step 225 or so, before it wrote all."""
    done = converted(LOGS / "pax", "tensorboard")
    account = account_of(done)
    assert (account["steps_kept"], spans(done.facts)) == (140, [])
    assert account["productive_s"] == pytest.approx(0.4, abs=0.1)
    assert account["badput_s"]["startup"] == pytest.approx(3.0, abs=0.1)  # compiles for most of it


def test_what_is_damaged_in_an_event_file(tmp_path: Path) -> None:
    good = (LOGS / "huggingface" / "runs" / "first" / "events.out.tfevents.1").read_bytes()
    for name, data, words in (
        ("torn", good[:-5], "breaks off"),
        ("flipped", good[:3000] + bytes([good[3000] ^ 1]) + good[3001:], "damaged record"),
    ):
        path = tmp_path / f"events.out.tfevents.{name}"
        path.write_bytes(data)
        done = converted(path, "tensorboard")
        assert steps(done.facts)
        assert any(words in note and name in note for note in done.notes)


def test_files_of_other_writers_at_the_same_time(tmp_path: Path) -> None:
    source = LOGS / "huggingface" / "runs" / "first" / "events.out.tfevents.1"
    for name in ("a.tfevents", "b.tfevents"):
        shutil.copy(source, tmp_path / name)
    done = converted(tmp_path, "tensorboard")
    assert len([f for f in done.facts if isinstance(f, AttemptFact)]) == 1
    assert any("b.tfevents: begun while" in note for note in done.notes)


def test_the_users_word_counts(tmp_path: Path) -> None:
    asked = ConvertOptions(
        name="mine", chips=16, requested_ns=1795376000 * S, end_ns=1795377000 * S
    )
    done = converted(LOGS / "huggingface", "huggingface", asked=asked)
    run = next(f for f in done.facts if isinstance(f, RunFact))
    assert (run.name, run.chips, run.requested_ns) == ("mine", 16, 1795376000 * S)
    assert account_of(done)["badput_s"]["queued"] == pytest.approx(557.1, abs=0.1)
