"""MaxText's logs: every spelling of a step line, restarts, saves, several processes, rubbish."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from pathlib import Path

import pytest
from converting import account_of, converted, line_of, spans, steps

from holdfast.convert.asked import ConvertOptions
from holdfast.core.ledger.facts import AttemptFact, RestoreFact, RunFact, SpanFact, StepsFact
from holdfast.errors import ConfigurationError

S = 10**9
# Lines as several versions of MaxText print them.
STEP_LINES = {
    "2023": "completed step: 4, seconds: 2.500, TFLOP/s: 1.731, loss: 9.206",
    "2024": "completed step: 4, seconds: 2.500, TFLOP/s/device: 28.510, loss: 1.966",
    "tokens": "completed step: 4, seconds: 2.500, TFLOP/s/device: 1674.038, "
    "Tokens/s/device: 36325.072, total_weights: 1572864, loss: 10.874",
    "rampup": "[Rampup Batch Size Phase], completed step: 4, seconds: 2.500, total_weights: 8, los",
    "elastic": "completed step: 4, seconds: 2.500, live slice count: 2, TFLOP/s/device: 1.0, loss",
    "glog": "I0317 10:00:13.224641 125344476638336 metric_logger.py:1] completed step: 4, seconds:"
    " 2.500, TFLOP/s/device: 3.239, loss: nan",
    "coloured": "\x1b[32mcompleted step: 4, seconds: 2.500,\x1b[0m TFLOP/s/device: 3.239, loss: 1",
    "kubectl": "2026-03-17T10:00:13.224641123Z completed step: 4, seconds: 2.500, loss: 1.0",
    "cloud": '{"textPayload": "completed step: 4, seconds: 2.500, loss: 1.0", '
    '"timestamp": "2026-03-17T10:00:13.2Z"}',
}  # fmt: skip


@pytest.mark.parametrize("spelling", STEP_LINES)
def test_every_spelling_of_a_step_line(spelling: str, tmp_path: Path) -> None:
    (row,) = steps(converted(tmp_path, "maxtext", STEP_LINES[spelling] + "\n").facts)
    assert (row.first, row.last) == (5, 5)
    assert row.end_ns is not None
    assert row.end_ns - row.start_ns == 2_500_000_000


def test_a_line_is_written_when_the_next_step_is_over(tmp_path: Path) -> None:
    """Of the last two lines, one follows the other at once; both steps took ten seconds."""
    log = line_of(0, 1.0, 11.0) + line_of(1, 10.0, 21.0) + line_of(2, 10.0, 31.0)
    log += line_of(3, 10.0, 31.001)
    rows = steps(converted(tmp_path, "maxtext", log).facts)
    assert [(r.end_ns or 0) - r.start_ns for r in rows] == [1 * S, 10 * S, 10 * S, 10 * S]
    assert all(a.end_ns == b.start_ns for a, b in itertools.pairwise(rows))


def test_falling_back_is_a_restart_and_what_was_done_twice_is_lost(tmp_path: Path) -> None:
    log = "".join(line_of(n, 1.0, 10.0 + n) for n in range(10))
    log += "".join(line_of(n, 1.0, 100.0 + n) for n in range(5, 15))
    done = converted(tmp_path, "maxtext", log)
    account = account_of(done)
    assert (account["steps_kept"], account["lost_steps"]) == (15, 5)
    assert [d["cause"] for d in account["disruptions"]] == ["unknown"]
    assert any("fall back" in note for note in done.notes)


def test_a_banner_is_a_restart_though_the_steps_go_on(tmp_path: Path) -> None:
    log = "".join(line_of(n, 1.0, 10.0 + n) for n in range(10))
    log += at(60.0) + "System Information: Jax Version: 0.9.1\n"
    log += at(70.0) + "restoring from this run's directory step 9\n"
    log += (
        at(75.0) + "[process=0] [sync] Finished blocking load in 5.00 seconds. Continuing @ /c/9.\n"
    )
    log += "".join(line_of(n, 1.0, 90.0 + n) for n in range(10, 20))
    facts = converted(tmp_path, "maxtext", log).facts
    second = next(f for f in facts if isinstance(f, AttemptFact) and f.attempt == 1)
    assert second.start_ns == T0 + 60 * S
    (restore,) = [f for f in facts if isinstance(f, RestoreFact)]
    assert (restore.step, restore.end_ns - restore.start_ns) == (10, 5 * S)


def test_silence_is_a_restart_only_beyond_what_a_step_takes(tmp_path: Path) -> None:
    calm = "".join(line_of(n, 700.0, 700.0 * n) for n in range(1, 6))
    assert len(attempts(converted(tmp_path, "maxtext", calm).facts)) == 1
    torn = "".join(line_of(n, 1.0, 1.0 * n + (900 if n > 5 else 0)) for n in range(1, 11))
    assert len(attempts(converted(tmp_path, "maxtext", torn).facts)) == 2
    assert (
        len(attempts(converted(tmp_path, "maxtext", torn, ConvertOptions(gap_ns=1000 * S)).facts))
        == 1
    )


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ([(1250, "Finished blocking save in 1200.00 seconds. Continuing @ /c/5.")], "save"),
        (
            [
                (900, "a word in between"),
                (1250, "Finished blocking save in 1200.00 seconds. Continuing @ /c/5."),
            ],
            "save",
        ),
        (
            [(50, "Starting eval after train step 5"), (1250, "Completed eval after train step 5")],
            "custom:eval",
        ),
    ],
)
def test_what_the_log_names_is_no_silence(
    told: list[tuple[int, str]], kind: str, tmp_path: Path
) -> None:
    """A save or an evaluation of twenty minutes, in the seconds of the next step or not."""
    for seconds in (10.0, 1210.0):
        log = "".join(line_of(n, 10.0, 10.0 * n) for n in range(1, 6))
        log += "".join(f"{at(time)}{words}\n" for time, words in told)
        log += line_of(6, seconds, 1260.0) + line_of(7, 10.0, 1270.0)
        account = account_of(converted(tmp_path, "maxtext", log))
        assert (account["disruptions"], account["badput_s"]) == ([], {kind: 1200.0})


def test_what_a_step_itself_took_is_no_silence(tmp_path: Path) -> None:
    log = "".join(line_of(n, 10.0, 10.0 * n) for n in range(1, 6))
    log += at(900.0) + "a word in between\n" + line_of(6, 1210.0, 1260.0)
    assert len(attempts(converted(tmp_path, "maxtext", log).facts)) == 1


def test_last_steps_that_a_killed_process_did_not_log_were_done(tmp_path: Path) -> None:
    """It logs a step late, so its newest checkpoint may hold a step that no line tells of."""
    log = "".join(line_of(n, 1.0, 10.0 + n) for n in range(10))
    log += at(60.0) + "restoring from this run's directory step 10\n"
    log += "".join(line_of(n, 1.0, 90.0 + n) for n in range(11, 20))
    done = converted(tmp_path, "maxtext", log)
    assert (account_of(done)["steps_kept"], account_of(done)["lost_steps"]) == (20, 0)
    assert any("steps 11–11 have no line" in note for note in done.notes)


def test_saves_and_evaluations_are_no_steps(tmp_path: Path) -> None:
    log = "".join(line_of(n, 10.0, 10.0 * n) for n in range(1, 6))
    log += (
        at(54.0)
        + "[process=0] [async] Finished blocking save in 3.50 seconds. Continuing @ /c/5.\n"
    )
    log += at(54.5) + "Starting eval after train step 5\n"
    log += at(56.5) + "Completed eval after train step 5, loss=1.000, perplexity=2.718\n"
    log += "".join(line_of(n, 10.0, 10.0 * n) for n in range(6, 9))
    kinds = {
        s.kind: (s.end_ns or 0) - s.start_ns
        for s in spans(converted(tmp_path, "maxtext", log).facts)
    }
    assert kinds == {"save": 3_500_000_000, "custom:eval": 2 * S}


def test_the_same_without_times(tmp_path: Path) -> None:
    log = "".join(f"completed step: {n}, seconds: 10.000, loss: 1.0\n" for n in range(5))
    log += "[process=0] [sync] Finished blocking save in 3.50 seconds. Continuing save @ /c/4.\n"
    log += (
        "Starting eval after train step 4\nCompleted eval step: 0, seconds: 2.000, running loss=1\n"
    )
    log += "Completed eval after train step 4, loss=1.000\n"
    log += "completed step: 5, seconds: 15.500, loss: 1.0\n"
    done = converted(tmp_path, "maxtext", log)
    account = account_of(done)
    assert account["elapsed_s"] == pytest.approx(65.5)
    assert account["productive_s"] == pytest.approx(60.0)
    assert any("upper bound" in note for note in done.notes)


def test_many_pauses_wait_for_their_steps(tmp_path: Path) -> None:
    """Each comes out right after its step, however they stand in the log."""
    told = [
        f"Starting eval after train step {n}\nCompleted eval step: 0, seconds: 1.000,\n"
        f"Completed eval after train step {n}\n"
        for n in range(50)
    ]
    log = "".join(reversed(told)) + "".join(told)
    log += "".join(f"completed step: {n}, seconds: 5.000, loss: 1.0\n" for n in range(51))
    found = spans(converted(tmp_path, "maxtext", log).facts)
    assert [(s.start_ns // S, (s.end_ns or 0) // S) for s in found] == [
        (5 * n + half, 5 * n + half + 1) for n in range(1, 51) for half in (0, 1)
    ]


def test_compilation_is_what_first_steps_take_too_long(tmp_path: Path) -> None:
    took = [36.24, 192.846, 3.033, 3.565, 3.964, 3.5]  # a real run's
    log = "".join(f"completed step: {n}, seconds: {t}, loss: 1.0\n" for n, t in enumerate(took))
    account = account_of(converted(tmp_path, "maxtext", log))
    assert account["badput_s"] == {"compile": pytest.approx(36.24 + 192.846 - 2 * 3.565, abs=0.1)}


def test_of_two_stamps_the_first_counts(tmp_path: Path) -> None:
    """That of the log service has a zone and a year; the logger's own has none."""
    line = "I0317 03:00:13.2 77 m.py:1] completed step: 4, seconds: 2.500, loss: 1.0\n"
    (row,) = steps(converted(tmp_path, "maxtext", at(13.25) + line).facts)
    assert row.end_ns == T0 + 13_250_000_000


def test_what_the_log_says_of_the_run(tmp_path: Path) -> None:
    log = "Config param run_name: demo\nConfig param steps: 2\nNum_devices: 8, shape (1, 8)\n"
    log += line_of(0, 1.0, 1.0) + line_of(1, 1.0, 2.0)
    facts = converted(tmp_path, "maxtext", log).facts
    run = next(f for f in facts if isinstance(f, RunFact))
    assert (run.name, run.chips) == ("demo", 8)
    assert [a.cause for a in attempts(facts)] == ["done"]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("Traceback (most recent call last):", "failed"),
        ("Reached preemption sync point", "preempted"),
        ("Slice down event detected. Retrying.", "host_lost"),
    ],
)
def test_how_it_ended(words: str, cause: str, tmp_path: Path) -> None:
    log = (
        line_of(0, 1.0, 1.0) + line_of(1, 1.0, 2.0) + at(3.0) + words + "\n" + line_of(1, 1.0, 9.0)
    )
    assert [a.cause for a in attempts(converted(tmp_path, "maxtext", log).facts)] == [cause, None]


@pytest.mark.parametrize(
    "prefix", ["[rank{}]: ", "{}: ", "[pod/run-0-{}-abc/main] ", "[default{}]:"]
)
def test_lines_of_several_processes(prefix: str, tmp_path: Path) -> None:
    """In any order, some of them behind: one step each."""
    order = [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 3), (0, 3), (0, 4), (1, 4)]
    log = "".join(
        prefix.format(rank) + line_of(step, 1.0, 10.0 + step + rank / 10) for rank, step in order
    )
    facts = converted(tmp_path, "maxtext", log).facts
    assert [r.last for r in steps(facts)] == [1, 2, 3, 4, 5]
    assert len(attempts(facts)) == 1


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "[pod/run-0-{}-abc/main] "])
def test_logs_of_several_processes_one_after_another(prefix: str, tmp_path: Path) -> None:
    """Each with its starts, restores, saves and restart; the last one is a step ahead."""
    log = ""
    for rank in (0, 1, 2):
        told = at(0.1 * rank) + "System Information: Jax Version: 0.9.1\n"
        told += "".join(line_of(n, 10.0, 10.0 * (n + 1) + 0.1 * rank) for n in range(50))
        told += at(900.0 + 0.1 * rank) + "System Information: Jax Version: 0.9.1\n"
        told += at(901.0 + 0.1 * rank) + "restoring from this run's directory step 39\n"
        told += "".join(
            line_of(n, 10.0, 920.0 + 10.0 * (n - 39) + 0.1 * rank) for n in range(40, 60 + rank)
        )
        log += "".join(prefix.format(rank) + line for line in told.splitlines(keepends=True))
    account = account_of(converted(tmp_path, "maxtext", log))
    assert (account["steps_kept"], account["lost_steps"]) == (62, 10)
    assert len(account["disruptions"]) == 1
    assert account["elapsed_s"] == pytest.approx(920 + 220, abs=0.3)


def test_two_threads_numbers_are_two_processes(tmp_path: Path) -> None:
    log = "".join(
        f"I0317 10:00:{step:02d}.{rank}00000 {7000 + rank} m.py:1] completed "
        f"step: {step}, seconds: 1.0, loss\n"
        for step in range(1, 9)
        for rank in (0, 1)
    )
    facts = converted(tmp_path, "maxtext", log).facts
    assert [r.last for r in steps(facts)] == [2, 3, 4, 5, 6, 7, 8, 9]


def test_what_is_torn_is_named_with_its_place(tmp_path: Path) -> None:
    log = line_of(0, 1.0, 1.0) + "completed step: 1, seco\n" + "\0\xff rubbish\n" * 3
    log += line_of(2, 1.0, 3.0) + "completed step: 3, seconds: 1.00"
    done = converted(tmp_path, "maxtext", log)
    assert [r.last for r in steps(done.facts)] == [1, 2, 3]
    (torn,) = [note for note in done.notes if "breaks off" in note]
    assert "log:2, " in torn
    assert "log:7:" in torn


def test_gzip_and_carriage_returns(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    log = line_of(0, 1.0, 1.0) + "a bar 1%\ra bar 2%\r" + line_of(1, 1.0, 2.0)
    path.write_bytes(gzip.compress(log.encode()))
    assert [r.last for r in steps(converted(path, "maxtext").facts)] == [1, 2]
    path.write_bytes(gzip.compress(log.encode())[:-12])
    with pytest.raises(ConfigurationError, match="damaged"):
        converted(path, "maxtext")
    packed = bytearray(gzip.compress(log.encode()))
    packed[10] = 0xFF  # a kind of block that there is not
    path.write_bytes(packed)
    with pytest.raises(ConfigurationError, match="damaged"):
        converted(path, "maxtext")


def test_logs_are_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    """A later process, the first one, and a second rank's log of the same time as the first."""
    for name, first, start in (("a", 95, 1000.0), ("b", 0, 0.0), ("c", 0, 0.5)):
        log = "".join(line_of(first + n, 1.0, start + n) for n in range(100))
        (tmp_path / name).write_text(log)
    done = converted([tmp_path / name for name in "abc"], "maxtext")
    account = account_of(done)
    assert (account["steps_kept"], account["lost_steps"]) == (195, 5)
    assert len(account["disruptions"]) == 1
    assert any("c: begun while the log before it was written" in note for note in done.notes)


def test_a_log_that_ended_with_its_file_may_have_been_asked_for_before(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("".join(f"completed step: {n}, seconds: 10.000,\n" for n in range(10)))
    os.utime(path, (1000, 1000))
    asked = ConvertOptions(file_times=True, requested_ns=850 * S, end_ns=1100 * S)
    account = account_of(converted(path, "maxtext", asked=asked))
    assert (account["start_s"], account["end_s"]) == (850.0, 1100.0)


def test_a_pipe_has_no_last_change(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        ConfigurationError, match="is not a file, and has no time of its last change"
    ):
        converted(tmp_path / "pipe", "maxtext", asked=ConvertOptions(file_times=True))


def test_file_times(tmp_path: Path) -> None:
    """Two logs without times, one a process: each ended when its file last changed."""
    for name, first, changed in (("a.log", 0, 1000), ("b.log", 5, 2000)):
        log = "".join(f"completed step: {first + n}, seconds: 10.000, loss: 1\n" for n in range(10))
        (tmp_path / name).write_text(log)
        os.utime(tmp_path / name, (changed, changed))
    done = converted(
        [tmp_path / "a.log", tmp_path / "b.log"], "maxtext", asked=ConvertOptions(file_times=True)
    )
    account = account_of(done)
    assert (account["start_s"], account["end_s"]) == (900.0, 2000.0)
    assert account["badput_s"] == {"lost": 50.0, "reschedule": 900.0}


def test_numbers_that_cannot_be(tmp_path: Path) -> None:
    log = line_of(0, 1.0, 1.0) + line_of(10**17, 1.0, 2.0) + line_of(1, 1.0, 3.0)
    done = converted(tmp_path, "maxtext", log)
    assert [r.last for r in steps(done.facts)] == [1, 2]
    assert any("cannot be" in note for note in done.notes)


T0 = 1_773_741_600 * S  # 2026-03-17 10:00:00


def at(seconds: float) -> str:
    return line_of(0, 1.0, seconds).split(" ", 1)[0] + " "


def attempts(facts: list[object]) -> list[AttemptFact]:
    return [f for f in facts if isinstance(f, AttemptFact)]


def test_notes_come_along_in_the_history(tmp_path: Path) -> None:
    done = converted(tmp_path, "maxtext", line_of(0, 1.0, 1.0))
    run = json.loads(done.text.splitlines()[-1])
    assert run["event"] == "run"
    assert tuple(run["notes"]) == done.notes
    assert {type(f) for f in done.facts} >= {StepsFact, AttemptFact, RunFact}
    assert not [f for f in done.facts if isinstance(f, SpanFact)]
