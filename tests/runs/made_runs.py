"""Runs in a store as their processes would have written them, at any time: for tests and bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

from holdfast.journal import attempts as attempts_module
from holdfast.journal import writer as writer_module
from holdfast.journal.attempts import AttemptEnd, create_attempt, end_attempt
from holdfast.journal.clocks import ClockPair
from holdfast.journal.layout import CONTROLLER_RANK, Flag, Identity, Kind, NoteType, Word
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.writer import JournalWriter

S = 1_000_000_000


class Made(NamedTuple):
    """An attempt: so many steps of so long, and how it ended; `cause` None: it did not.

    Of its last step the script tells a number.

    With the cause "stopped" a person stopped it, and started it again after `pause_s`. The next
    attempt does the last `lost` steps again.
    """

    steps: int
    step_s: float = 10.0
    cause: str | None = "done"
    alike: int = 0
    pause_s: float = 0.0
    lost: int = 0
    tokens: int = 0  # of each step


def make_run(
    store: RunStore,
    name: str,
    attempts: Sequence[Made],
    *,
    requested_ns: int,
    chips: int = 4,
    startup_s: float = 30.0,
    ideal_step_s: float = 0.0,
    declared: Mapping[str, int] | None = None,
    told: Mapping[str, object] | None = None,
) -> tuple[RunFolder, int]:
    """The run, and its last moment. Each attempt goes on where the one before ended."""
    folder = store.create(name, requested_unix_ns=requested_ns)
    boot = f"boot-{name}"

    def make(path: str, attempt: int, rank: int) -> JournalWriter:
        (folder.path / path).parent.mkdir(parents=True, exist_ok=True)
        identity = Identity(name, attempt, f"{attempt}/{rank}", 0, "host", rank, boot)
        return JournalWriter.create(folder.path / path, identity)

    def fact(what: str, /, **payload: object) -> None:
        controller.note(NoteType.FACT, {"fact": what, **payload})

    with mock.patch.object(
        writer_module, "read_clock_pair", return_value=ClockPair(0, requested_ns)
    ):
        controller = make("journal/controller-000001.hfj", 1, CONTROLLER_RANK)
        ideal_ns = round(ideal_step_s * S)
        said = {"ideal_step_ns": ideal_ns, **(declared or {})}
        fact("run", name=name, requested_ns=0, chips=chips, **said)
        at_ns, step = 10 * S, 0
        for number, made in enumerate(attempts):
            parent = number - 1 if step else None
            then = SimpleNamespace(time_ns=lambda then_ns=requested_ns + at_ns: then_ns)
            with mock.patch.object(attempts_module, "time", then):
                create_attempt(
                    folder,
                    number,
                    parent=parent,
                    resume_step=step,
                    restore_set="0000-000000000001" if step else None,
                    chips=chips,
                )
            fact("attempt_start", attempt=number, at_ns=at_ns)
            rank = make(f"attempts/{number:04d}/journal/rank-00000.hfj", number, 0)
            at_ns += round(startup_s * S)
            if told is not None:
                if number and isinstance(again := told.get("again"), dict):
                    told = again
                rank.note(NoteType.FACT, {"fact": "program", "at_ns": at_ns, **told})
            rank.record_restore(at_ns - 5, at_ns, step, parent)
            rank.append(at_ns, Kind.STEP_BEGIN, 0, 0, step + 1, 0)
            for _ in range(made.steps):
                step += 1
                end_ns = at_ns + round(made.step_s * S)
                rank.append(end_ns, Kind.STEP, Flag.CONTINUES, made.tokens, step, at_ns)
                at_ns = end_ns
            if made.steps:
                rank.record_metrics(step, {"loss": 1 / step}, at_ns)
            rank.page.store(Word.STEP, step)
            rank.page.store(Word.STEP_AT, at_ns)
            rank.close()
            step -= made.lost
            if made.cause is None:
                continue
            if made.cause != "done":
                fact("fault", attempt=number, at_ns=at_ns, detected_ns=at_ns + S, cause=made.cause)
                at_ns += 2 * S
            fact("attempt_end", attempt=number, at_ns=at_ns, cause=made.cause)
            exits = (0,) if made.cause == "done" else (1,)
            ended_ns, after_ns = requested_ns + at_ns, None if made.cause == "done" else 0
            end = AttemptEnd(made.cause, f"it {made.cause}", exits, ended_ns, after_ns, made.alike)
            end_attempt(folder, number, end)
            if made.cause == "done":
                fact("run_end", at_ns=at_ns)
            if made.cause == "stopped":
                fact("wait", kind="stopped", start_ns=at_ns, end_ns=None)
                at_ns += round(made.pause_s * S)
            controller.append(at_ns, Kind.SEEN, 0, 0, 0, 0)
        controller.close()
    return folder, requested_ns + at_ns
