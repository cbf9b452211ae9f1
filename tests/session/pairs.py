"""Two ranks that nobody supervises, as processes of a tiny script."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from processes import FAR, House, Process

from holdfast.agent.launch import free_ports
from holdfast.core.save.word import Order, unpack
from holdfast.journal.layout import Word
from holdfast.journal.rank_page import RankPage

HERE = Path(__file__).parent


class Pair:
    """Ranks 0 and 1 of run `r`; every start is one attempt on a fresh port."""

    def __init__(self, house: House, script: str, *, by_launcher: bool = True) -> None:
        """`by_launcher`: RANK and WORLD_SIZE are set, as launchers do."""
        self.house = house
        self.script = HERE / script
        self.by_launcher = by_launcher

    def start(self, steps: int, **env: object) -> list[Process]:
        """Both ranks."""
        (port,) = free_ports(1)
        return [self.rank(rank, port, steps, **env) for rank in (0, 1)]

    def rank(self, rank: int, port: int, steps: int, **env: object) -> Process:
        """One rank."""
        if self.house.allow_file.exists():
            env.setdefault("ALLOW", self.house.allow_file)
        variables = {
            "NUMBER": rank,
            "SIZE": 2,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "HOLDFAST_NAME": "r",
            **env,
        }
        if variables.pop("launcher", self.by_launcher):
            variables |= {"RANK": rank, "WORLD_SIZE": 2}
        return self.house.start(sys.executable, self.script, steps, **variables)

    def run(self, steps: int, code: int = 0, **env: object) -> list[str]:
        """Both, to their end: their outputs."""
        return [process.wait(code) for process in self.start(steps, **env)]

    def trained(self, **env: object) -> tuple[list[Process], int]:
        """Ranks that wait at a gate after step 3, of which step 2 is saved; the last step they did.

        No save is under way, and there is something to save: a stop is ordered at once.
        """
        self.house.allow(3)
        ranks = self.start(FAR, HOLDFAST_SAVE_EVERY_STEPS=1000, TAG_AT=2, **env)
        both_did(ranks, 3)
        assert self.house.saved_step() == 2, [process.text for process in ranks]
        return ranks, 3


def both_did(ranks: Sequence[Process], step: int) -> None:
    """Wait until both have done a step."""
    for process in ranks:
        process.saw(f"did {step}$")


def ends(house: House, name: str = "r") -> list[dict[str, object]]:
    """How each attempt ended."""
    found = sorted((house.store / name / "attempts").glob("*/end.json"))
    return [json.loads(path.read_text()) for path in found]


def finals(outputs: list[str]) -> list[str]:
    """What each printed as its result."""
    return [re.search(r"final (\w+)", out).group(1) for out in outputs]


def goes_on(outputs: list[str], saved: int) -> None:
    """All resumed from one set, `saved` or a newer one.

    Newer, where all shards were durable when the ranks ended, and only the manifest was missing.
    """
    assert len(set(starts(outputs))) == 1
    assert starts(outputs)[0] >= saved


def holds_at(process: Process) -> int:
    """The step at whose end a stop is ordered, to which this rank does not come."""
    return int(process.saw(r"holds at (\d+)$")[1])


def nothing_of(step: int, house: House, saved: int) -> None:
    """Saved is what was before, or what was being written then, but nothing of this step."""
    assert saved <= house.saved_step() < step


def starts(outputs: list[str]) -> list[int]:
    """From which step each resumed."""
    return [int(re.search(r"from (\d+)", out).group(1)) for out in outputs]


def stop_is_ordered() -> bool:
    """Whether both ranks know at which step they are to stop, by their live journals."""
    orders = []
    for live in Path(os.environ["HOLDFAST_SCRATCH"]).rglob("rank-*.hfj"):
        page = RankPage.open(live)
        orders.append(unpack(page.load(Word.ORDER)))
        page.detach()
    return len(orders) == 2 and all(order.flags & Order.STOP for order in orders)
