"""A start on a host that has read nothing yet, with each part preloaded, and with all of it.

    sudo python bench/preload.py [--rate 125] [--iops 3000] [--rungs "cold;all"] [--state-mb 800]

What a cold host is here: packages, run store and data lie in a file system of their own (a loop
device on an image file), which is mounted anew before each start, so that nothing of it is in
memory. Its reads are limited to a rate and to a number of reads a second (blkio of cgroups
version 1): by default those of a general-purpose disk of a cloud. The interpreter, its standard
library and the machine's own files are on the machine's disk, and stay in memory.

Each start goes on with a run that was saved once: until its first step is done. What was preloaded
was preloaded before, and what that took is told beside it. Results are added to those in
build/preload.json; preload_drawing.py draws them. It is root's, for mounts and limits.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parents[1]
TRAINER = ROOT / "bench" / "preload_trainer.py"
SITE = Path(numpy.__file__).parents[1]
PACKAGES = (
    "jax", "jaxlib", "numpy", "numpy.libs", "scipy", "scipy.libs", "ml_dtypes", "opt_einsum",
    "xxhash", "click",
)  # fmt: skip
CGROUP = Path("/sys/fs/cgroup/blkio/holdfast-bench-preload")
AWAY = "HOLDFAST_BENCH_AWAY"
LIMIT_S = 240.0
SETTLE_S = 2.0  # until what the rank has told is written down
RUN = "r"
RUNGS = {
    "cold": (),
    "packages preloaded": ("packages",),
    "programs preloaded": ("programs",),
    "checkpoint preloaded": ("checkpoint",),
    "data preloaded": ("data",),
    "all of it preloaded": ("all",),
}


def main() -> None:
    p = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    p.add_argument("--rate", type=float, default=125.0, help="MB a second")
    p.add_argument("--iops", type=int, default=3000, help="reads a second")
    p.add_argument("--rungs", help="some of their names, with semicolons between them")
    p.add_argument("--state-mb", type=int, default=800)
    p.add_argument("--data-mb", type=int, default=400)
    p.add_argument("--place", type=Path, default=Path("/var/tmp/holdfast-bench-preload"))
    p.add_argument("--results", type=Path, default=ROOT / "build" / "preload.json")
    args = p.parse_args()
    if os.geteuid() != 0 or not CGROUP.parent.is_dir():
        sys.exit("it needs root, and the blkio controller of cgroups version 1")
    if AWAY not in os.environ:  # mounts that nobody else sees, and nobody else holds
        words = ("unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv)
        os.execvpe(words[0], words, os.environ | {AWAY: "1"})
    results: dict[str, list[dict[str, float]]] = {}
    with contextlib.suppress(FileNotFoundError):
        results = json.loads(args.results.read_text())
    host = ColdHost(args.place, args.rate, args.iops, args.state_mb, args.data_mb)
    print(f"load {os.getloadavg()[0]:.1f}; {args.rate:g} MB/s, {args.iops} reads/s")
    with host:
        for name in args.rungs.split(";") if args.rungs else RUNGS:
            results.setdefault(name, []).append(host.measured(RUNGS[name]))
            args.results.parent.mkdir(parents=True, exist_ok=True)
            args.results.write_text(json.dumps(results) + "\n")
            print(told(name, results[name][-1]), flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


def told(name: str, found: dict[str, float]) -> str:
    parts = ", ".join(
        f"{kind} {s:.2f}" for kind, s in found.items() if kind not in ("start_s", "preload_s")
    )
    before = f"preloaded in {found['preload_s']:.1f} s; " if found["preload_s"] else ""
    return f"{name:<38} {found['start_s']:6.2f} s ({before}{parts})"


class ColdHost:
    """The image, and a run in it that was saved once."""

    def __init__(self, place: Path, rate: float, iops: int, state_mb: int, data_mb: int) -> None:
        self.place, self.rate, self.iops = place, rate, iops
        self.state_mb, self.data_mb = state_mb, data_mb
        self.image, self.mount = place / "image", place / "mount"
        self.scratch = place / "scratch"
        site = self.mount / "lib" / "site-packages"
        self.environment = {key: v for key, v in os.environ.items() if key != AWAY} | {
            "PYTHONPATH": f"{site}:{ROOT / 'src'}",
            "PYTHONPYCACHEPREFIX": "",
            "HOLDFAST_STORE": str(self.mount / "store"),
            "HOLDFAST_SCRATCH": str(self.scratch),
            "JAX_PLATFORMS": "cpu",
        }
        self.python = str(Path(sys.executable).resolve())  # without the packages of here
        self.script = [
            self.python, str(TRAINER), "--data", str(self.mount / "data"),
            "--data-mb", str(data_mb), "--state-mb", str(state_mb),
        ]  # fmt: skip

    def __enter__(self) -> ColdHost:
        shutil.rmtree(self.place, ignore_errors=True)
        self.mount.mkdir(parents=True)
        site = self.mount / "lib" / "site-packages"
        size_mb = 1300 + self.data_mb + 3 * self.state_mb
        with self.image.open("wb") as file:
            file.truncate(size_mb << 20)
        _do("mkfs.ext4", "-q", "-F", str(self.image))
        _do("mount", "-o", "loop,noatime", str(self.image), str(self.mount))
        site.mkdir(parents=True)
        for name in PACKAGES:
            shutil.copytree(SITE / name, site / name, symlinks=True)
        rows = numpy.random.default_rng(0).integers(0, 255, self.data_mb * 1_000_000, numpy.uint8)
        (self.mount / "data").write_bytes(rows.tobytes())
        CGROUP.mkdir(exist_ok=True)
        with self.started() as process:
            self.until_trained(process)
            process.terminate()  # saved, and what it has compiled is in the store
            process.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.forget(mount=False)
        with contextlib.suppress(OSError):
            (CGROUP.parent / "tasks").write_text(str(os.getpid()))
            CGROUP.rmdir()
        shutil.rmtree(self.place, ignore_errors=True)

    def forget(self, *, mount: bool = True) -> None:
        """Mount it anew: the kernel lets go of all that it knows of it."""
        end_s = time.monotonic() + 20
        while subprocess.run(["umount", str(self.mount)], stderr=subprocess.DEVNULL).returncode:
            if time.monotonic() > end_s:
                raise SystemExit(f"somebody holds {self.mount}")
            time.sleep(0.1)
        shutil.rmtree(self.scratch, ignore_errors=True)
        if not mount:
            return
        _do("mount", "-o", "loop,noatime", str(self.image), str(self.mount))
        ask = ["findmnt", "-no", "SOURCE", str(self.mount)]
        device = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
        number = Path(f"/sys/block/{Path(device).name}/dev").read_text().strip()
        limits = {"bps": round(self.rate * 1e6), "iops": self.iops}
        for what, most in limits.items():
            (CGROUP / f"blkio.throttle.read_{what}_device").write_text(f"{number} {most}")
        # Whatever is in the page cache of the image itself is not the device's to give at once.
        descriptor = os.open(self.image, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)

    def measured(self, parts: tuple[str, ...]) -> dict[str, float]:
        """Seconds from `holdfast run` until the first step is done, and by kind of the ranks."""
        self.forget()
        (CGROUP / "tasks").write_text(str(os.getpid()))
        begin_s = time.monotonic()
        for part in parts:
            if part == "all":
                words = (RUN, "--data", str(self.mount / "data"), "--", *self.script)
                _do(*HOLDFAST, "preload", *words, env=self.environment)
            else:
                _do(sys.executable, __file__, "part", part, str(self.mount), env=self.environment)
        preload_s = time.monotonic() - begin_s if parts else 0.0
        begin_s = time.monotonic()
        with self.started() as process:
            self.until_trained(process)
            start_s = time.monotonic() - begin_s
            time.sleep(SETTLE_S)
            report = [*HOLDFAST, "report", RUN, "--json"]
            said = subprocess.run(
                report, check=True, capture_output=True, env=self.environment, text=True
            )
        waterfall = json.loads(said.stdout)["incidents"][-1]["waterfall_s"]
        kinds = ("startup", "restore", "data", "compile", "step")
        found = {kind: waterfall.get(kind, 0.0) for kind in kinds}
        rest_s = max(0.0, start_s - sum(found.values()))
        return {"start_s": start_s, "preload_s": preload_s, "other": rest_s, **found}

    @contextlib.contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        """The run, from its newest checkpoint; its machine is lost in the end."""
        options = (
            "--name", RUN, "--memory", "off", "--standby", "off", "--save-every", "1000000",
            "--status", "off", "--notice", "off",
        )  # fmt: skip
        with (self.place / "out").open("wb") as out:
            process = subprocess.Popen(
                [*HOLDFAST, "run", *options, "--", *self.script],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.environment,
            )  # fmt: skip
            try:
                yield process
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()

    def until_trained(self, process: subprocess.Popen[bytes]) -> None:
        """Until a rank has done its first step: it leaves the list of its imports then."""
        _until(lambda: any(self.scratch.glob("*/*/imports-rank-00000.json")), process)


HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]


def _until(ready: object, process: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not ready():  # type: ignore[operator]
        if process.poll() is not None or time.monotonic() > end_s:
            raise SystemExit("it came to nothing")
        time.sleep(0.01)


def _do(*words: str, env: dict[str, str] | None = None) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=env)


def read_part(part: str, mount: Path) -> None:
    """What `holdfast preload` does, of one part alone."""
    from holdfast.agent.preload import ReadAhead, checkpoint_asked, data_asked, packages_asked
    from holdfast.agent.programs import preload_programs
    from holdfast.journal.learned_imports import learned_imports
    from holdfast.journal.scratch import CACHE_FOLDER, scratch_dir
    from holdfast.journal.store import RunStore

    folder = RunStore.at(str(mount / "store")).get(RUN)
    asked = None
    if part == "programs":
        local = scratch_dir(folder.scratch_key) / CACHE_FOLDER
        preload_programs(folder, local, 2 << 30, None, print)
    elif part == "packages":
        asked = packages_asked(learned_imports(folder), [], str(mount))
    elif part == "checkpoint":
        asked = checkpoint_asked(folder, (0,), 1)[0]
    else:
        asked = data_asked([str(mount / "data")], 1 << 40)
    if asked is not None:
        argv = [str(Path(sys.executable).resolve()), "none.py"]
        ReadAhead([asked], 1 << 40, argv, dict(os.environ)).run(LIMIT_S)


if __name__ == "__main__":
    if sys.argv[1:2] == ["part"]:
        read_part(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
