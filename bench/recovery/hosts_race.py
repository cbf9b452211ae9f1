"""The race of hosts: three that train and a spare, and the power of one goes every 40 s.

    python bench/recovery/hosts_race.py [--seconds 240] [--systems NAME,NAME]     (make race-hosts)

Each system trains the same small model on hosts of the lab (namespaces of this machine), alone.
In turn one of hosts 1, 2 and 3 that trains is powered off; 20 s later it is on again, its command
is started again, and it is the spare. Host 0 is spared: there PyTorch's ranks meet. At the end host
0 goes too, once. A run that does no new step for `--never` seconds is started anew from outside.
`hosts_systems.py` has how each is configured, `ruler.py` what is measured. What is there already
with the same settings is not run again unless `--fresh`.

    … --smoke                   two power cuts
    … --table                   only what is there already
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(TESTS / name) for name in ("", "e2e", "lab")]
import lab as labs  # noqa: E402
from bout import FellError  # noqa: E402
from hosts_bout import Cut, HostsBout, clean_environment, end, kept  # noqa: E402
from hosts_systems import ALL, HOSTS, NAMES, SYSTEMS  # noqa: E402
from race import corpus, machine  # noqa: E402
from results import Result, Settings  # noqa: E402
from ruler import NS_PER_S, boot_ns  # noqa: E402
from systems import Place  # noqa: E402
from table import aligned, piped  # noqa: E402

EVERY_S = 40.0
FIRST_S, SPREAD_S = 5.0, 10.0
SETTLED_S = 15.0  # from a host's return to the last cut: the spare is ready by then
HEAD = (
    "system", "goodput", "power off → next new step", "lost a cut", "never", "host 0 off", "race"
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=float, default=240.0, help="of power cuts, per system")
    p.add_argument("--seed", type=int, default=20)
    p.add_argument("--systems", help="names with commas between them; all by default")
    p.add_argument("--out", type=Path, default=Path("build/recovery/hosts"), help="results")
    p.add_argument("--work", type=Path, help="folder for what the systems write")
    p.add_argument("--smoke", action="store_true", help="two power cuts")
    p.add_argument("--fresh", action="store_true", help="run again what is there already")
    p.add_argument("--keep", action="store_true", help="leave what the systems wrote")
    p.add_argument("--never", type=float, default=60.0, help="seconds after which nobody waits")
    p.add_argument("--table", action="store_true", help="only print what is there")
    p.add_argument("--markdown", action="store_true", help="the table for a page")
    return p


def main() -> None:
    args = parser().parse_args()
    args.seconds = 2 * EVERY_S if args.smoke else args.seconds
    names = args.systems.split(",") if args.systems else list(NAMES)
    if unknown := [name for name in names if name not in NAMES]:
        raise SystemExit(f"no such systems: {unknown}; there are {', '.join(NAMES)}")
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.table:
        if not labs.has_namespaces():
            sys.exit("no lab here: it needs root, unshare (namespaces) and /dev/net/tun (TAP)")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended too
        clean_environment()
        for name in names:
            compete(name, args)
    print((piped if args.markdown else aligned)([HEAD, *cells(args.out)]))


def compete(name: str, args: argparse.Namespace) -> None:
    """One system's turn."""
    settings = Settings(args.seconds, EVERY_S, args.seed, args.never)
    result = Result.of(settings.file(args.out, name), name, HOSTS, settings, args.fresh)
    print(f"--- {name}: {NAMES[name].title}", flush=True)
    if result.finished(("cuts", "host0")):
        print(f"{result.path} is there", flush=True)
        return
    began = time.monotonic()

    def say(words: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s] {words}", flush=True)

    work = Path(tempfile.mkdtemp(prefix="holdfast-race-", dir=args.work))
    data = work / "corpus.bin"
    data.write_bytes(corpus())
    result.told.pop("fell", None)
    result.told["machine"] = machine()
    try:
        with labs.Lab(ALL, work) as lab:
            (lab.shared / name).mkdir()
            place = Place(lab.shared / name, data, HOSTS)
            bout = HostsBout(NAMES[name], place, lab, say)
            try:
                turn(bout, args, result)
            finally:
                result.path.with_suffix(".log").write_text(bout.output())
    except Exception:
        # One system's surprise is not to cost the others their turn.
        result.told["fell"] = traceback.format_exc()
        print(result.told["fell"], flush=True)
    finally:
        if not args.keep:
            shutil.rmtree(work, ignore_errors=True)
    result.told["machine"]["load_after"] = os.getloadavg()[0]
    result.write()


def turn(bout: HostsBout, args: argparse.Namespace, result: Result) -> None:
    """Power cuts by the schedule, then one of host 0."""
    try:
        bout.start()
        bout.say("it trains")
        measured = cuts(bout, args)
        result.keep("cuts", measured)
        bout.say(f"goodput {measured['goodput']:.1%}, {measured['lost_steps']} steps lost")
        if not measured["cuts"] or not measured["cuts"][-1]["back"]:
            bout.start_anew()
        bout.pause(SETTLED_S)
        result.keep("host0", host0(bout, args))
    except FellError as fell:
        bout.say(f"fell: {fell}; the end of its output:\n{bout.tail()}")
        result.told["fell"] = str(fell)
        end(bout.lab)


def cuts(bout: HostsBout, args: argparse.Namespace) -> dict[str, Any]:
    """Hosts 1, 2 and 3 in turn; what the ruler says of that time."""
    draw, from_ns = random.Random(args.seed), boot_ns()
    victims = [1 + number % HOSTS for number in range(int(args.seconds / EVERY_S))]
    never = 0
    for number, victim in enumerate(victims):
        due_s = EVERY_S * number + FIRST_S + SPREAD_S * draw.random()
        bout.pause(due_s - (boot_ns() - from_ns) / NS_PER_S)
        if number and boot_ns() > from_ns + args.seconds * NS_PER_S:
            bout.say("the rest is due after the end: it was down for too long")
            break
        hosts = bout.training()
        order = [1 + (victim - 1 + more) % HOSTS for more in range(HOSTS)]
        found = next((one for one in order if one in hosts), None)
        if found is None:
            bout.say(f"none of hosts 1 to 3 trains: {hosts}; started from outside")
            bout.start_anew()
            never += 1
            continue
        cut = blow(bout, found, due_s, args.never)
        if not cut.back:
            never += 1
            bout.start_anew()
    bout.pause(args.seconds - (boot_ns() - from_ns) / NS_PER_S)
    account = kept(bout.follower.read().lives, from_ns, boot_ns())
    told = [vars(cut) for cut in bout.cuts]
    return {**account, "never": never, "cuts": told, "load": os.getloadavg()[0]}


def blow(bout: HostsBout, host: int, due_s: float, never_s: float) -> Cut:
    """One power cut, and until a new step is done."""
    cut = bout.cut_power(host, due_s)
    if bout.comes_back(cut, never_s):
        words = f"{cut.new_s:.2f} s, {cut.lost_steps} steps lost"
    else:
        words = f"no new step within {never_s:.0f} s; the end of its output:\n{bout.tail()}"
    bout.say(f"host {host} off (rank {cut.rank}, load {os.getloadavg()[0]:.1f}): {words}")
    return cut


def host0(bout: HostsBout, args: argparse.Namespace) -> dict[str, Any]:
    """The host at which the others meet; Holdfast's controller begins there too."""
    bout.until(lambda: 0 in bout.training(), args.never, "train on host 0")
    return vars(blow(bout, 0, 0.0, args.never))


def cells(folder: Path) -> list[tuple[str, ...]]:
    """A line for each system that has been in the race."""
    found = []
    for system in SYSTEMS:
        for path in sorted(folder.glob(f"{system.name}.*.json")):
            found.append(line(Result.of_file(path).told))
    return found


def line(told: dict[str, Any]) -> tuple[str, ...]:
    measured, host0 = told.get("cuts"), told.get("host0")
    title = NAMES[told["system"]].title
    if measured is None:
        return (title, "–", "–", "–", "–", "–", str(told.get("fell", "")).strip()[-80:])
    back = [one for one in measured["cuts"] if one["back"]]
    new_s = [one["new_s"] for one in back]
    spread = f"{statistics.median(new_s):.1f} s, worst {max(new_s):.1f}" if new_s else "–"
    count = len(measured["cuts"])
    if host0 is None:
        first = "–"
    elif host0["back"]:
        first = f"{host0['new_s']:.1f} s, {host0['lost_steps']} lost"
    else:
        first = "never"
    load = told["machine"]["load_before"], measured["load"]
    return (
        title,
        f"{measured['goodput']:.1%}",
        spread,
        f"{measured['lost_steps'] / max(count, 1):.1f}",
        f"{measured['never']} of {count}",
        first,
        f"{measured['elapsed_s']:.0f} s, steps of {measured['step_s']:.2f} s, load "
        f"{load[0]:.1f} and {load[1]:.1f}",
    )


if __name__ == "__main__":
    main()
