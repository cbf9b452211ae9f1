"""A real Prometheus server scrapes real runs: rules fire when one hangs, loops, or is left alone.

Runs in a network namespace with only a loopback; see `test_server`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

EXPORT, SERVER = 9464, 9090
LIMIT_S = 240.0  # reached only when something is wrong
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
SCRIPT = """
import os, signal, sys, time
import numpy as np
import holdfast as hf

how = sys.argv[1]
if how == "counted":
    import torch  # whose device is told
run = hf.start()
state = run.restore(init=lambda: np.zeros(4))
for step in run.steps(40 if how == "short" else 100_000):
    state = state + 1
    # After the last crash it hardly comes on: the alert stays until it was seen.
    time.sleep(5 if how == "loop" and run.attempt == 6 else 0.03)
    run.done(step, state)
    if how == "hang" and run.attempt == 0 and step == 40:
        time.sleep(3600)
    if how == "loop" and step % 2 == 0 and run.attempt < 6:
        os.kill(os.getpid(), signal.SIGKILL)
"""
CONFIGURATION = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: holdfast
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
# What is known of no run here, or happens to none: their queries must be right, and may be empty.
MAY_BE_EMPTY = ("notice_remaining",)


def get(path: str, **parameters: str) -> Any:
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"http://127.0.0.1:{SERVER}/api/v1/{path}?{query}") as answer:
        told = json.load(answer)
    assert told["status"] == "success", told
    return told["data"]


def value(expression: str) -> list[tuple[dict[str, str], float]]:
    return [(r["metric"], float(r["value"][1])) for r in get("query", query=expression)["result"]]


def firing() -> set[tuple[str, str]]:
    alerts = get("alerts")["alerts"]
    return {
        (one["labels"]["alertname"], one["labels"].get("run", ""))
        for one in alerts
        if one["state"] == "firing"
    }


class Scene:
    """The server, the exporter and the runs; all end with it."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        (folder / "train.py").write_text(SCRIPT)
        rules = folder / "rules.yml"
        text = files("holdfast.export").joinpath("files", "rules.yml").read_text()
        rules.write_text(re.sub(r"for: \w+", "for: 1s", text))
        (folder / "prometheus.yml").write_text(CONFIGURATION.format(rules=rules, port=EXPORT))
        self.environment = {
            **os.environ,
            "HOLDFAST_STORE": str(folder / "store"),
            "HOLDFAST_SCRATCH": str(folder / "scratch"),
            "HOLDFAST_MIRROR": str(folder / "mirror"),
            "HOLDFAST_MEMORY_DIR": str(folder / "memory"),
            "HOLDFAST_STANDBY": "off",
            "HOLDFAST_NOTICE": "off",
        }
        (folder / "memory").mkdir()
        (folder / "store").mkdir()
        self.start(
            str(binaries / "prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{SERVER}",
            name="prometheus",
        )

    def start(self, *command: str, name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def run(self, name: str, how: str, *flags: str) -> subprocess.Popen[bytes]:
        train = [sys.executable, "train.py", how]
        return self.start(*HOLDFAST, "run", "--name", name, *flags, "--", *train, name=name)

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in self._processes:
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("scene"), Path(os.environ["PROMETHEUS_FOLDER"]))
    try:
        scene.start(
            *HOLDFAST, "export", "--prometheus", "--tensorboard", "tb", "--every", "0.5",
            name="export",
        )  # fmt: skip
        yield scene
    finally:
        scene.close()


def until(what: Callable[[], Any], within_s: float = LIMIT_S) -> Any:
    give_up_s = time.monotonic() + within_s
    while True:
        try:
            if found := what():
                return found
        except OSError:
            pass
        assert time.monotonic() < give_up_s, f"not within {within_s} s: {what}"
        time.sleep(0.1)


def test_a_run_is_scraped_and_its_numbers_are_the_reports(scene: Scene) -> None:
    scene.run("quiet", "well", "--save-every-s", "1", "--ideal-step", "0.02")
    assert scene.run("short", "short").wait(LIMIT_S) == 0
    until(lambda: value('holdfast_step{run="quiet"} > 20'))
    until(lambda: value('holdfast:goodput:ratio{window="1h"}'))
    asked = [*HOLDFAST, "report", "short", "--json"]
    report = json.loads(
        subprocess.run(asked, env=scene.environment, check=True, capture_output=True).stdout
    )
    until(lambda: value('holdfast_run_state{run="short",state="done"} == 1'))
    # A scrape that came too late leaves no values behind, until the next one.
    ((_, goodput),) = until(lambda: value('holdfast_goodput_ratio{run="short",window="all"}'))
    assert goodput == pytest.approx(report["goodput"], abs=1e-9)
    until(lambda: value('holdfast_program_goodput_ratio{run="quiet"}'))
    measure = [*HOLDFAST, "calibrate", "--framework", "torch", "--seconds", "0.1"]
    subprocess.run(measure, env=scene.environment, check=True, capture_output=True)
    scene.run("counted", "counted", "--flops-per-step", "1000000")
    until(lambda: value('holdfast_program_goodput_of_reached_ratio{run="counted"}'))
    until(lambda: value('up{job="holdfast"} == 1'))


def test_a_hang_fires(scene: Scene) -> None:
    scene.run("stuck", "hang", "--hang", "2")
    until(lambda: ("HoldfastHang", "stuck") in firing())
    assert ("HoldfastHang", "quiet") not in firing()
    # It was counted once; on a busy machine two seconds may pass without a step again.
    counted = 'holdfast_incidents_total{run="stuck",cause="hang"} == 1'
    until(lambda: value(f"count_over_time(({counted})[1h:100ms])"))


def test_a_crash_loop_fires(scene: Scene) -> None:
    scene.run("loop", "loop", "--max-failures", "50")
    until(lambda: ("HoldfastCrashLoop", "loop") in firing())
    assert ("HoldfastCrashLoop", "quiet") not in firing()


def test_a_killed_supervisor_fires(scene: Scene) -> None:
    alone = scene.run("alone", "well")
    until(lambda: value('holdfast_run_state{run="alone",state="running"} == 1'))
    assert ("HoldfastSupervisorSilent", "alone") not in firing()
    os.kill(alone.pid, signal.SIGKILL)
    until(lambda: ("HoldfastSupervisorSilent", "alone") in firing())
    assert ("HoldfastSupervisorSilent", "quiet") not in firing()


def test_every_query_of_the_dashboard_is_answered(scene: Scene) -> None:
    board = json.loads(files("holdfast.export").joinpath("files", "dashboard.json").read_text())
    queries = [t["expr"] for panel in board["panels"] for t in panel.get("targets", ())]
    queries += [one["expr"] for one in board["annotations"]["list"]]
    assert len(queries) > 25
    for query in queries:
        asked = query.replace("$run", ".*").replace("$window", "1h")
        if any(name in query for name in MAY_BE_EMPTY):
            value(asked)
        else:
            until(partial(value, asked))
    (query,) = (one["query"] for one in board["templating"]["list"] if one["type"] == "query")
    form = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
    assert form is not None
    names = get(f"label/{form[2]}/values", **{"match[]": form[1]})
    assert {"quiet", "stuck", "loop", "alone"} <= set(names)


def test_every_rule_is_healthy(scene: Scene) -> None:
    groups = get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == 14
    assert [r["name"] for r in rules if r["health"] != "ok"] == []
