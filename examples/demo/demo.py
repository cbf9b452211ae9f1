"""Train a language model through a maintenance notice, a SIGKILL and a crash; show the report.

    python examples/demo/demo.py                       # about a minute and a half on 2 cores
    python examples/demo/demo.py --check               # and prove that nothing of it left a trace
    python examples/demo/demo.py --without-holdfast    # the same faults on a plain loop beside it

This script plays the world around a training run: a scheduler that starts it, a cloud that takes
its machine away, and bad luck. All of that is triggered by the run's own progress.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from comparison import side_by_side
from rich.console import Console
from world import Fault, History, World, checksum, kill, kill_rank, notice

HERE = Path(__file__).parent
TRAIN = HERE.parent / "lm" / "train.py"
PLAIN = HERE / "plain.py"
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
AWAY_S = 2.0  # how long the scheduler looks for another machine after a notice
GRACE_S = 30


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--check", action="store_true", help="compare with an uninterrupted training")
    p.add_argument("--without-holdfast", action="store_true", help="the same faults, plain loop")
    p.add_argument("--save-every", type=int, default=50, help="steps from checkpoint to checkpoint")
    p.add_argument("--picture", type=Path, metavar="SVG", help="draw the last screen into a file")
    p.add_argument("train", nargs="*", metavar="-- FLAG", help="passed on to train.py")
    args = p.parse_args()
    if args.steps < 100:
        p.error("three faults need room: --steps is at least 100")
    return args


def main():
    args = parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # what we kill leaves no core file
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-", ignore_cleanup_errors=True) as folder:
        os.environ["HOLDFAST_STORE"] = f"{folder}/store"
        os.environ["HOLDFAST_SCRATCH"] = folder
        # Restarts load what the first attempt compiled; the plain loop's as well.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/compiled"
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["COLUMNS"] = str(console.width)  # for the report, where there is no terminal
        try:
            demonstrate(args, Path(folder), World(console))
        except KeyboardInterrupt:
            console.print("\ninterrupted; everything is stopped and removed", style="bold")
            sys.exit(130)


def demonstrate(args, folder: Path, world: World):
    world.say(
        f"{args.steps} steps of training; a maintenance notice, a SIGKILL and a crash are to come"
    )
    with_holdfast(args, folder, world)
    if args.without_holdfast:
        without_holdfast(args, folder, world)
    if args.check:
        world.title("The reference: the same training, and nothing happens to it")
        apart = {"HOLDFAST_STORE": f"{folder}/reference", "JAX_ENABLE_COMPILATION_CACHE": "false"}
        if world.launch(train(args, folder, "reference"), apart) != 0:
            sys.exit("the reference training failed, so there is nothing to compare with")

    world.title("The report")
    if args.without_holdfast:
        side_by_side(world.console, HOLDFAST, folder, args.save_every)
    if args.check:
        proof(folder, world.console, ["with-holdfast", "plain"][: 1 + args.without_holdfast])
    subprocess.run([*HOLDFAST, "report", "demo"], check=True)
    if args.picture:
        subprocess.run([*HOLDFAST, "report", "demo", "--picture", str(args.picture)], check=True)


def train(args, folder: Path, name: str, script: Path = TRAIN):
    """The trainer's command line."""
    return [sys.executable, str(script), "--steps", str(args.steps), "--log-every", "10",
            "--out", f"{folder}/{name}.json", *args.train]  # fmt: skip


def faults(args, strike_notice, strike_kill):
    """What happens to the run, and at which step. The third fault, the crash, is train.py's own."""
    return [
        Fault(args.steps * 25 // 100, strike_notice),
        Fault(args.steps * 55 // 100, strike_kill),
    ]


def crash(args, folder: Path, name: str):
    return ["--fail-at", str(args.steps * 85 // 100), f"{folder}/{name}.crashed"]


def with_holdfast(args, folder: Path, world: World):
    world.title("With Holdfast")
    command = [*train(args, folder, "with-holdfast"), *crash(args, folder, "with-holdfast")]
    # The optimum that Holdfast would learn is for a run that fails in days, not in seconds.
    supervised = [*HOLDFAST, "run", "--name", "demo", "--grace", str(GRACE_S),
                  "--save-every", str(args.save_every), "--", *command]  # fmt: skip
    coming = faults(args, notice, kill_rank(command))
    while (code := world.launch(supervised, faults=coming)) == 75:
        world.away(AWAY_S)
    if code != 0:
        sys.exit(f"holdfast run ended with {code}: that is not what this demo should show")


def without_holdfast(args, folder: Path, world: World):
    world.title("Without: the same faults on `until python train.py; do :; done`")
    history = History(folder / "plain.jsonl")
    command = [*train(args, folder, "plain", PLAIN), *crash(args, folder, "plain"),
               "--checkpoint", f"{folder}/plain.npz", "--save-every", str(args.save_every),
               "--history", str(history.path)]  # fmt: skip
    coming = faults(args, notice, kill)
    for attempt in range(10):
        start = history.now()
        code = world.launch([*command, "--attempt", str(attempt)], faults=coming)
        history.attempt(attempt, start, code)
        if code == 0:
            break
        if code == -signal.SIGTERM:
            world.away(AWAY_S)
    else:
        sys.exit("the plain loop did not come to an end in 10 attempts")
    history.close()


def proof(folder: Path, console: Console, names):
    reference = checksum(folder / "reference.json")
    for name in names:
        same = checksum(folder / f"{name}.json") == reference
        verdict = "[bold green]yes[/]" if same else "[bold red]NO[/]"
        console.print(f"final parameters bit-identical to an uninterrupted run, {name}: {verdict}")
    console.print()


if __name__ == "__main__":
    main()
