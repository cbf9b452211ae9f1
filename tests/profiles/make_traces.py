"""Make `traces` anew: real windows of real runs, recorded by `holdfast profile`.

    python tests/profiles/make_traces.py
    python tests/profiles/make_traces.py --gpu     # where there is one

It needs JAX and PyTorch. Of each framework: what the rank has told, and what its profiler wrote.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
STEPS = 3
FOREVER = "1000000"


def holdfast(*words: str) -> list[str]:
    return [sys.executable, "-m", "holdfast.cli.main", *words]


def record(name: str, ranks: int, store: Path, place: Path) -> None:
    """A run of that training, a profile of its rank 0 in `place`, and the run's end."""
    script = HERE / f"train_{name}.py"
    command = ["run", "--store", str(store), "--name", name, "--ranks", str(ranks), "--"]
    run = subprocess.Popen(holdfast(*command, sys.executable, str(script), FOREVER))
    try:
        ask = holdfast("profile", name, "--store", str(store), "--steps", str(STEPS))
        while subprocess.run(ask, check=False).returncode:
            time.sleep(2.0)  # it is starting still
    finally:
        subprocess.run(holdfast("stop", name, "--store", str(store), "--now"), check=False)
        run.wait()
    newest = max(store.glob(f"{name}/attempts/*/profiles/*/summary.json"))
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for path in newest.parent.glob("rank-*"):
        shutil.copy(path, place / path.name)


if __name__ == "__main__":
    after, torch_ranks = ("-gpu", 1) if "--gpu" in sys.argv else ("", 2)
    with tempfile.TemporaryDirectory() as folder:
        for name, ranks in (("jax", 1), ("torch", torch_ranks)):
            record(name, ranks, Path(folder), HERE / "traces" / f"{name}{after}")
