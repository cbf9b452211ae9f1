"""`holdfast submit`, `hosts` and `release`, with an engine made up here, which has no hosts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.engine_waits import tell_waits
from holdfast.cli.hosts import hosts
from holdfast.cli.ls import look_at
from holdfast.cli.orders import order_lines
from holdfast.cli.release import release
from holdfast.cli.stop import stop
from holdfast.cli.submit import submit
from holdfast.core.hosts.engine import EngineHost, EngineWait, HostStage, Submission
from holdfast.engines import registry
from holdfast.engines.protocol import EngineError, EngineOption, Ordered, OrderStanding
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.journal.lease import LastWords, acquire
from holdfast.journal.machine_facts import past_waits_ns
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.submitted import kept

MINUTE_NS = 60 * 10**9
NOW_NS = 1_800_000_000 * 10**9
COMMAND = ["--", "python", "train.py"]
TWO = ["--engine", "made-up", "--name", "lm", "--hosts", "2"]


class MadeUpEngine:
    """It takes every order, and does nothing."""

    def __init__(self) -> None:
        self.orders: list[Submission] = []
        self.standings = OrderStanding("PENDING (Resources)", (), since_unix_ns=NOW_NS - MINUTE_NS)
        self.released: list[str] = []
        self.waited: tuple[EngineWait, ...] = ()
        self.is_away = False

    def check(self, submission: Submission) -> None:
        if submission.option("partition") == "none":
            raise EngineError("there is no partition 'none'")

    def preview(self, submission: Submission) -> str:
        return " ".join(submission.run_words()) + "\n"

    def submit(self, submission: Submission) -> Ordered:
        self.orders.append(submission)
        return Ordered(submission, "17", "job 17", NOW_NS)

    def find(self, run_id: str) -> str:
        is_known = any(one.run_id == run_id for one in self.orders) and not self.released
        return "job 17" if is_known else ""

    def standing(self, ordered: Ordered) -> OrderStanding:
        if self.is_away:
            raise EngineError("its controller does not answer")
        return self.standings

    def replace(self, ordered: Ordered, host: str, reason: str) -> str:
        return f"{host} is replaced: {reason}"

    def release(self, ordered: Ordered) -> str:
        self.released.append(ordered.job)
        return f"{ordered.words} is cancelled"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> MadeUpEngine:
    made = MadeUpEngine()
    module = ModuleType("holdfast.engines.made_up_for_tests")

    def make(options: Mapping[str, str], environment: Mapping[str, str]) -> MadeUpEngine:
        return made

    def waits(environment: Mapping[str, str]) -> tuple[EngineWait, ...]:
        if made.is_away:
            raise EngineError("its controller does not answer")
        return made.waited

    module.OPTIONS = (EngineOption("partition", "Which part of it."),)  # type: ignore[attr-defined]
    module.make, module.waits = make, waits  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    is_here = lambda environment: environment.get("MADE_UP") == "1"  # noqa: E731
    row = registry.EngineRow("made_up_for_tests", is_here)
    monkeypatch.setitem(registry.ENGINES, "made-up", row)
    return made


def said(*words: str) -> Result:
    return CliRunner().invoke(submit, [*words])


def refused(*words: str) -> str:
    result = said(*words)
    assert isinstance(result.exception, HoldfastError), result.output
    return str(result.exception)


def taken(store: Path, *more: str) -> RunFolder:
    result = said(*TWO, *more, *COMMAND)
    assert result.exit_code == 0, result.output
    assert "2 hosts, job 17" in result.output.replace(" and 1 spare", "")
    return RunStore(store).get("lm")


def test_every_host_is_given_the_same_command(engine: MadeUpEngine, store: Path) -> None:
    folder = taken(
        store, "--spares", "1", "--ranks", "4", "--save-every", "100", "-o", "partition=a"
    )
    (wanted,) = engine.orders
    assert (wanted.run_id, wanted.option("partition")) == (folder.identity.run_id, "a")
    words = f"holdfast run --name lm --store {store} --hosts 2 --spares 1 --ranks 4"
    # The run is there: a host that does not find it has another store, or none.
    assert " ".join(wanted.run_words()) == f"{words} --save-every 100 --known -- python train.py"


def test_a_dry_run_makes_nothing(engine: MadeUpEngine, store: Path) -> None:
    result = said(*TWO, "--dry-run", *COMMAND)
    assert result.output == f"holdfast run --name lm --store {store} --hosts 2 -- python train.py\n"
    assert not engine.orders
    assert not RunStore(store).names()


def test_options_are_those_of_the_engine(engine: MadeUpEngine, store: Path) -> None:
    assert "partition" in said("--engine", "made-up", "--list-options").output
    assert "did you mean partition?" in refused(*TWO, "-o", "partitoin=a", *COMMAND)
    assert "NAME=VALUE" in refused(*TWO, "-o", "partition", *COMMAND)
    assert "no partition 'none'" in refused(*TWO, "-o", "partition=none", *COMMAND)
    assert "there is no engine 'slrm'" in refused("--engine", "slrm", *COMMAND)
    assert "no command" in refused(*TWO)
    assert "name" in refused("--engine", "made-up", "--name", "", *COMMAND)
    assert "no command" in refused(*TWO, "--", "", "x")
    twice = refused(*TWO, "-o", "partition=a", "-o", "partition=b", *COMMAND)
    assert "--option partition is given twice" in twice
    assert not RunStore(store).names()


def test_what_the_hosts_would_refuse_is_refused_here(engine: MadeUpEngine, store: Path) -> None:
    assert "save_every_steps = -5 (--save-every)" in refused(*TWO, "--save-every=-5", *COMMAND)
    assert "give say or replace" in refused(*TWO, "--dry-run", "--straggler", "maybe", *COMMAND)
    many = refused("--engine", "made-up", "--hosts", "100000", "--spares", "1", *COMMAND)
    assert "are 100001 hosts: a run has at most 100000" in many
    assert not RunStore(store).names()


def test_of_two_submissions_at_once_one_is_refused(
    engine: MadeUpEngine, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.journal.lease.DYING_EVERY_S", 0)
    at_once = []
    submit_alone = engine.submit

    def submit_beside_another(submission: Submission) -> Ordered:
        at_once.append(refused(*TWO, *COMMAND))
        return submit_alone(submission)

    engine.submit = submit_beside_another  # type: ignore[method-assign]
    taken(store)
    assert "run 'lm' is being submitted by pid " in at_once[0]
    assert len(engine.orders) == 1


def test_a_secret_in_the_command_is_said(engine: MadeUpEngine, store: Path) -> None:
    secret = "tell-nobody"
    plain = said(*TWO, "--dry-run", *COMMAND)
    assert "secret" not in plain.stderr
    words = said(*TWO, "--dry-run", *COMMAND, "--api-key", secret, f"HF_TOKEN={secret}").stderr
    assert "a secret is in it (--api-key ***, HF_TOKEN=***): pass it in the environment" in words
    assert secret not in words


def test_a_stop_of_what_waits_to_begin_names_release(engine: MadeUpEngine, store: Path) -> None:
    taken(store)
    stopped = CliRunner().invoke(stop, ["lm"])
    assert isinstance(stopped.exception, HoldfastError)
    words = str(stopped.exception)
    assert "'lm' is not running: there is nothing to stop; its hosts were asked of made-up" in words
    assert "`holdfast release lm` takes it back" in words


def test_a_name_that_runs_or_waits_is_refused(engine: MadeUpEngine, store: Path) -> None:
    folder = taken(store)
    said_of = refused(*TWO, *COMMAND)
    assert said_of.endswith("submitted already (job 17): `holdfast release lm` takes that back")
    (folder.path / "engine.json").unlink()  # as where that one was killed before it wrote this
    assert refused(*TWO, *COMMAND).endswith("take it back with the engine's own command")
    engine.orders.clear()
    lease = acquire(folder)
    assert "is held by" in refused(*TWO, *COMMAND)
    lease.release()
    taken(store)


def test_hosts_says_what_is_waited_for_and_for_how_long(engine: MadeUpEngine, store: Path) -> None:
    folder = taken(store)
    (line,) = order_lines(folder, NOW_NS)
    assert line == "made-up (job 17): PENDING (Resources), for 60 s"
    engine.standings = engine.standings._replace(expected_unix_ns=NOW_NS + 5 * MINUTE_NS)
    engine.waited = (EngineWait("queue", NOW_NS - 9 * MINUTE_NS, NOW_NS - 2 * MINUTE_NS),)
    thread = tell_waits(folder, {"MADE_UP": "1"}, lambda *_: None)
    assert thread is not None
    thread.join()
    assert past_waits_ns(folder, "queue") == [pytest.approx(7 * MINUTE_NS, abs=10**7)]
    (line,) = order_lines(folder, NOW_NS)
    assert line.endswith("expected in 5 min; it took 7 min before (of 1)")


def test_hosts_of_a_run_that_has_not_begun(engine: MadeUpEngine, store: Path) -> None:
    taken(store)
    told = CliRunner().invoke(hosts, ["lm"]).output.splitlines()
    assert told[0] == "no host of run 'lm' has told of itself yet"


def test_hosts_names_those_that_are_not_well(engine: MadeUpEngine, store: Path) -> None:
    folder = taken(store)
    engine.standings = OrderStanding(
        "RUNNING",
        (
            EngineHost("n1", HostStage.READY, 0),
            EngineHost("n2", HostStage.DRAINING, 1, "repair", NOW_NS + MINUTE_NS),
            EngineHost("n3", HostStage.GONE),
        ),
    )
    assert order_lines(folder, NOW_NS) == [
        "made-up (job 17): RUNNING",
        "  n2 (host 1) is draining: repair, in 60 s",
        "  n3 is gone",
    ]
    told = json.loads(CliRunner().invoke(hosts, ["lm", "--json"]).output)["engine"]
    assert (told["name"], told["job"], told["is_over"]) == ("made-up", "17", False)
    assert [one["stage"] for one in told["hosts"]] == ["ready", "draining", "gone"]
    engine.is_away = True
    trouble = {"trouble": "its controller does not answer"}
    assert json.loads(CliRunner().invoke(hosts, ["lm", "--json"]).output)["engine"] == trouble
    (line,) = order_lines(folder, NOW_NS)
    assert line == "what its engine says is not known: its controller does not answer"
    assert line in CliRunner().invoke(hosts, ["lm"]).output


def test_an_engine_is_asked_only_what_was_submitted_here(engine: MadeUpEngine, store: Path) -> None:
    """Whoever can write into the store could name another job there."""
    folder = taken(store)
    path = folder.path / "engine.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"job": "18"}))
    assert kept(folder)[0] is None
    assert "what its engine says is not known" in order_lines(folder, NOW_NS)[0]
    result = CliRunner().invoke(release, ["lm"])
    assert "--accept-stored" in str(result.exception)
    assert not engine.released
    assert CliRunner().invoke(release, ["lm", "--accept-stored"]).output == "job 17 is cancelled\n"
    assert engine.released == ["18"]
    assert kept(folder)[0] is not None


def test_a_machine_is_replaced_by_its_engine(engine: MadeUpEngine, store: Path) -> None:
    taken(store)
    words = ["lm", "--replace", "n2", "--reason", "it is slow"]
    assert CliRunner().invoke(hosts, words).output == "n2 is replaced: it is slow\n"


def test_ls_says_of_whom_hosts_are_asked(engine: MadeUpEngine, store: Path) -> None:
    row, _ = look_at(taken(store), NOW_NS)
    assert (row.state, row.why) == ("new", "asked of made-up (job 17)")
    CliRunner().invoke(release, ["lm"])
    row, _ = look_at(RunStore(store).get("lm"), NOW_NS)
    assert (row.state, row.why) == ("new", "it was never launched")


def test_a_run_that_nobody_submitted_has_no_engine(engine: MadeUpEngine, store: Path) -> None:
    folder = RunStore(store).create("lm")
    assert order_lines(folder, NOW_NS) == []
    result = CliRunner().invoke(release, ["lm"])
    assert "was not submitted to an engine" in str(result.exception)


@pytest.mark.parametrize("rubbish", ["", "[]", "{}", '{"submission": 3}', '{"submission": {}}'])
def test_rubbish_in_the_store_is_said(engine: MadeUpEngine, store: Path, rubbish: str) -> None:
    folder = taken(store)
    (folder.path / "engine.json").write_text(rubbish)
    (line,) = order_lines(folder, NOW_NS)
    assert line.startswith("what its engine says is not known: ")
    result = CliRunner().invoke(release, ["lm", "--accept-stored"])
    assert "is damaged" in str(result.exception)
    assert "object has no attribute" not in str(result.exception)
    row, problems = look_at(folder, NOW_NS)
    assert "is damaged" in " ".join([row.why, *problems])


def test_a_start_does_not_wait_for_its_engine(engine: MadeUpEngine, store: Path) -> None:
    folder = RunStore(store).create("lm")
    assert tell_waits(folder, {}, lambda *_: None) is None
    engine.is_away = True
    heard: list[tuple[str, str]] = []
    thread = tell_waits(folder, {"MADE_UP": "1"}, lambda *words: heard.append(words))
    assert thread is not None
    thread.join()
    assert [level for level, _ in heard] == ["warning"]
    assert "its controller does not answer" in heard[0][1]


def test_who_waits_has_the_runs_exit_code(
    engine: MadeUpEngine, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine and the store are away at first, then the run trains, and it ends."""
    engine.is_away = True

    def asked(folder: Path) -> None:
        if engine.is_away:
            raise StoreUnavailable("the store does not answer")
        refresh(folder)

    monkeypatch.setattr("holdfast.cli.submit.refresh", asked)
    looks = [
        OrderStanding("RUNNING", (EngineHost("n1", HostStage.READY, 0),)),
        OrderStanding("RUNNING", (EngineHost("n1", HostStage.DRAINING, 0, "repair"),)),
    ]

    def sleep(_: float) -> None:
        if engine.is_away:
            engine.is_away = False
            return
        if looks:
            engine.standings = looks.pop(0)
            return
        lease = acquire(RunStore(store).get("lm"))
        lease.release(LastWords(75, "stopped"))
        engine.standings = OrderStanding("over", (), is_over=True)

    monkeypatch.setattr("time.sleep", sleep)
    result = said(*TWO, "--wait", *COMMAND)
    assert result.exit_code == 75
    assert "its controller does not answer; asking again" in result.output
    assert "made-up: PENDING (Resources)" in result.output
    told = [line for line in result.output.splitlines() if "n1" in line]
    assert told == [
        "holdfast: n1 (host 0) is ready",
        "holdfast: n1 (host 0) is draining: repair",
        "holdfast: n1 (host 0) is gone: not told of any more",
    ]


@pytest.mark.parametrize(
    ("last", "code"),
    [(LastWords(0, "done"), 0), (LastWords(75, "stopped by somebody", by_person=True), 75)],
)
def test_an_engine_that_stays_away_does_not_hide_the_runs_end(
    engine: MadeUpEngine, store: Path, monkeypatch: pytest.MonkeyPatch, last: LastWords, code: int
) -> None:
    """The first end is a notice's, after which the run goes on; the second one is the last."""
    engine.is_away = True
    ends = [last, LastWords(75, "stopped for a notice")]

    def sleep(_: float) -> None:
        acquire(RunStore(store).get("lm")).release(ends.pop())

    monkeypatch.setattr("time.sleep", sleep)
    result = said(*TWO, "--wait", *COMMAND)
    assert result.exit_code == code
    assert f"its store says that the run is over: {last.words}" in result.output
    assert ends == []


def test_who_waits_for_what_never_ran_is_told_so(engine: MadeUpEngine, store: Path) -> None:
    acquire(RunStore(store).open("lm", command=("x",))).release(LastWords(75, "stopped"))
    engine.standings = OrderStanding("over", (), is_over=True)
    assert said(*TWO, "--wait", *COMMAND).exit_code == 69
