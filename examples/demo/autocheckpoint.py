"""The same maintenance twice, with autocheckpoint and without: a table, and a picture.

    python examples/demo/autocheckpoint.py [--picture FILE]     (make autocheckpoint)

A machine of the emulator of Cloud TPU trains. It says when its maintenance begins; then the machine
is gone, deleted and made again, and the run goes on. Both runs save every 200 steps of 50 ms. The
numbers are those of `holdfast report`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.report.kinds import style_of
from holdfast.testing.tpu import TpuEmulator

STEPS, STEP_S, SAVE_EVERY, ANNOUNCED_AT = 700, 0.05, 200, 410
AHEAD_S = 8.0  # in life it is 60 s and more
LIMIT_S = 120.0
TRAINER = f"""
import time
import numpy as np
import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {{"w": np.zeros(1000)}})
for step in run.steps({STEPS}):
    time.sleep({STEP_S})
    state["w"] += 1
    run.done(step, state)
    if step % 10 == 0:
        print("at", step, flush=True)
"""
WIDTH, MARGIN, BAR = 960, 40, 44
STYLE = """
  text { font: 13px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
         fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 } .soft { fill: #59636e }
  .panel { fill: #ffffff; stroke: #d8dee4 } .piece { stroke: #ffffff; stroke-width: 1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .soft { fill: #9aa4af } .panel { fill: #0d1117; stroke: #30363d }
    .piece { stroke: #0d1117 }
  }
"""


def told(folder: Path, *, is_warned: bool) -> dict:
    """One run through the maintenance; its report."""
    machine = folder / "machine"
    machine.mkdir(parents=True)
    (folder / "train.py").write_text(TRAINER)
    off = {} if is_warned else {"HOLDFAST_NOTICE": "off"}
    with TpuEmulator(scripts=machine) as tpu:
        environment = os.environ | off | {
            "HOLDFAST_TPU_ENDPOINT": tpu.endpoint,
            "HOLDFAST_STORE": str(folder / "store"),
            "HOLDFAST_MIRROR": str(folder / "mirror"),
            "HOLDFAST_SCRATCH": str(folder / "scratch"),
            "HOLDFAST_MEMORY": "off",  # a machine that is taken takes its memory with it
            "HOLDFAST_SAVE_EVERY_STEPS": str(SAVE_EVERY),
        }  # fmt: skip

        def holdfast(*words: object) -> str:
            command = [sys.executable, "-m", "holdfast.cli.main", *map(str, words)]
            out = subprocess.run(command, env=environment, capture_output=True, text=True)
            return out.stdout

        os.environ.update(environment)  # what a machine starts, it starts from here
        made_of = ["--project", "p", "--zone", "z", "--type", "v5litepod-8", "--runtime", "v2"]
        warned = [] if is_warned else ["--no-autocheckpoint", "--no-agent"]
        (folder / "setup.sh").write_text(f'export PATH="{Path(sys.executable).parent}:$PATH"\n')
        setup = ["--setup", folder / "setup.sh", "--every", 0.2]
        holdfast("up", "lm", *made_of, *warned, *setup, "--", sys.executable, folder / "train.py")
        (node,) = tpu.nodes
        first = node.rpartition("/")[2]
        wait_for(machine / f"{first}.log", rf"at {ANNOUNCED_AT}\n")
        begins = datetime.now(UTC) + timedelta(seconds=AHEAD_S)
        tpu.do("window", first, begins.isoformat())
        time.sleep(AHEAD_S)
        tpu.do("preempt", first)
        holdfast("recover", "lm", "--delete", "--every", 0.2)
        wait_for(machine / f"{first[:-1]}2.log", "': done")
        return json.loads(holdfast("report", "lm", "--json"))


def wait_for(log: Path, pattern: str) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not log.exists() or not re.search(pattern, log.read_text()):
        if time.monotonic() > end_s:
            sys.exit(f"{pattern} was not said in:\n{log.read_text() if log.exists() else ''}")
        time.sleep(0.02)


def in_words(report: dict) -> str:
    """As under a bar."""
    lost = report["lost_steps"]
    steps = "no step lost" if lost == 0 else f"{lost} steps lost"
    return f"goodput {report['goodput']:.1%}, {steps}, {report['elapsed_s']:.1f} s"


def picture(rows: list[tuple[str, dict]]) -> str:
    """Both runs to one scale: each second in the colour of what it was spent on."""
    longest_s = max(report["elapsed_s"] for _, report in rows)
    scale = (WIDTH - 2 * MARGIN) / longest_s
    body, seen = [words(MARGIN, 38, "The same maintenance, announced and not", "title")], {}
    for row, (name, report) in enumerate(rows):
        y, x = 84 + row * 104, float(MARGIN)
        body.append(words(MARGIN, y - 10, f"{name}: {in_words(report)}"))
        for kind, seconds in {"step": report["productive_s"], **report["badput_s"]}.items():
            style = style_of(kind)
            seen.setdefault(style.colour, []).append(style.words)
            body.append(
                f'<rect x="{x:.1f}" y="{y}" width="{seconds * scale:.1f}" height="{BAR}" '
                f'class="piece" fill="{style.colour}"><title>{style.words}: {seconds:.1f} s'
                "</title></rect>"
            )
            x += seconds * scale
    y, x = 84 + len(rows) * 104 - 10, float(MARGIN)
    for colour, names in seen.items():
        text = ", ".join(dict.fromkeys(names))
        if x + 24 + 6.4 * len(text) > WIDTH - MARGIN:
            y, x = y + 22, float(MARGIN)
        body.append(f'<rect x="{x:.0f}" y="{y - 11}" width="12" height="12" fill="{colour}"/>')
        body.append(words(x + 18, y, text, "soft"))
        x += 34 + 6.4 * len(text)
    height = y + 26
    panel = (
        f'<rect class="panel" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>'
    )
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, f"<style>{STYLE}</style>", panel, *body, "</svg>"]) + "\n"


def words(x: float, y: float, text: str, css: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{css}">{text}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--picture", type=Path, help="where the SVG is written")
    asked = parser.parse_args()
    rows = []
    for name, is_warned in (("with autocheckpoint", True), ("without", False)):
        with tempfile.TemporaryDirectory() as folder:
            rows.append((name, told(Path(folder), is_warned=is_warned)))
        print(f"{name:<20} {in_words(rows[-1][1])}", flush=True)
        for kind, seconds in rows[-1][1]["badput_s"].items():
            print(f"  {kind:<20} {style_of(kind).words:<32} {seconds:6.1f} s", flush=True)
    if asked.picture is not None:
        asked.picture.write_text(picture(rows), encoding="utf-8")
        print(f"the picture: {asked.picture}")


if __name__ == "__main__":
    main()
