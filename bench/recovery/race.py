"""The race: every system, the same faults at the same times, one ruler.

    python bench/recovery/race.py [--ranks 1,2] [--seconds 300] [--systems NAME,NAME]

Each system trains the same small language model (bench/recovery/trainers) on this machine, alone,
while SIGKILL strikes one of its ranks every 20 s on average; then it is told to stop by SIGTERM,
started again, and one of its ranks is frozen. `schedule.py` draws what strikes, `systems.py` has
how each is configured and why, `ruler.py` what is measured, `results.py` where it is kept. What is
there already with the same settings is not run again unless `--fresh`.

    … --kills 200 [--gap 2]     Holdfast, killed again a short while after it is back
    … --levels                  what each kind of standby buys
    … --smoke                   three kills in a minute, two ranks, for trying
    … --table [--markdown]      only what is there already
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import family
from entrants import LEVELS, NAMES, SYSTEMS, UNDISTURBED, known
from phases import Rules, turn, undisturbed
from results import CAMPAIGN, RACE, Result, Settings
from ruler import NS_PER_S
from schedule import kills, one_after_another
from systems import Place
from table import markdown, table

CORPUS_BYTES = 4_000_000
HERE = Path(__file__).parent


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--ranks", default="1,2", help="numbers of ranks with commas between them")
    p.add_argument("--seconds", type=float, default=300.0, help="of kills, per system")
    p.add_argument("--every", type=float, default=20.0, help="seconds between kills, on average")
    p.add_argument("--seed", type=int, default=20)
    p.add_argument(
        "--undisturbed", type=float, default=30.0, help="seconds of the run for the ruler"
    )
    p.add_argument("--systems", help="names with commas between them; all by default")
    p.add_argument("--levels", action="store_true", help="Holdfast alone, each kind of standby")
    p.add_argument("--kills", type=int, default=0, help="so many, instead of the schedule")
    p.add_argument("--gap", type=float, default=2.0, help="with --kills: seconds, on average")
    p.add_argument("--out", type=Path, default=Path("build/recovery"), help="results")
    p.add_argument("--work", type=Path, help="folder for what the systems write")
    p.add_argument("--only-kills", action="store_true", help="no stop, no hang")
    p.add_argument("--smoke", action="store_true", help="three kills in a minute, two ranks")
    p.add_argument("--fresh", action="store_true", help="run again what is there already")
    p.add_argument("--keep", action="store_true", help="leave what the systems wrote")
    p.add_argument("--never", type=float, default=30.0, help="seconds after which nobody waits")
    p.add_argument("--spares", default="2", help="warm spares of the in-process restart")
    p.add_argument("--holdfast", default="", help="more flags for `holdfast run`")
    p.add_argument("--table", action="store_true", help="only print what is there")
    p.add_argument("--markdown", action="store_true", help="the table for a page")
    return p


def main() -> None:
    args = parser().parse_args()
    if args.smoke:
        args.seconds, args.ranks = 60.0, "2"
    names = competitors(args)
    folders = {int(ranks): args.out / f"{ranks}-ranks" for ranks in args.ranks.split(",")}
    if not args.table:
        family.adopt_orphans()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended too
        if args.work is not None:
            args.work.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="holdfast-race-", dir=args.work))
        try:
            for ranks, folder in folders.items():
                folder.mkdir(parents=True, exist_ok=True)
                steps_ns: dict[str, int] = {}
                for name in names:
                    compete(name, ranks, args, folder, work, steps_ns)
        finally:
            if not args.keep:
                shutil.rmtree(work, ignore_errors=True)
    for ranks, folder in folders.items():
        print(f"\n{ranks} rank(s)\n{(markdown if args.markdown else table)(folder)}")


def competitors(args: argparse.Namespace) -> list[str]:
    """The systems that were asked for, by name."""
    if args.systems:
        names = str(args.systems).split(",")
    elif args.kills:
        names = ["holdfast", "holdfast-jax"]
    elif args.levels:
        names = [x.name for x in [*LEVELS, *SYSTEMS] if x.name.startswith("holdfast")]
    else:
        names = [system.name for system in SYSTEMS]
    if unknown := [name for name in names if name not in NAMES]:
        raise SystemExit(f"no such systems: {unknown}; there are {', '.join(NAMES)}")
    return names


def compete(
    name: str,
    ranks: int,
    args: argparse.Namespace,
    folder: Path,
    work: Path,
    steps_ns: dict[str, int],
) -> None:
    """One system's turn, or what is left of it. `steps_ns`: undisturbed just now, by framework."""
    settings = Settings(
        0.0 if args.kills else args.seconds, args.every, args.seed, args.never,
        args.kills, args.gap if args.kills else 0.0, args.spares, args.holdfast,
    )  # fmt: skip
    phases = CAMPAIGN if args.kills else RACE[:1] if args.only_kills else RACE
    result = Result.of(settings.file(folder, name), name, ranks, settings, args.fresh)
    print(f"--- {name}: {NAMES[name].title}, {ranks} rank(s)", flush=True)
    if result.finished(phases):
        print(f"{result.path} is there", flush=True)
        return
    if not known(NAMES[name]):
        print(f"skipped: this Holdfast has no {' '.join(NAMES[name].needs or ())}", flush=True)
        return
    started = time.monotonic()

    def say(words: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {words}", flush=True)

    data = work / "corpus.bin"
    if not data.exists():
        data.write_bytes(corpus())
    schedule = kills(args.seed, args.seconds, ranks, args.every)
    campaign = list(one_after_another(args.seed, args.kills, ranks, args.gap))
    plenty = str(len(schedule) + 2)
    options = {"spares": args.spares, "plenty": plenty, "holdfast": args.holdfast}
    # Of ours alone: for a peer it would be time in which it is not started again.
    evidence = folder if name.startswith("holdfast") else None
    place = Place(work / f"{name}-{ranks}", data, ranks, options, evidence)
    result.told.pop("fell", None)
    result.told["machine"] = machine()
    framework = NAMES[name].framework

    def alone_ns() -> int:
        alone = Place(work / f"undisturbed-{framework}-{ranks}", data, ranks)
        step_ns = undisturbed(UNDISTURBED[framework], alone, args.undisturbed, say)
        say(f"a step of an undisturbed run: {step_ns / NS_PER_S * 1000:.2f} ms")
        return step_ns

    try:
        before_ns = steps_ns.pop(framework, None) or alone_ns()
        rules = Rules(args.seconds, schedule, campaign, args.never, before_ns)
        result.told["undisturbed_step_s"] = [before_ns / NS_PER_S]
        missing = [phase for phase in phases if not result.has(phase)]
        turn(NAMES[name], place, rules, result, phases, say)
        # A machine drifts by a tenth within minutes: the mean of before and after is the measure.
        after_ns = steps_ns[framework] = alone_ns()
        result.told["undisturbed_step_s"] = [before_ns / NS_PER_S, after_ns / NS_PER_S]
        for phase in missing:
            result.rule_anew(phase, (before_ns + after_ns) / 2 / before_ns)
    except Exception:
        # One system's surprise is not to cost the others their turn.
        result.told["fell"] = traceback.format_exc()
        print(result.told["fell"], flush=True)
        family.end_all()
    result.told["machine"]["took_s"] = round(time.monotonic() - started, 1)
    result.write()


def machine() -> dict[str, object]:
    """What it was measured on, and which Holdfast."""
    git = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
    return {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip(),
        "load_before": os.getloadavg()[0],
    }


def corpus() -> bytes:
    """Bytes to learn from; the same on every machine."""
    return random.Random(0).randbytes(CORPUS_BYTES)


if __name__ == "__main__":
    main()
