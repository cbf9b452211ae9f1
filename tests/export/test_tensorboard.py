"""TensorBoard's files: read back, tag by tag."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holdfast.core.ledger.summary import ALL, RunSummary, Spent
from holdfast.export.outlet import ExportLook
from holdfast.export.sample import Sample
from holdfast.export.tensorboard import TensorBoardExporter
from holdfast.runs.curves import Curve, Points

S = 1_000_000_000
KINDS = {"step": 60 * S, "startup": 20 * S, "custom:eval": 10 * S, "lost": 5 * S, "queued": 5 * S}


def a_look(*names: str, step: int = 7) -> ExportLook:
    spent = Spent(KINDS, steps_kept=6, ideal=48 * S, paced=60 * S, wall_ns=100 * S, kept_ns=60 * S)
    runs = tuple(
        RunSummary(n, n, "running", chips=1, step=step, within={ALL: spent, "1h": spent})
        for n in names
    )
    return ExportLook(tuple(Sample(run, time.time()) for run in runs), runs)


def scalars_in(folder: Path) -> dict[str, tuple[int, float]]:
    """The scalars of all event files there, by the format's own framing."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for file in folder.glob("events.out.tfevents.*"):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            at += 16 + length
            for one in event.summary.value:
                found[one.tag] = (event.step, one.simple_value)
    return found


def points_in(folder: Path) -> dict[str, dict[int, float]]:
    """What TensorBoard shows of them: a file's start takes away what stood from its step on."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    shown: dict[str, dict[int, float]] = {}
    for file in sorted(folder.glob("events.out.tfevents.*")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            at += 16 + length
            if event.HasField("session_log") and event.session_log.status == SessionLog.START:
                for tag, points in shown.items():
                    shown[tag] = {s: v for s, v in points.items() if s < event.step}
            for one in event.summary.value:
                points = shown.setdefault(one.tag, {})
                assert event.step not in points  # a step that is shown twice
                points[event.step] = one.simple_value
    return shown


Kept = dict[int, dict[int, float]]  # by attempt and step


def curve_of(name: str, kept: Kept) -> Curve:
    rows = [(a, s, v, 1e9 + s) for a, values in kept.items() for s, v in values.items()]
    return Curve(name, Points(*map(np.array, zip(*rows, strict=True))), ())


def told(board: TensorBoardExporter, **kept: Kept) -> None:
    look = a_look("a")
    curves = tuple(curve_of(name, values) for name, values in kept.items())
    samples = tuple(replace(sample, curves=curves) for sample in look.samples)
    board.deliver(ExportLook(samples, look.runs))


@pytest.mark.real
def test_no_step_of_the_scripts_numbers_is_shown_twice(
    tmp_path: Path, eventually: Callable[..., object]
) -> None:
    """The run grows, goes back twice, and another exporter tells all of it again."""
    board = TensorBoardExporter(str(tmp_path), is_fleet=False)
    place = tmp_path / "metrics"

    def shows(losses: dict[int, float], accs: dict[int, float], **kept: Kept) -> None:
        def shown() -> bool:
            told(board, **kept)  # what is told is in the file after the next flush at the latest
            return points_in(place) == {"loss": losses, "acc": accs}

        eventually(shown)

    shows({1: 0.5, 2: 0.25}, {2: 4.0}, loss={0: {1: 0.5, 2: 0.25}}, acc={0: {2: 4.0}})
    shows(
        {1: 0.5, 2: 0.25, 3: 1.5, 4: 2.5},
        {2: 4.0, 4: 8.0},
        loss={0: {1: 0.5, 2: 0.25, 3: 1.5, 4: 2.5}},
        acc={0: {2: 4.0, 4: 8.0}},
    )
    # Attempt 1 went on after step 2, and has not told of its steps under both names yet.
    shows(
        {1: 0.5, 2: 0.25, 3: 9.0},
        {2: 4.0},
        loss={0: {1: 0.5, 2: 0.25}, 1: {3: 9.0}},
        acc={0: {2: 4.0}},
    )
    shows({1: 8.0}, {1: 1.0}, loss={2: {1: 8.0}}, acc={2: {1: 1.0}})  # from scratch
    board.close()
    for file in place.iterdir():  # an exporter that begins later has a later second in its names
        file.rename(str(file).replace("tfevents.", "tfevents.0"))
    again = TensorBoardExporter(str(tmp_path), is_fleet=False)
    told(again, loss={2: {1: 8.0, 2: math.nan}}, acc={2: {1: 1.0}})
    again.close()
    assert repr(points_in(place)) == "{'loss': {1: 8.0, 2: nan}, 'acc': {1: 1.0}}"


def test_tags_that_people_know(tmp_path: Path) -> None:
    board = TensorBoardExporter(str(tmp_path), is_fleet=False)
    board.deliver(a_look("a"))
    board.deliver(a_look("a", step=9))
    board.close()
    found = {tag: value for tag, (_, value) in scalars_in(tmp_path / "goodput").items()}
    badput = {tag: value for tag, value in found.items() if tag.startswith("badput/")}
    windows = {tag: found.pop(tag) for tag in [*found] if tag.startswith("rolling_window_badput/")}
    assert windows == {
        f"rolling_window_{tag}".replace("/", "/3600/", 1): badput[tag] for tag in badput
    }
    assert found == pytest.approx(
        {
            "goodput/goodput": 60,
            "rolling_window_goodput/3600": 60,
            "goodput/scheduling": 95,
            "goodput/runtime": 100 * 60 / 95,
            "goodput/program": 80,
            "badput/tpu_initialization": 0,
            "badput/training_prep": 20,
            "badput/program_startup": 0,
            "badput/data_loading_sync": 0,
            "badput/unproductive_checkpoint_save_time": 0,
            "badput/unproductive_checkpoint_restore_time": 0,
            "badput/wasted_progress_from_disruption": 5,
            "badput/infrastructure_recovery_from_disruption": 5,
            "badput/custom_badput_events/eval": 10,
            "badput/other": 0,
        }
    )
    assert {step for step, _ in scalars_in(tmp_path / "goodput").values()} == {9}


def test_of_several_runs_each_has_its_folder(tmp_path: Path) -> None:
    board = TensorBoardExporter(str(tmp_path), is_fleet=True)
    board.deliver(a_look("a", "b"))
    board.deliver(a_look("a"))  # b was deleted
    board.close()
    assert scalars_in(tmp_path / "a" / "goodput")
    assert scalars_in(tmp_path / "b" / "goodput")


def test_a_folder_that_cannot_be_written_is_a_failed_delivery(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    board = TensorBoardExporter(str(tmp_path / "file"), is_fleet=False)
    with pytest.raises(OSError):
        board.deliver(a_look("a"))


@pytest.mark.real
def test_no_framework_is_imported_for_it(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from holdfast.export.tensorboard import TensorBoardExporter\n"
        f"TensorBoardExporter({str(tmp_path)!r}, is_fleet=False)\n"
        "print('torch' in sys.modules, 'jax' in sys.modules, 'tensorboardX' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("False False True", "")
