"""What was measured, as files: one per system and race, written anew after each fault.

`OUT/2-ranks/torchrun.300s-seed20.json` is a race of 300 s, `….200kills-seed20.json` one of so many
kills. An interrupted race goes on with the phases that are missing; results from several machines
or evenings are merged by copying their files into one folder. What is in such a folder is in the
table, also what fell or never came back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RACE = ("kills", "stop", "hang")
CAMPAIGN = ("campaign",)


@dataclass(frozen=True)
class Settings:
    """What one result was measured with. Results of other settings are not gone on with."""

    seconds: float
    every: float
    seed: int
    never: float
    kills: int = 0
    gap: float = 0.0
    spares: str = ""
    holdfast: str = ""

    @property
    def phases(self) -> tuple[str, ...]:
        return CAMPAIGN if self.kills else RACE

    def file(self, folder: Path, system: str) -> Path:
        length = f"{self.kills}kills" if self.kills else f"{self.seconds:g}s"
        return folder / f"{system}.{length}-seed{self.seed}.json"


@dataclass
class Result:
    """One system's result and the file that it is kept in."""

    path: Path
    told: dict[str, Any]

    @classmethod
    def of(cls, path: Path, system: str, ranks: int, settings: Settings, fresh: bool) -> Result:
        """What is there of it already, if that was measured with the same settings."""
        begun = {"system": system, "ranks": ranks, "settings": vars(settings)}
        if fresh or not path.exists():
            return cls(path, begun)
        told = json.loads(path.read_text())
        return cls(path, told if told["settings"] == begun["settings"] else begun)

    @classmethod
    def of_file(cls, path: Path) -> Result:
        """What is there, with whatever settings."""
        return cls(path, json.loads(path.read_text()))

    def has(self, phase: str) -> bool:
        """Whether that phase is over. One that fell is tried again."""
        measured = self.told.get(phase)
        return measured is not None and not measured.get("unfinished") and "fell" not in measured

    def finished(self, phases: tuple[str, ...]) -> bool:
        return all(self.has(phase) for phase in phases)

    def keep(self, phase: str, measured: dict[str, Any], unfinished: bool = False) -> None:
        """Write it down: whoever ends us now ends nothing that was measured."""
        self.told[phase] = {**measured, "unfinished": True} if unfinished else measured
        self.write()

    def rule_anew(self, phase: str, ratio: float) -> None:
        """The undisturbed step turned out so many times as long: what goodput was ruled by it."""
        measured = self.told.get(phase, {})
        if "goodput" not in measured:
            return
        measured["goodput"] *= ratio
        report = measured.get("report") or {}
        if "ruler" in report:
            report["ruler"] *= ratio
            report["difference_points"] = 100 * (report["goodput"] - report["ruler"])

    def write(self) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.told, indent=1) + "\n")
        part.replace(self.path)


def read(folder: Path) -> list[dict[str, Any]]:
    """All results of a folder, by the names of their files."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
