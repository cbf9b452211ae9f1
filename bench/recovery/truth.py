"""Is a plan true? The race's kills through the simulator, beside the same kills of a real run.

    python bench/recovery/truth.py [--ranks 2] [--seconds 120] [--rounds 3]

One run, three stretches. In the first nothing strikes it. Then it is killed a few times, to see how
long it takes to come back: a run without a fault cannot tell, since its only start was a cold one.
From these two stretches the parameters are fitted (`holdfast plan --from-run` does the same). In
the third SIGKILL strikes by the race's schedule, and the ruler says what came of it. The simulator
is given the fitted parameters and the schedule, and nothing of the third stretch.

What would be predicted from the first stretch alone, where a restart is taken to last as long as
the cold start, is printed too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import family
import phases
from bout import Bout
from entrants import NAMES
from phases import Rules
from race import corpus, machine
from ruler import NS_PER_S, account, boot_ns
from schedule import Fault, kills, one_after_another
from systems import Place
from truth_model import Course, Prediction, parameters_of, predicted

WITHIN_POINTS = 1.5
GAP_S = 20.0  # between rehearsed kills, on average: as between those of the race


@dataclass(frozen=True)
class Round:
    """One run: measured, and predicted with and without what the rehearsed kills told.

    `hindsight`: with restarts as long as the third stretch's own, which nobody could know. What is
    still off then is the model's; the rest is that restarts came out otherwise.
    """

    goodput: float
    report: float | None
    told: Prediction
    untold: Prediction
    hindsight: Prediction
    kills: int
    load: tuple[float, ...]

    @property
    def off_points(self) -> float:
        return 100 * (self.told.mean - self.goodput)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--system", default="holdfast", help="one of Holdfast's of the race")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--calm", type=float, default=60.0, help="seconds without a fault")
    p.add_argument("--rehearsals", type=int, default=4, help="kills that tell of restarts")
    p.add_argument("--seconds", type=float, default=120.0, help="of kills by the schedule")
    p.add_argument("--seed", type=int, default=20, help="of the schedule")
    p.add_argument("--rounds", type=int, default=1, help="runs, one after another")
    p.add_argument("--out", type=Path, default=Path("build/truth"), help="results")
    p.add_argument("--work", type=Path, help="folder for what the runs write")
    return p


def main() -> None:
    args = parser().parse_args()
    family.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended too
    args.out.mkdir(parents=True, exist_ok=True)
    rounds = []
    for number in range(args.rounds):
        work = Path(tempfile.mkdtemp(prefix="holdfast-truth-", dir=args.work))
        try:
            told, found = one_round(args, work)
        finally:
            family.end_all()
            shutil.rmtree(work, ignore_errors=True)
        rounds.append(found)
        name = f"{args.system}-{args.ranks}ranks-{args.seconds:g}s-seed{args.seed}-{number}.json"
        (args.out / name).write_text(json.dumps(told, indent=1) + "\n")
        print(line(found), flush=True)
    off = [one.off_points for one in rounds]
    middle = statistics.median(off)
    verdict = "within" if abs(middle) <= WITHIN_POINTS else "NOT within"
    print(f"off by {middle:+.2f} points (median), {verdict} {WITHIN_POINTS}; each: "
          + ", ".join(f"{one:+.2f}" for one in off))  # fmt: skip


def line(one: Round) -> str:
    low, high = one.told.low, one.told.high
    report = "" if one.report is None else f" (its own report {one.report:.1%})"
    return (
        f"measured {one.goodput:.1%}{report}, predicted {one.told.mean:.1%} ({low:.1%} … "
        f"{high:.1%}), off by {one.off_points:+.2f} points; with the cold start for a restart "
        f"{one.untold.mean:.1%}, with the restarts that came {one.hindsight.mean:.1%}; "
        f"{one.kills} kills, load {' '.join(f'{x:.1f}' for x in one.load)}"
    )


def one_round(args: argparse.Namespace, work: Path) -> tuple[dict[str, Any], Round]:
    """Measure a run, and predict it from its beginning."""
    data = work / "corpus.bin"
    data.write_bytes(corpus())
    place = Place(work / args.system, data, args.ranks)
    place.folder.mkdir()
    place.memory.mkdir(exist_ok=True)
    os.environ["HOLDFAST_SCRATCH"] = str(place.folder / "scratch")  # where its journals live
    began = time.monotonic()
    bout = Bout(
        NAMES[args.system],
        place,
        lambda words: print(f"[{time.monotonic() - began:6.1f} s] {words}", flush=True),
    )
    schedule = kills(args.seed, args.seconds, args.ranks)
    rehearsed = list(one_after_another(args.seed, args.rehearsals, args.ranks, GAP_S))
    rules = Rules(args.seconds, schedule, rehearsed)
    store, load = place.folder / "store", [os.getloadavg()[0]]
    try:
        bout.start()
        calm_ns = boot_ns()
        bout.wait(calm_ns + int(args.calm * NS_PER_S))
        calm = account(bout.follower.read().lives, calm_ns, boot_ns()).as_json()
        bout.say(f"nothing struck it for {args.calm:g} s: {calm['goodput']:.1%}")
        untold, load = parameters_of(store), [*load, os.getloadavg()[0]]
        phases.campaign(bout, rules, lambda _: None)
        bout.wait(boot_ns() + int(GAP_S * NS_PER_S))
        rehearsals = [struck.at_ns - calm_ns for struck in bout.struck]
        told, load = parameters_of(store), [*load, os.getloadavg()[0]]
        from_ns = boot_ns()
        race = phases.kills(bout, rules, lambda _: None)
        to_ns = boot_ns()
        came_s = parameters_of(store).restarts_s[len(told.restarts_s) :]
        load = [*load, os.getloadavg()[0]]
    finally:
        family.end_all()
        shutil.rmtree(place.memory, ignore_errors=True)
    course = Course(
        rehearsals, due(schedule, from_ns - calm_ns), from_ns - calm_ns, to_ns - calm_ns
    )
    found = Round(
        goodput=race["goodput"],
        report=(race["report"] or {}).get("goodput"),
        told=predicted(told, course),
        untold=predicted(untold, course),
        hindsight=predicted(replace(told, in_turn=told.restarts_s + came_s), course, 1),
        kills=len(schedule),
        load=tuple(round(one, 1) for one in load),
    )
    document = {
        "machine": machine(), "load": found.load, "calm": calm, "race": race,
        "fitted": told.to_json(), "fitted_without_restarts": untold.to_json(),
        "predicted": vars(found.told), "predicted_without_restarts": vars(found.untold),
        "predicted_in_hindsight": vars(found.hindsight), "restarts_s": [told.restarts_s, came_s],
        "off_points": found.off_points,
    }  # fmt: skip
    return document, found


def due(schedule: list[Fault], from_ns: int) -> list[int]:
    """When each is due, on the run's own clock."""
    return [from_ns + int(fault.at_s * NS_PER_S) for fault in schedule]


if __name__ == "__main__":
    main()
