"""What of the engine Ray needs no Ray: options, an agent's command and environment, sentences."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from holdfast.cli.submit import submit
from holdfast.config import RAY_WAITS_VARIABLE
from holdfast.core.hosts.engine import EngineWait, Submission
from holdfast.engines.protocol import EngineError
from holdfast.engines.ray import cluster, waits
from holdfast.engines.ray import engine as ray_engine
from holdfast.engines.ray.cluster import in_a_sentence, ray_words, refused
from holdfast.engines.ray.host import (
    HostTold,
    RayHost,
    agent_environment,
    agent_words,
    notice_text,
    own_start_unix_ns,
    waits_until,
)
from holdfast.engines.ray.options import RayOptions, kept, read_options
from holdfast.engines.ray.placing import fitting
from holdfast.engines.ray.private import RayHooks
from holdfast.engines.registry import engine_here
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.notices.file import read_text

NOW_NS = 1_800_000_000 * 10**9


def wanted(*flags: str, command: tuple[str, ...] = ("python", "t.py")) -> Submission:
    return Submission("ray", "lm", "abc", "/runs", 2, 1, command, flags=flags)


def test_nothing_said_is_one_cpu_wherever_the_cluster_is() -> None:
    assert read_options({}, {}) == RayOptions()
    assert read_options({"address": "auto"}, {"RAY_ADDRESS": "b:1"}).address == ""
    assert read_options({}, {"RAY_ADDRESS": "b:1"}).address == "b:1"


def test_what_is_reserved_and_brought_along(tmp_path: Path) -> None:
    found = read_options(
        {
            "num_cpus": "0", "gpus": "8", "resources": '{"TPU": 4}', "labels": '{"a": "b"}',
            "working_dir": str(tmp_path), "runtime_env": '{"env_vars": {"A": "1"}}',
        },
        {},
    )  # fmt: skip
    assert found.bundle == {"GPU": 8.0, "TPU": 4.0}
    assert found.runtime_env == {"working_dir": str(tmp_path)}
    assert found.variables == {"A": "1"}
    early = '{"env_vars": {"A": "1", "PYTHONPATH": "/x"}}'
    assert read_options({"runtime_env": early}, {}).variables == {}


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("num_cpus", "many", "'many' is no number"),
        ("num_cpus", "0", "needs something that is reserved"),
        ("gpus", "-1", "is no number of them"),
        ("gpus", "nan", "is no number of them"),
        ("resources", "[1]", "is no JSON object"),
        ("resources", '{"TPU": true}', "TPU is no number"),
        ("labels", '{"a": 1}', "a label is a text"),
        ("runtime_env", "{", "is no JSON"),
        ("runtime_env", '{"env_vars": {"A": 1}}', "its env_vars are no texts"),
        ("working_dir", "/nowhere/at/all", "is no folder here"),
        ("address", "http://head:8265", "that of Ray's dashboard"),
        ("address", "local", "a cluster that ends with this command"),
    ],
)
def test_an_option_that_cannot_be_meant(option: str, value: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_options({option: value}, {})


@pytest.mark.parametrize(
    ("flags", "variable", "sources"),
    [
        ((), None, "auto,file:/f"),
        ((), "off", "file:/f"),
        (("--notice", "gce"), "off", "gce,file:/f"),
        (("--notice", "off", "--grace", "9"), None, "file:/f"),
    ],
)
def test_an_agent_has_its_number_and_a_file_for_notices(
    flags: tuple[str, ...], variable: str | None, sources: str
) -> None:
    told = HostTold(wanted(*flags, command=("a", "--", "--notice", "x")).to_json(), 2, "k")
    environment = {} if variable is None else {"HOLDFAST_NOTICE": variable}
    words = agent_words(told, Path("/f"), environment, ("holdfast",))
    rest = [one for one in flags if one in ("--grace", "9")]
    before = ["run", "--name", "lm", "--store", "/runs", "--hosts", "2", "--spares", "1", *rest]
    after = ["--known", "--notice", sources, "--host-index", "2", "--", "a", "--", "--notice", "x"]
    assert words == ["holdfast", *before, *after]


def test_a_drain_is_a_notice_that_the_source_file_understands() -> None:
    at_ms = NOW_NS // 1_000_000 + 90_000
    found = read_text(notice_text(at_ms, NOW_NS), NOW_NS)
    assert found.deadline_unix_ns == NOW_NS + 90 * 10**9
    assert read_text(notice_text(0, NOW_NS), NOW_NS).deadline_unix_ns is None
    late = read_text(notice_text(1, NOW_NS), NOW_NS)
    assert late.deadline_unix_ns == NOW_NS


def test_what_ray_sets_for_its_own_tasks_is_no_setting_of_the_run() -> None:
    mine = {"A": "1", "OMP_NUM_THREADS": "1", "PYTHONBREAKPOINT": "ray.util.rpdb.set_trace"}
    assert agent_environment(mine, {}) == {"A": "1"}
    assert agent_environment(mine, {"OMP_NUM_THREADS": "8"}) == {"A": "1", "OMP_NUM_THREADS": "8"}


def test_an_agent_tells_what_it_waited_for() -> None:
    told = json.dumps({"waits": [["queue", 5, 9], ["boot", 9, 8]]})
    environment = {RAY_WAITS_VARIABLE: told, "SLURM_JOB_ID": "7"}
    assert waits(environment) == (EngineWait("queue", 5, 9),)
    assert engine_here(environment) == "ray"
    assert waits({RAY_WAITS_VARIABLE: "rubbish"}) == ()


@pytest.mark.parametrize(
    ("since", "process", "waited"),
    [
        (10, 20, [("queue", 10, 20), ("boot", 20, 30)]),
        (10, 5, [("queue", 10, 30), ("boot", 30, 30)]),  # a process that Ray had before
        (0, 20, []),  # an actor that comes again waited for no node
    ],
)
def test_what_an_actor_has_waited_for(
    since: int, process: int, waited: list[tuple[str, int, int]]
) -> None:
    assert waits_until(30, since, process) == waited


def test_a_process_knows_when_it_was_begun() -> None:
    now = time.time_ns()
    assert now - 10**15 < own_start_unix_ns() <= now


def node(*, alive: bool = True, cpus: float = 1, **labels: str) -> dict[str, object]:
    return {"Alive": alive, "Resources": {"CPU": cpus}, "Labels": labels}


def test_nodes_that_would_do_are_counted_by_what_they_have_and_are() -> None:
    nodes = [node(), node(alive=False), node(cpus=0), node(cpus=8, pool="a"), node(pool="b")]
    assert fitting(nodes, RayOptions()) == 3
    assert fitting(nodes, RayOptions(bundle={"CPU": 1, "GPU": 1})) == 0
    assert fitting(nodes, RayOptions(labels={"pool": "a"})) == 1
    assert fitting(nodes, RayOptions(labels={"pool": "!a"})) == 3  # Ray's own rules: not asked


# Ray 2.60's own words.
MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.49.0
    Python: 3.11.7
This process on Ray Client was started with:
    Ray: 2.60.0
    Python: 3.12.1
"""
MISSING = """The actor died because of an error raised in its creation task, ray::Foreman.__init__()
RuntimeError: The actor with name Foreman failed to import on the worker. This may be because needed
library dependencies are not installed in the worker environment:

Traceback (most recent call last):
ModuleNotFoundError: No module named 'holdfast'"""


def test_another_version_than_the_clusters_is_one_sentence() -> None:
    found = refused("ray://a:1", RuntimeError(MISMATCH))
    assert isinstance(found, ConfigurationError)
    said = "there Ray 2.49.0 and Python 3.11.7, here Ray 2.60.0 and Python 3.12.1"
    assert said in str(found)
    assert "\n" not in str(found)


def test_nodes_without_holdfast_are_one_sentence() -> None:
    found = in_a_sentence(RuntimeError(MISSING))
    assert isinstance(found, ConfigurationError)
    assert "Holdfast is not installed on the cluster's nodes" in str(found)


def test_why_an_actor_has_ended_is_one_line() -> None:
    died = "The actor died unexpectedly before finishing this task.\n\tclass_name: RayHost\n"
    assert ray_words(RuntimeError(died)) == died.partition("\n")[0]
    assert ray_words(RuntimeError(MISSING)) == "ModuleNotFoundError: No module named 'holdfast'"
    assert ray_words(TimeoutError()) == "TimeoutError()"


def test_a_client_tries_again_where_its_server_was_dead_at_birth() -> None:
    said = ["Initialization failure from server: RuntimeError: Starting Ray client server failed."]

    def init() -> None:
        if said:
            raise ConnectionAbortedError(said.pop())

    cluster.taken_in(init)
    said.append("Initialization failure from server: RuntimeError: Failed to create runtime_env")
    with pytest.raises(ConnectionAbortedError):
        cluster.taken_in(init)


def test_no_cluster_here() -> None:
    found = refused("", ConnectionError("Could not find any running Ray instance."))
    assert isinstance(found, EngineError)
    assert "no Ray cluster runs on this machine" in str(found)


def test_nobody_listens_at_the_address() -> None:
    with pytest.raises(EngineError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        cluster.dial("127.0.0.1:1")


def test_a_head_that_is_away_for_a_while_is_no_order_that_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`holdfast submit --wait` asks again after an EngineError; any other would end it."""
    ends: list[Exception] = [ConnectionError("Ray Client is not connected"), ValueError("none")]

    def get_actor(_name: str, namespace: str) -> None:
        del namespace
        raise ends.pop(0)

    away = SimpleNamespace(get_actor=get_actor)
    monkeypatch.setattr(ray_engine, "connect", lambda _options: away)
    engine = ray_engine.RayEngine(RayOptions())
    with pytest.raises(EngineError, match="Ray does not answer: Ray Client is not connected"):
        engine.find("abc")
    assert engine.find("abc") == ""


def test_without_ray_there_is_a_command_to_paste(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["--engine", "ray", "--name", "lm", "--hosts", "2"]
    result = CliRunner().invoke(submit, [*words, "--", "python", "t.py"])
    assert isinstance(result.exception, HoldfastError)
    assert "pip install 'holdfast-ml[ray]'" in str(result.exception)
    dry = CliRunner().invoke(submit, [*words, "--dry-run", "--", "python", "t.py"])
    assert "2 bundles, STRICT_SPREAD, each CPU 1" in dry.output


def test_a_private_hook_that_fails_costs_its_feature_and_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray._private.state", None)
    said: list[str] = []
    hooks = RayHooks(said.append)
    assert hooks.draining() == hooks.draining() == {}
    assert not hooks.drain("n", "repair")
    assert len(said) == 2
    assert "hear that a node is drained" in said[0]


def beside(cwd: Path) -> RayHost:
    """An actor's own object, on the same node each time. Without Ray it is a plain one."""
    return RayHost(HostTold(wanted().to_json(), 0, "k", str(cwd)))


def refuses(*_: object, cwd: str, **__: object) -> None:
    """As a start does it, where that folder is not there: a virtual test starts no process."""
    Path(cwd).stat()
    raise AssertionError("it is there")


@pytest.mark.real
def test_an_agent_outlives_its_actor_and_the_next_one_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a child that is ended with all its children, as Ray does it."""
    monkeypatch.setenv("HOLDFAST_SCRATCH", str(tmp_path / "scratch"))
    go = tmp_path / "go"
    script = f"import time, pathlib\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)"
    monkeypatch.setattr(
        "holdfast.engines.ray.host.agent_words",
        lambda *_: [sys.executable, "-c", script + "\nprint('was there')\nraise SystemExit(75)"],
    )
    child = os.fork()
    if not child:
        host = beside(tmp_path)
        host.start()
        os._exit(0 if host.look().state == "running" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    host = beside(tmp_path)
    assert host.look().state == "running"
    host.start()  # one is enough
    go.touch()
    end_s = time.monotonic() + 60
    while (sight := host.look()).state == "running":
        assert time.monotonic() < end_s
        time.sleep(0.01)
    assert sight == ("ended", 75, "was there")
    host.close()
    assert host.look().state == "none"


def test_a_folder_that_is_not_there_ends_the_agent_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr("subprocess.run", refuses)
    host = beside(tmp_path / "nowhere")
    host.start()
    state, code, words = host.look()
    assert (state, code) == ("ended", 78)
    assert words.startswith(f"its agent cannot be started in {tmp_path / 'nowhere'}: ")


@pytest.mark.real
def test_an_agent_is_told_to_go_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SCRATCH", str(tmp_path / "scratch"))
    script = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('saved', flush=True))\n"
        "print('begun', flush=True)\n"
        "while True: time.sleep(0.01)"
    )
    monkeypatch.setattr(
        "holdfast.engines.ray.host.agent_words", lambda *_: [sys.executable, "-c", script]
    )
    host = beside(tmp_path)
    host.start()
    log = next(tmp_path.glob("scratch/*/k/log"))

    def says(words: str) -> None:
        end_s = time.monotonic() + 60
        while words not in log.read_text():
            assert time.monotonic() < end_s
            time.sleep(0.01)

    says("begun")
    host.end(now=False)
    says("saved")
    host.end(now=True)
    end_s = time.monotonic() + 60
    while (sight := host.look()).state == "running":
        assert time.monotonic() < end_s
        time.sleep(0.01)
    assert sight.code == -signal.SIGKILL


def test_what_is_kept_of_an_order_has_no_secrets_and_no_folder_to_bring() -> None:
    said = {"runtime_env": '{"env_vars": {"TOKEN": "t"}}', "working_dir": ".", "gpus": "8"}
    submission = Submission("ray", "lm", "abc", "/r", 1, 0, ("x",), options=tuple(said.items()))
    assert kept(submission).options == (("gpus", "8"),)
