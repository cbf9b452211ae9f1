"""The results in the numbers that are compared: one row per system and race."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrants import LEVELS, NAMES, SYSTEMS
from results import read

ORDER = [system.name for system in [*LEVELS, *SYSTEMS]]


@dataclass(frozen=True)
class Row:
    """One system's race, or its 200 kills."""

    result: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.result["system"])

    @property
    def title(self) -> str:
        return NAMES[self.name].title

    @property
    def framework(self) -> str:
        return NAMES[self.name].framework

    @property
    def ours(self) -> bool:
        return self.name.startswith("holdfast")

    @property
    def campaign(self) -> bool:
        return bool(self.result["settings"]["kills"])

    @property
    def measured(self) -> dict[str, Any]:
        """The phase with the kills; empty where it never came to that."""
        measured: dict[str, Any] = self.result.get("campaign" if self.campaign else "kills", {})
        return measured

    @property
    def goodput(self) -> float | None:
        return self.measured.get("goodput")

    @property
    def badput(self) -> float:
        return 1 - (self.goodput or 0.0)

    @property
    def struck(self) -> list[dict[str, Any]]:
        struck: list[dict[str, Any]] = self.measured.get("kills", [])
        return struck

    @property
    def never(self) -> int:
        """Kills that it did not come back from, and times that it went away by itself."""
        return int(self.measured.get("never", 0) + self.measured.get("strays", 0))

    @property
    def came_back(self) -> list[dict[str, Any]]:
        """The kills whose price is known."""
        return [one for one in self.struck if one["back"] and one.get("new_s") is not None]

    @property
    def new_s(self) -> list[float]:
        """Of each kill that it came back from: seconds to the next new step."""
        return [one["new_s"] for one in self.came_back]

    @property
    def lost(self) -> list[int]:
        return [one["lost_steps"] for one in self.came_back]

    @property
    def median_s(self) -> float | None:
        return statistics.median(self.new_s) if self.new_s else None

    def new_s_of(self, warm: bool) -> list[float]:
        """The same of the kills after which all ranks came from standbys; or did not."""
        flags = (self.measured.get("report") or {}).get("kills_warm", [])
        pairs = zip(self.struck, flags, strict=False)  # no report yet: no flags
        return [one["new_s"] for one, flag in pairs if flag is warm and one in self.came_back]

    @property
    def length(self) -> str:
        """How long it was for, and whether that is all."""
        settings = self.result["settings"]
        seconds = self.measured.get("elapsed_s", 0) if self.campaign else settings["seconds"]
        kills = "1 kill" if len(self.struck) == 1 else f"{len(self.struck)} kills"
        words = f"{seconds:.0f} s, {kills}, seed {settings['seed']}"
        return f"{words}, not finished" if self.measured.get("unfinished") else words

    @property
    def fell(self) -> str:
        """What ended it early, in the last line of its story; empty: nothing did."""
        stories = [self.result.get("fell")]
        stories += [
            of.get("fell")
            for of in map(self.result.get, ("kills", "campaign", "stop", "hang"))
            if of
        ]
        return next((story.strip().splitlines()[-1] for story in stories if story), "")


def rows(folder: Path) -> list[Row]:
    """All there are, in the order of the systems, the longest race of each first."""
    found = [Row(result) for result in read(folder) if result["system"] in NAMES]
    return sorted(found, key=lambda row: (ORDER.index(row.name), -len(row.struck)))


def best(of: Sequence[Row]) -> list[Row]:
    """The longest race of each system."""
    return [row for index, row in enumerate(of) if row.name not in {x.name for x in of[:index]}]


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that at least this share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
