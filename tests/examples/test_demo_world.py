"""The demo's world: faults strike by progress, once; nothing that it started outlives it."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

pytestmark = pytest.mark.real

DEMO = Path(__file__).parents[2] / "examples" / "demo"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_demo_{name}", DEMO / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


world = load("world")
comparison = load("comparison")
# A trainer as the demo sees it: lines with steps.
STEPS = "for n in range(1, {}): print(f'[0] step {{n}}/99: loss 1.0', flush=True)"


def fake(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def a_world() -> tuple[object, io.StringIO]:
    screen = io.StringIO()
    return world.World(Console(file=screen, width=100)), screen


def test_faults_strike_when_their_step_is_seen_and_only_once() -> None:
    seen: list[int] = []

    def strike(mark: int) -> Callable[[object], str]:
        return lambda _: f"mark {seen.append(mark) or mark}"

    here, screen = a_world()
    faults = [world.Fault(5, strike(5)), world.Fault(50, strike(50)), world.Fault(99, strike(99))]
    assert here.launch(fake(STEPS.format(60)), faults=faults) == 0
    assert here.launch(fake(STEPS.format(60)), faults=faults) == 0
    assert seen == [5, 50]
    lines = screen.getvalue().splitlines()
    assert lines.index("▶ mark 5") == lines.index("  [0] step 5/99: loss 1.0") + 1


def test_a_notice_is_a_sigterm_and_the_exit_code_says_so() -> None:
    here, _ = a_world()
    waits = STEPS.format(3) + "\nimport signal; signal.pause()"
    code = here.launch(fake(waits), faults=[world.Fault(2, world.notice)])
    assert code == -signal.SIGTERM


def test_the_rank_is_found_below_what_was_started() -> None:
    rank = fake(STEPS.format(3) + "\nimport signal; signal.pause()")
    supervisor = fake(f"import subprocess, sys; sys.exit(-subprocess.run({rank!r}).returncode)")
    here, _ = a_world()
    code = here.launch(supervisor, faults=[world.Fault(2, world.kill_rank(rank))])
    assert code == signal.SIGKILL


def test_a_standby_that_waits_with_the_same_command_is_left_alone() -> None:
    """Whichever of the two has the lower number."""
    rank = fake(
        "import os, signal, time\n"
        "if os.environ.get('STANDBY'): signal.pause()\n"
        "while time.process_time() < 0.5: pass\n"
        f"{STEPS.format(3)}\nsignal.pause()"
    )
    supervisor = fake(
        "import os, subprocess, sys\n"
        f"standby = subprocess.Popen({rank!r}, env={{**os.environ, 'STANDBY': '1'}})\n"
        f"code = subprocess.run({rank!r}).returncode\n"
        "is_left = standby.poll() is None\n"
        "standby.kill()\n"
        "sys.exit(-code if is_left else 1)"
    )
    here, _ = a_world()
    code = here.launch(supervisor, faults=[world.Fault(2, world.kill_rank(rank))])
    assert code == signal.SIGKILL


def test_nothing_outlives_the_block(
    monkeypatch: pytest.MonkeyPatch, eventually: Callable[[Callable[[], bool]], bool]
) -> None:
    monkeypatch.setattr(world, "LAST_WORDS_S", 0.2)
    child = fake("import signal; signal.pause()")
    stubborn = fake(
        "import signal, subprocess\n"
        "signal.signal(signal.SIGQUIT, signal.SIG_IGN)\n"
        f"print(subprocess.Popen({child!r}).pid, flush=True)\n"
        "signal.pause()"
    )
    pids = []

    def break_off() -> None:
        with world.started(stubborn, dict(os.environ)) as process:
            pids.extend([process.pid, int(process.stdout.readline())])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert len(pids) == 2
    assert eventually(lambda: not any(world.command_of(pid) for pid in pids))


def test_the_ledger_reads_what_the_plain_loop_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 30.0, 72.0, 80.0])
    monkeypatch.setattr(world.History, "now", staticmethod(lambda: next(clock)))
    history = world.History(tmp_path / "plain.jsonl")
    history.attempt(0, 0.0, -signal.SIGTERM)
    history.attempt(1, 32.0, 0)
    history.close()
    with history.path.open("a") as lines:
        for attempt, first, start in ((0, 1, 10.0), (1, 11, 42.0)):
            facts = {"event": "steps", "attempt": attempt, "first": first, "last": first + 19}
            lines.write(json.dumps({**facts, "start": start, "end": start + 20}) + "\n")
    command = [sys.executable, "-m", "holdfast.cli.main", "report", "--json", "--history"]
    out = subprocess.run([*command, history.path], check=True, capture_output=True, text=True)
    result = json.loads(out.stdout)
    assert (result["elapsed_s"], result["steps_kept"], result["lost_steps"]) == (80.0, 30, 10)
    assert [d["cause"] for d in result["disruptions"]] == ["preempted"]
    held = {**result, "disruptions": [], "lost_steps": 0}
    assert "10 steps trained twice against 0" in comparison.in_words(held, result, 20)
    assert [cell(result) for _, cell in comparison.ROWS] == [
        "80.0 s", "10 steps", "—", "—", "10", "37.5%"
    ]  # fmt: skip
