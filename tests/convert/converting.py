"""What the tests of converters share: logs as text, and what comes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast.convert.asked import ConvertOptions
from holdfast.convert.formats import convert
from holdfast.convert.notes import Notes
from holdfast.core.history.line import to_lines
from holdfast.core.history.text import parse_text
from holdfast.core.ledger.facts import Fact, SpanFact, StepsFact
from holdfast.core.ledger.incremental import Ledger

START = datetime(2026, 3, 17, 10, tzinfo=UTC)


@dataclass(frozen=True)
class Done:
    facts: list[Fact]
    text: str
    notes: tuple[str, ...]


def converted(
    where: Path | Sequence[Path],
    kind: str,
    log: str | None = None,
    asked: ConvertOptions | None = None,
) -> Done:
    """Convert a log, given as text in a folder or as files, and check that it is a history."""
    if log is not None:
        assert isinstance(where, Path)
        where = where / "log"
        where.write_bytes(log.encode("utf-8", "surrogateescape"))
    notes = Notes()
    paths = [where] if isinstance(where, Path) else list(where)
    facts = list(convert(paths, kind, asked or ConvertOptions(), notes))
    text = "".join(to_lines(facts))
    parse_text(text)
    return Done(facts, text, notes.all())


def account_of(done: Done) -> dict[str, Any]:
    ledger = Ledger()
    ledger.add_history(parse_text(done.text))
    return ledger.account(None, None).to_json()


def steps(facts: Sequence[Fact]) -> list[StepsFact]:
    return [f for f in facts if isinstance(f, StepsFact)]


def spans(facts: Sequence[Fact]) -> list[SpanFact]:
    return [f for f in facts if isinstance(f, SpanFact)]


def stamp(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def line_of(step: int, seconds: float, at: float) -> str:
    """A step line of MaxText, as kubectl logs --timestamps prints it."""
    return f"{stamp(at)} completed step: {step}, seconds: {seconds:.3f}, TFLOP/s/device: 1, loss\n"
