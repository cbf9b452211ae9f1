"""The race: every system, the same faults at the same times, one ruler.

    python bench/recovery/race.py [--ranks 2] [--seconds 200] [--systems NAME,NAME]

Each system trains the same small language model (bench/recovery/trainers) on this machine, alone,
while SIGKILL strikes one of its ranks every 20 s on average; then it is told to stop by SIGTERM,
started again, and one of its ranks is frozen. `faults.py` has the schedule, `systems.py` how each
is configured and why, `ruler.py` what is measured. Results go to `--out`, one file per system; what
is there already with the same settings is not run again unless `--fresh`.

    … --systems holdfast --seconds 600 --every 3 --only-kills       200 kills, one each 3 s
    … --levels --only-kills                                         what each kind of standby buys
    … --smoke                                                       a minute each, for trying
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import family
from bout import Rules, turn
from faults import kills
from systems import LEVELS, NAMES, SYSTEMS, Place
from table import table

CORPUS_BYTES = 4_000_000


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--seconds", type=float, default=200.0, help="of kills, per system")
    p.add_argument("--every", type=float, default=20.0, help="seconds between kills, on average")
    p.add_argument("--seed", type=int, default=20)
    p.add_argument("--systems", help="names with commas between them; all by default")
    p.add_argument("--levels", action="store_true", help="Holdfast's kinds of standby instead")
    p.add_argument("--out", type=Path, default=Path("build/recovery"), help="results, per system")
    p.add_argument("--work", type=Path, help="folder for what the systems write")
    p.add_argument("--only-kills", action="store_true", help="no stop, no hang")
    p.add_argument("--smoke", action="store_true", help="three kills in a minute")
    p.add_argument("--fresh", action="store_true", help="run again what is there already")
    p.add_argument("--keep", action="store_true", help="leave what the systems wrote")
    p.add_argument("--never", type=float, default=30.0, help="seconds after which nobody waits")
    p.add_argument("--spares", default="2", help="warm spares of the in-process restart")
    p.add_argument("--holdfast", default="", help="more flags for `holdfast run`")
    p.add_argument("--table", action="store_true", help="only print what is there")
    return p


def main() -> None:
    args = parser().parse_args()
    if args.smoke:
        args.seconds = 60.0
    field = LEVELS if args.levels else SYSTEMS
    names = args.systems.split(",") if args.systems else [system.name for system in field]
    if unknown := [name for name in names if name not in NAMES]:
        raise SystemExit(f"no such systems: {unknown}; there are {', '.join(NAMES)}")
    folder = args.out / f"{args.ranks}-ranks"
    folder.mkdir(parents=True, exist_ok=True)
    if not args.table:
        family.adopt_orphans()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended too
        work = Path(tempfile.mkdtemp(prefix="holdfast-race-", dir=args.work))
        try:
            for name in names:
                if args.ranks in NAMES[name].ranks:
                    compete(name, args, folder, work)
        finally:
            if not args.keep:
                shutil.rmtree(work, ignore_errors=True)
    print(table(folder))


def compete(name: str, args: argparse.Namespace, folder: Path, work: Path) -> None:
    """One system, unless its result is there already."""
    path = folder / f"{name}.json"
    settings = {
        "seconds": args.seconds, "every": args.every, "seed": args.seed,
        "spares": args.spares, "holdfast": args.holdfast, "never": args.never,
    }  # fmt: skip
    if not args.fresh and finished(path, settings):
        print(f"--- {name}: {path} is there", flush=True)
        return
    print(f"--- {name}: {NAMES[name].title}, {args.ranks} ranks", flush=True)
    started = time.monotonic()

    def say(words: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {words}", flush=True)

    data = work / "corpus.bin"
    if not data.exists():
        data.write_bytes(corpus())
    schedule = kills(args.seed, args.seconds, args.ranks, args.every)
    options = {"spares": args.spares, "holdfast": args.holdfast}
    place = Place(work / name, data, args.ranks, options)
    rules = Rules(args.seconds, schedule, args.never, not args.only_kills)
    before = os.getloadavg()[0]
    try:
        result = turn(NAMES[name], place, rules, say)
    except Exception:
        # One system's surprise is not to cost the others their turn.
        result = {"system": name, "ranks": args.ranks, "fell": traceback.format_exc()}
        print(result["fell"], flush=True)
        family.end_all()
    result["settings"] = settings
    result["machine"] = {
        "cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version(),
        "load_before": before, "took_s": round(time.monotonic() - started, 1),
    }  # fmt: skip
    path.write_text(json.dumps(result, indent=1) + "\n")


def finished(path: Path, settings: dict) -> bool:
    """Whether this system has been through all of it, with these settings."""
    if not path.exists():
        return False
    result = json.loads(path.read_text())
    return result["settings"] == settings and "fell" not in result


def corpus() -> bytes:
    """Bytes to learn from; the same on every machine."""
    return random.Random(0).randbytes(CORPUS_BYTES)


if __name__ == "__main__":
    main()
