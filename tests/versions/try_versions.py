"""Holdfast with the oldest and the newest JAX that it supports, with PyTorch and trainers: a table.

    python tests/versions/try_versions.py [--folder FOLDER] [--only WORD ...]

For each row a virtual environment is made (or found in FOLDER), a short training runs under
`holdfast run`, is killed once and goes on, and the tests run that lie closest to the framework.
The oldest version is the one in pyproject.toml, the newest what pip installs for that Python. Of a
trainer with an adapter the oldest is the one that the adapter names, its trials are what runs, and
the newest is what `make adapters` and `make trainers` have. A row whose Python is not on this
machine is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from find_python import find_python

sys.path.pop(0)

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PYTHONS = ("3.11", "3.12", "3.13")
STEPS, KILL_AT = 12, 7
LIMIT_S = 1800  # of one command, on a busy machine
KERAS = {"KERAS_BACKEND": "jax"}  # as the row has it; by itself Keras asks for TensorFlow
TOOLS = ("hatchling", "editables", "pytest", "hypothesis", "packaging")
JAX_TESTS = (
    "tests/session/test_jax.py",
    "tests/session/test_compile.py",
    "tests/session/test_preload.py",
    "tests/session/test_contents.py",
    "tests/session/test_together_jax.py",
    "tests/program/test_jaxpr.py",
    "tests/e2e/test_compile_cache.py",
)
TORCH_TESTS = (
    "tests/session/test_contents.py",
    "tests/session/test_together_torch.py",
    "tests/snapshot/test_frameworks.py",
)


@dataclass
class Row:
    """One Python with one version of a framework, and how it went."""

    python: str
    framework: str
    version: str  # "": the newest
    packages: tuple[str, ...]
    tests: tuple[str, ...]
    module: str = ""  # that tells its version, where it is called otherwise
    has_script: bool = True  # a training of its own is killed; else tests do that
    found: str = ""
    outcome: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"py{self.python}-{self.framework}-{self.version or 'newest'}"

    @property
    def is_good(self) -> bool:
        return all(not said.startswith("FAILED") for said in self.outcome.values())


def trainer(name: str, package: str, beside: tuple[str, ...], module: str = "") -> Row:
    """The oldest of those that its adapter names as tried."""
    adapter = (ROOT / "src" / "holdfast" / "adapters" / f"{name}.py").read_text()
    oldest = patch_of(re.findall(r'^TRIED = \("([\d.]+)"', adapter, re.MULTILINE)[0])
    own = {"huggingface": ("tests/adapters/test_huggingface.py",), "keras": ()}
    # In several processes Keras 3.10 takes nothing but a tf.data.Dataset.
    trial = "keras-jax and not keras-jax-2" if name == "keras" else f"{name}-1"
    tests = ("tests/adapters/test_trials.py", *own.get(name, (f"tests/adapters/test_{name}.py",)))
    chosen = ("-k", f"({trial} and (trains or stop)) or not test_trials")
    packages = (f"{package}=={oldest}", *beside)
    return Row("3.11", name, oldest, packages, (*tests, *chosen), module or package, False)


def patch_of(version: str) -> str:
    """With a patch number: 2.5 is 2.5.0."""
    return f"{version}.0" if version.count(".") == 1 else version


def rows() -> list[Row]:
    """All that are tried. PyTorch: the version that is pinned, whose wheel is one for CPUs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    oldest = next(need.partition(">=")[2] for need in extras["jax"] if need.startswith("jax>="))
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    found = []
    for python in PYTHONS:
        for version in (patch_of(oldest), ""):
            jax = f"jax=={version}" if version else "jax"
            found.append(Row(python, "jax", version, (jax, "optax"), JAX_TESTS))
    torch = pinned["torch"]
    with_torch, with_jax = (f"torch=={torch}",), (f"jax=={pinned['jax']}", "optax")
    found.append(Row("3.11", "torch", torch, (*with_torch, *with_jax), TORCH_TESTS))
    found.append(trainer("huggingface", "transformers", (*with_torch, "accelerate>=1.1")))
    found.append(trainer("lightning", "lightning", (*with_torch, "torchdata>=0.11")))
    found.append(trainer("orbax", "orbax-checkpoint", with_jax, "orbax.checkpoint"))
    found.append(trainer("keras", "keras", with_jax))
    return found


def call(argv: list[object], **options: object) -> tuple[int, str]:
    """(exit code, output); a command that hangs ends with 124."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
            **{"env": {**os.environ, **KERAS}, **options},
        )
    except subprocess.TimeoutExpired as late:
        return 124, (late.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout


def make_environment(row: Row, interpreter: str, venv: Path) -> Path:
    """Its Python, with everything installed."""
    python = venv / "bin" / "python"
    if not (venv / ".ready").exists():
        shutil.rmtree(venv, ignore_errors=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--prefer-binary"]
        for command in (
            [interpreter, "-m", "venv", venv],
            [*pip, *TOOLS, *row.packages],
            [*pip, "--no-build-isolation", "-e", ROOT],
        ):
            code, said = call(command)
            if code:
                raise RuntimeError(f"{' '.join(map(str, command))}:\n{said}")
        (venv / ".ready").touch()
    module = row.module or row.framework
    code, said = call([python, "-c", f"import {module} as it; print(it.__version__)"])
    row.found = said.strip().splitlines()[-1] if code == 0 else "?"
    return python


def train(row: Row, python: Path, folder: Path, kill_at: int) -> str:
    """What a short training under `holdfast run` printed."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "memory").mkdir(parents=True)
    environ = {name: value for name, value in os.environ.items() if "HOLDFAST" not in name}
    environ |= {"JAX_PLATFORMS": "cpu", "NPROC": "2", "PYTHONPATH": str(ROOT / "src")}
    words = ["run", "--name", "r", "--store", folder / "store", "--scratch", folder / "scratch"]
    words += ["--memory-dir", folder / "memory", "--standby", "off", "--save-every", 2]
    script = HERE / f"{row.framework}_script.py"
    code, said = call(
        [python, "-m", "holdfast.cli.main", *words, "--", python, script, STEPS, kill_at],
        cwd=folder,
        env=environ,
    )
    if code:
        raise RuntimeError(f"exit code {code}:\n{said}")
    return said


def judge_training(row: Row, python: Path, folder: Path) -> None:
    """Killed and not killed: the same bits, and a compiled step that is found again."""
    killed, whole = (train(row, python, folder, at) for at in (KILL_AT, STEPS + 1))
    ends = [re.findall(r"final ([0-9a-f]{16})", said) for said in (killed, whole)]
    resumed = re.findall(r"resumed at (\d+)", killed)
    is_same = len(ends[0]) == 1 and ends[0] == ends[1]
    is_resumed = len(resumed) == 2 and int(resumed[1]) > 0
    good = is_same and is_resumed
    row.outcome["kill and resume"] = "to the bit" if good else f"FAILED {ends} {resumed}"
    if row.framework == "jax":
        traced = killed.count("tracing")
        row.outcome["run.compile"] = "found again" if traced == 1 else f"FAILED {traced} traces"
    if not row.is_good:
        print(killed, file=sys.stderr)


def judge_tests(row: Row, python: Path) -> None:
    """The tests that lie closest to the framework."""
    tests = [python, "-m", "pytest", "-p", "no:cacheprovider", *row.tests]
    # The environment may have been made from another checkout, which it would import else.
    environ = {**os.environ, **KERAS, "PYTHONPATH": str(ROOT / "src")}
    code, said = call(tests, cwd=ROOT, env=environ)
    last = said.strip().splitlines()[-1].strip("= ")
    is_good = code == 0 and " passed" in last  # and not all skipped
    row.outcome["tests"] = last if is_good else f"FAILED {last}"
    if not is_good:
        print(said, file=sys.stderr)


def judge(row: Row, folder: Path) -> None:
    """Everything of one row."""
    interpreter = find_python(row.python)
    if interpreter is None:
        row.outcome["kill and resume"] = f"not tried: there is no Python {row.python} here"
        return
    try:
        python = make_environment(row, interpreter, folder / row.name)
        if row.has_script:
            judge_training(row, python, folder / f"{row.name}-run")
        judge_tests(row, python)
    except RuntimeError as error:
        row.outcome["kill and resume"] = "FAILED"
        print(error, file=sys.stderr)


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("--folder", type=Path, default=ROOT / ".venv-versions")
    words.add_argument("--only", nargs="*", default=[], help="rows whose names hold one of these")
    given = words.parse_args()
    folder: Path = given.folder.absolute()
    folder.mkdir(exist_ok=True)
    tried = [row for row in rows() if not given.only or any(w in row.name for w in given.only)]
    print("| Python | framework | kill and resume | run.compile | tests |\n|---|---|---|---|---|")
    for row in tried:
        judge(row, folder)
        cells = [row.outcome.get(key, "–") for key in ("kill and resume", "run.compile", "tests")]
        what = f"{row.framework} {row.found or row.version or 'newest'}"
        print(f"| {row.python} | {what} | {' | '.join(cells)} |", flush=True)
    return 0 if all(row.is_good for row in tried) else 1


if __name__ == "__main__":
    sys.exit(main())
