"""Copies of a state from a device into the buffers of the memory tier, and what the steps pay.

    python bench/device_copies.py [--gb 8] [--step 0.5] [checks pinning steps run …]

Each part is a process of its own with a time limit; one that fails says so, and the next begins.

- checks: that a copy beside the step holds what was there at the boundary, and what is refused.
- pinning: the price of buffers, and of registering them with the driver.
- steps: steps of a model in this process, with and without a snapshot in each.
- run: the same under `holdfast run`, and as a script without Holdfast.
- jax: that copies of JAX hold what was there at the boundary; and steps, as above.

Without a CUDA device the parts run on the CPU, for what that is worth: `--gb 0.1 --step 0.05`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
SOURCES = HERE.parents[1] / "src"
sys.path.insert(0, str(SOURCES))

LIMITS_S = {"machine": 10, "checks": 60, "pinning": 40, "steps": 75, "run": 75, "jax": 90}
GB = 1e9


def tell(what: str, words: str) -> None:
    print(f"  {what:<52} {words}", flush=True)


@contextlib.contextmanager
def attempt(what: str) -> Iterator[None]:
    """What fails is told of, and is the loss of that measure only."""
    try:
        yield
    except Exception as error:
        tell(what, f"FAILED: {type(error).__name__}: {str(error).splitlines()[:2]}")
        print(traceback.format_exc(limit=6), file=sys.stderr, flush=True)


def seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def ms(values: list[float]) -> str:
    if not values:
        return "none"
    middle = statistics.median(values)
    return f"{middle * 1e3:8.2f} ms ({min(values) * 1e3:.2f} … {max(values) * 1e3:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(LIMITS_S))
    parser.add_argument("--gb", type=float, default=8.0)
    parser.add_argument("--step", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=6, help="of each kind")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.part:
        PARTS[asked.part](asked)
        return
    began = time.perf_counter()
    for part in asked.parts:
        one_part(part, sys.argv[1:])
    print(f"all: {time.perf_counter() - began:.0f} s", flush=True)


def one_part(part: str, words: list[str]) -> None:
    print(f"== {part}", flush=True)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, str(HERE), *words, "--part", part], start_new_session=True
    )
    try:
        process.wait(LIMITS_S[part])
    except subprocess.TimeoutExpired:
        print(f"== {part}: not within {LIMITS_S[part]} s", flush=True)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    print(f"== {part}: rc {process.returncode}, {time.perf_counter() - began:.1f} s\n", flush=True)


def machine_part(_: argparse.Namespace) -> None:
    query = "nvidia-smi --query-gpu=name,pcie.link.gen.current,driver_version --format=csv,noheader"
    for command in (query, "df -h /dev/shm", "nproc"):
        found = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, timeout=8, check=False
        )
        print("  " + (found.stdout + found.stderr).strip().replace("\n", "\n  "))


# --- a rank under orders ------------------------------------------------------------------------


class Rank:
    """What a session puts together, in this process, which also gives the orders."""

    def __init__(self, parts: dict[str, Any]) -> None:
        from holdfast.journal.layout import Identity, Word
        from holdfast.journal.writer import JournalWriter
        from holdfast.session.boundary import Boundary
        from holdfast.session.contents import Contents
        from holdfast.session.memory import RamPlace, RankBuffers
        from holdfast.session.saver import Saver
        from holdfast.snapshot.ram_folder import claim_ram

        self.base = Path(tempfile.mkdtemp(prefix="device-copies-", dir=memory_folder()))
        self.folder = claim_ram(self.base, "run").path
        identity = Identity("r", 0, "i", 0, "host", 0, "boot")
        self.writer = JournalWriter.create(self.base / "rank-00000.hfj", identity)
        self.words, self.Word = self.writer.page, Word
        self.contents = Contents()
        self.saver = Saver(
            self.base / "ckpt",
            self.words,
            self.contents,
            attempt=lambda: 0,
            rank=0,
            world_size=1,
            memory=RankBuffers(RamPlace(self.folder, 3, 0, 1), self.words, 0, 1),
        )
        self.boundary = Boundary(self.writer, self.saver)
        self.boundary.hurry = self._over
        self.boundary.begin(1, 1 << 30, 1)
        self.epoch = 0
        self.ended_at = 0.0
        self.contents.track(parts)

    def _over(self) -> None:
        self.ended_at = time.perf_counter()

    @property
    def files(self) -> list[Any]:
        memory: Any = self.saver._memory
        found: list[Any] = memory._buffers._files
        return found

    def made(self) -> None:
        for thread in threading.enumerate():
            if thread.name == "holdfast-ram":
                thread.join()

    def order(self) -> None:
        from holdfast.core.save.word import pack, with_buffer

        self.epoch += 1
        step = self.boundary.expected
        self.words.store(self.Word.ORDER, pack(self.epoch, step, with_buffer(0, self.epoch % 3)))

    def done(self, state: Any = None) -> float:
        """The boundary; how long it kept the host."""
        return seconds(lambda: self.boundary.done(self.boundary.expected, state))

    def word(self, name: str) -> Any:
        from holdfast.core.save.word import unpack

        return unpack(self.words.load(self.Word[name]))

    def stored(self, what: str = "parts") -> Any:
        """What the newest set holds."""
        from holdfast.snapshot.ram_folder import buffer_name
        from holdfast.snapshot.restore import read_set
        from holdfast.snapshot.seal import seal_buffer

        self.saver.settle()
        place = self.folder / buffer_name(self.epoch % 3)
        seal_buffer(place, 1, attempt=0, step=self.word("COPIED").step)
        return read_set(place)[what]

    def close(self) -> None:
        self.saver.close()
        for file in self.files:
            file.unpin()
        self.contents.optimizers.close()
        self.writer.close()
        shutil.rmtree(self.base, ignore_errors=True)


def memory_folder() -> Path:
    return Path("/dev/shm")


@contextlib.contextmanager
def rank(**parts: Any) -> Iterator[Rank]:
    made = Rank(parts)
    try:
        yield made
    finally:
        made.close()


class Model:
    """Layers whose parameters and AdamW's moments are so many bytes, and a step of them."""

    def __init__(self, gb: float, **options: Any) -> None:
        import torch

        self.torch = torch
        self.is_cuda = torch.cuda.is_available()
        self.device = "cuda" if self.is_cuda else "cpu"
        if not self.is_cuda:
            torch.set_num_threads(1)
        side = 4096 if gb >= 1 else 512
        layers = max(1, round(gb * GB / (side * side * 12)))
        torch.manual_seed(1)
        torch.set_float32_matmul_precision("high")
        self.model: Any = torch.nn.Sequential(
            *[torch.nn.Linear(side, side, device=self.device) for _ in range(layers)]
        )
        options = {"lr": 1e-5, "fused": self.is_cuda} | options
        self.optimizer = torch.optim.AdamW(self.model.parameters(), **options)
        self.batch = torch.randn(8192 if self.is_cuda else 64, side, device=self.device)
        self.repeats = 1

    def sync(self) -> None:
        if self.is_cuda:
            self.torch.cuda.synchronize()

    def step_to_its_end(self) -> None:
        self.step()
        self.sync()

    def calibrate(self, step_s: float) -> None:
        for _ in range(2):
            self.step()
        self.sync()
        took = []
        for _ in range(3):
            took.append(seconds(self.step_to_its_end))
        self.repeats = max(1, round(step_s / statistics.median(took)))

    def backward(self) -> Any:
        loss: Any = None
        for _ in range(self.repeats):
            loss = self.model(self.batch).square().mean()
            loss.backward()
        return loss.detach()

    def step(self) -> Any:
        loss = self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def now(self) -> list[Any]:
        """Copies of all that is trained, as of this place in the stream."""
        state = self.optimizer.state
        found = [one.detach().clone() for one in self.model.parameters()]
        return found + [
            state[one][name].clone()
            for one in self.model.parameters()
            for name in ("exp_avg", "exp_avg_sq")
        ]


def in_set(model: Model, stored: dict[str, Any]) -> list[Any]:
    names = [name for name, _ in model.model.named_parameters()]
    moments = stored["optimizer"]["state"]
    found = [stored["model"][name] for name in names]
    return found + [
        moments[number][name] for number in range(len(names)) for name in ("exp_avg", "exp_avg_sq")
    ]


def is_same(model: Model, stored: dict[str, Any], truth: list[Any]) -> bool:
    import numpy as np

    pairs = zip(in_set(model, stored), truth, strict=True)
    return all(np.array_equal(np.asarray(one), other.cpu().numpy()) for one, other in pairs)


# --- checks -------------------------------------------------------------------------------------


def checks_part(_: argparse.Namespace) -> None:
    late_on_this_device()
    for check in (beside_the_step, planted, captured, replayed, odd_tensors, short_steps):
        with attempt(check.__name__):
            check()


def late_on_this_device() -> None:
    import torch

    from holdfast.session import optimizers

    if not torch.cuda.is_available():
        optimizers.LATE_ON.add("cpu")


@contextlib.contextmanager
def training(gb: float = 0.1, **options: Any) -> Iterator[tuple[Model, Rank]]:
    import torch

    if not torch.cuda.is_available():
        gb = gb / 20
    model = Model(gb, **options)
    with rank(model=model.model, optimizer=model.optimizer) as one:
        model.step()
        one.done()
        one.made()
        yield model, one


def beside_the_step() -> None:
    with training() as (model, one):
        pinned = [file.pinned is not None for file in one.files]
        model.repeats = 8
        good = late = 0
        for _ in range(17):
            one.order()
            model.step()
            one.done()
            late += one.saver._late is not None
            truth = model.now()
            model.step()  # changes all of it, when it may
            good += is_same(model, one.stored(), truth)
            one.done()
        tell("copies beside the step", f"{late} of 17 late, {good} of 17 right, pinned {pinned}")
        tell("… errors", str(one.words.load(one.Word.ERRORS)))


def planted() -> None:
    with training() as (model, one):
        model.repeats = 8
        weight = model.model[0].weight
        target = model.optimizer.state[weight]["exp_avg"]
        for number in range(1, 17):
            one.order()
            model.step()
            one.done()
            target.data.mul_(1.01)
            model.step()
            one.saver.settle()
            if one.word("FAILED").epoch == one.epoch:
                tell("a write that nobody was told of", f"found in copy {number}")
                break
            one.done()
        else:
            tell("a write that nobody was told of", "NOT FOUND")
        one.done()
        one.order()
        model.step()
        one.done()
        truth = model.now()
        late = one.saver._late
        tell("… and then", f"late {late is not None}, right {is_same(model, one.stored(), truth)}")


def captured() -> None:
    import torch

    if not torch.cuda.is_available():
        return
    with training(capturable=True) as (model, one):
        model.repeats = 8
        one.order()
        model.step()
        model.backward()
        one.done()  # under way from here on
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model.optimizer.step()
        one.saver.settle()
        failed = one.word("FAILED").epoch == one.epoch
        graph.replay()
        model.sync()
        tell("a step that is captured while a copy is under way", f"the copy failed: {failed}")


def replayed() -> None:
    import torch

    if not torch.cuda.is_available():
        return
    with training(capturable=True) as (model, one):
        model.backward()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model.optimizer.step()
        one.done()
        one.contents.optimizers.begin(one.boundary.expected - 1)
        late = good = 0
        for _ in range(3):
            one.order()
            graph.replay()
            one.done()
            late += one.saver._late is not None
            truth = model.now()
            graph.replay()
            good += is_same(model, one.stored(), truth)
            one.done()
        tell("steps from a CUDA graph", f"{late} of 3 late, {good} of 3 right")


def bytes_of(array: Any) -> bytes:
    import torch

    tensor = torch.as_tensor(array)
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def odd_tensors() -> None:
    """Kinds and layouts that are not those of the rest, and some that are on the host."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Module()
    model.bf16 = torch.nn.Parameter(torch.randn(1000, 1001, device=device).bfloat16())
    model.last = torch.nn.Parameter(
        torch.randn(8, 16, 32, 32, device=device).to(memory_format=torch.channels_last)
    )
    model.scalar = torch.nn.Parameter(torch.randn((), device=device))
    model.empty = torch.nn.Parameter(torch.randn(0, 3, device=device))
    model.odd = torch.nn.Parameter(torch.randn(7, device=device))
    model.register_buffer("count", torch.zeros((), dtype=torch.int64, device=device))
    model.register_buffer("mask", torch.ones(5, dtype=torch.bool, device=device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        model.count += 1
        optimizer.step()

    with rank(model=model, optimizer=optimizer) as one:
        step()
        one.done()
        one.made()
        good = 0
        for _ in range(17):
            one.order()
            step()
            one.done()
            truth = {name: value.clone() for name, value in model.state_dict().items()}
            step()
            stored = one.stored()["model"]
            good += all(
                bytes_of(stored[name]) == bytes_of(value.cpu().contiguous())
                for name, value in truth.items()
            )
            one.done()
        tell("tensors of all kinds", f"{good} of 17 right")


def short_steps() -> None:
    """The copy takes longer than the step: what the step waits for is told as blocked."""
    with training(1.0) as (model, one):
        late = good = 0
        told = []
        for _ in range(4):
            one.order()
            model.step()
            blocked = one.done()
            late += one.saver._late is not None
            truth = model.now() if model.is_cuda else []
            model.step()
            one.saver.settle()
            told.append(one.words.load(one.Word.SAVE_BLOCKED_NS) / 1e9 - blocked)
            good += not truth or is_same(model, one.stored(), truth)
            one.done()
        tell("steps that are shorter than the copy", f"{late} of 4 late, {good} of 4 right")
        tell("… told as waited for by the device, beside done", ms(told))


# --- pinning ------------------------------------------------------------------------------------


def pinning_part(asked: argparse.Namespace) -> None:
    import torch

    from holdfast.snapshot import cuda
    from holdfast.snapshot.shared_file import SharedFile

    size = int(asked.gb * GB)
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        file = SharedFile(Path(folder) / "buffer")
        tell(f"a buffer of {asked.gb:g} GB", ms([seconds(lambda: file.open(size, keep=False))]))
        if not torch.cuda.is_available():
            return
        torch.ones(1, device="cuda")
        for slice_bytes in (64 << 20, 256 << 20):
            cuda.SLICE_BYTES = slice_bytes
            took = [(seconds(lambda: file.pin(0)), seconds(file.unpin)) for _ in range(2)]
            for what, values in zip(
                ("registered", "given back"), zip(*took, strict=True), strict=True
            ):
                per_gb = statistics.median(values) / asked.gb
                tell(
                    f"{what}, in slices of {slice_bytes >> 20} MiB", f"{per_gb * 1e3:.1f} ms per GB"
                )


# --- steps --------------------------------------------------------------------------------------


def steps_part(asked: argparse.Namespace) -> None:
    from holdfast.session import optimizers

    late_on_this_device()
    late_on = set(optimizers.LATE_ON)
    model = Model(asked.gb)
    model.calibrate(asked.step)
    tell("a step", f"{model.repeats} times forward and backward")
    for _ in range(2):
        with_steps(asked, model, None, "alone")
        with rank(model=model.model, optimizer=model.optimizer) as one:
            began = time.perf_counter()
            model.step()
            one.done()
            one.made()
            tell(
                "buffers made and registered beside the training", ms([time.perf_counter() - began])
            )
            tell("… pinned", str([file.pinned is not None for file in one.files]))
            with_steps(asked, model, one, "a snapshot beside each step")
            optimizers.LATE_ON.clear()
            with_steps(asked, model, one, "a snapshot at each boundary, pinned")
            for file in one.files:
                file.unpin()
            with_steps(asked, model, one, "a snapshot at each boundary, not pinned", steps=2)
            optimizers.LATE_ON.update(late_on)
        if asked.gb > 4:
            break  # time on a device is dear
    with_steps(asked, model, None, "alone again")


def with_steps(
    asked: argparse.Namespace, model: Model, one: Rank | None, what: str, steps: int | None = None
) -> None:
    took, blocked, told, copying = [], [], [], []
    pieces: dict[str, list[float]] = {}
    at = 0.0
    with attempt(what), timed(one, pieces):
        for _ in range((steps or asked.steps) + 1):
            began = time.perf_counter()
            float(model.step())
            if one is not None:
                if at and one.ended_at > at:  # of the copy before
                    copying.append(one.ended_at - at)
                    told.append(one.words.load(one.Word.SAVE_BLOCKED_NS) / 1e9)
                one.order()
                at = time.perf_counter()
                blocked.append(one.done())
            took.append(time.perf_counter() - began)
        tell(what, f"step {ms(took[1:])}")
        if one is not None:
            one.saver.settle()
            tell("  … blocked in done", ms(blocked[1:]))
            tell("  … and as it is told, with what the device waited", ms(told))
            tell("  … from the boundary until it is there", ms(copying))
            tell("  … errors", str(one.words.load(one.Word.ERRORS)))
            for name, values in pieces.items():
                tell(f"    {name}", ms(values[1:]))


@contextlib.contextmanager
def timed(one: Rank | None, pieces: dict[str, list[float]]) -> Iterator[None]:
    """What the boundary's time goes into."""
    if one is None:
        yield
        return
    from holdfast.session import contents, optimizers
    from holdfast.snapshot import device, device_copies, late, ram, shared_file

    places = [
        (contents.Contents, "gather"),
        (optimizers.Optimizers, "may_be_late"),
        (ram.BufferFiles, "begin"),
        (ram.BufferFiles, "_described"),
        (ram.BufferFiles, "_unseal"),
        (shared_file.SharedFile, "resize"),
        (ram.BufferFiles, "_set_apart"),
        (device_copies.DeviceCopies, "take"),
        (late.LateCopy, "__init__"),
        (late.LateCopy, "begin"),
        (ram.BufferFiles, "_copy"),
        (late.LateCopy, "_copy"),
        (late.LateCopy, "_check"),
        (device.Transfers, "mark"),
        (device.Transfers, "begin"),
    ]
    before = [getattr(owner, name) for owner, name in places]

    def watched(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def timed_run(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return run(*args, **kwargs)
            finally:
                pieces.setdefault(name, []).append(time.perf_counter() - began)

        return timed_run

    for (owner, name), run in zip(places, before, strict=True):
        label = f"{getattr(owner, '__name__', '').rsplit('.')[-1]}.{name}"
        setattr(owner, name, watched(label, run))
    try:
        yield
    finally:
        for (owner, name), run in zip(places, before, strict=True):
            setattr(owner, name, run)


# --- a run --------------------------------------------------------------------------------------

TRAINER = """
import json, os, sys, time
sys.path[:0] = os.environ["BENCH"].split(os.pathsep)
import torch
from device_copies import Model, late_on_this_device
late_on_this_device()
is_bare = os.environ["BARE"] == "1"
model = Model(float(os.environ["GB"]))
if not is_bare:
    import holdfast as hf
    run = hf.start()
    run.track(model=model.model, optimizer=model.optimizer)
    run.restore()
model.calibrate(float(os.environ["STEP_S"]))
steps_s, done_s = [], []
count = int(os.environ["STEPS"])
for step in range(1, count + 1) if is_bare else run.steps(count):
    began = time.perf_counter()
    value = float(model.step())
    at = time.perf_counter()
    if not is_bare:
        run.done(step)
    ended = time.perf_counter()
    steps_s.append(ended - began)
    done_s.append(ended - at)
    if step == count - 1:
        with open(os.environ["FOUND"] + ".part", "w") as out:
            json.dump({"steps": steps_s, "done": done_s}, out)
        os.rename(os.environ["FOUND"] + ".part", os.environ["FOUND"])
"""


def run_part(asked: argparse.Namespace) -> None:
    for what, is_bare, steps in (("without Holdfast", True, 8), ("holdfast run", False, 30)):
        with (
            attempt(what),
            tempfile.TemporaryDirectory() as work,
            tempfile.TemporaryDirectory(dir=memory_folder()) as ram,
        ):
            one_run(asked, what, is_bare, steps, Path(work), Path(ram))


def one_run(
    asked: argparse.Namespace, what: str, is_bare: bool, steps: int, work: Path, ram: Path
) -> None:
    script, found, log = work / "trainer.py", work / "found", work / "log"
    script.write_text(TRAINER)
    holdfast = [sys.executable, "-m", "holdfast.cli.main"]
    store = ["--store", str(work / "store")]
    command = [*holdfast, "run", "--name", "r", *store, "--scratch", str(work)]
    command += ["--memory-dir", str(ram), "--notice", "off", "--standby", "off"]
    command += ["--snapshot-every", "1", "--save-every", "1000000", "--"]
    command = [] if is_bare else command
    environment = os.environ | {
        "PYTHONPATH": str(SOURCES),
        "BENCH": str(HERE.parent),
        "GB": str(asked.gb),
        "STEP_S": str(asked.step),
        "STEPS": str(steps),
        "FOUND": str(found),
        "BARE": str(int(is_bare)),
    }
    began = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, sys.executable, str(script)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
        )
    try:
        while not found.exists():
            if process.poll() is not None or time.perf_counter() - began > 50:
                raise RuntimeError("no steps:\n" + log.read_text(errors="replace")[-1500:])
            time.sleep(0.1)
        told = json.loads(found.read_text())
        tell(what, f"step {ms(told['steps'][-12:])}; in done {ms(told['done'][-12:])}")
        if not is_bare:
            tell("  … each done, ms", " ".join(f"{one * 1e3:.1f}" for one in told["done"]))
            report = subprocess.run(
                [*holdfast, "report", "r", *store],
                capture_output=True, text=True, timeout=20, check=False, env=environment,
            ).stdout  # fmt: skip
            for line in re.findall(r".*(?:to memory|save ).*", report):
                tell("  …", line.strip()[:120])
            for line in log.read_text(errors="replace").splitlines()[-8:]:
                print(f"      | {line[:170]}")
    finally:
        process.send_signal(signal.SIGQUIT)
        try:
            process.wait(8)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def jax_part(asked: argparse.Namespace) -> None:
    from device_copies_jax import measure_jax

    measure_jax(asked)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "machine": machine_part,
    "checks": checks_part,
    "pinning": pinning_part,
    "steps": steps_part,
    "run": run_part,
    "jax": jax_part,
}

if __name__ == "__main__":
    main()
